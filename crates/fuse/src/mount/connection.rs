//! The fusectl files of a connection, `/sys/fs/fuse/connections/N`: `abort` and `waiting`. Where /sys has none, fusectl is
//! mounted privately.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat, statfs};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::{MountError, MountPoint};

const CONTROL_DIR: &str = "/sys/fs/fuse/connections";
const FUSECTL_MAGIC: u64 = 0x6573_5543;

impl MountPoint {
    /// Returns the name of the connection's directory: the device number in the kernel's internal encoding, which for a plain
    /// FUSE mount is the minor number.
    pub(crate) fn connection_id(&self) -> u64 {
        u64::from(self.dev().major) << 20 | u64::from(self.dev().minor)
    }

    /// Aborts the connection: all pending and future requests fail with ECONNABORTED or ENOTCONN.
    ///
    /// # Errors
    ///
    /// [`MountError::Connection`]: not permitted, or the connection no longer exists.
    pub fn abort(&self) -> Result<(), MountError> {
        let file = "abort";
        self.control(file, OFlags::WRONLY)
            .and_then(|fd| std::fs::File::from(fd).write_all(b"1"))
            .map_err(|error| MountError::Connection { id: self.connection_id(), file, error })
    }

    /// Returns the number of requests that wait for the server or for its reply.
    ///
    /// # Errors
    ///
    /// [`MountError::Connection`]: not permitted, or the connection no longer exists.
    pub fn waiting(&self) -> Result<u64, MountError> {
        let file = "waiting";
        self.control(file, OFlags::RDONLY)
            .and_then(|fd| {
                let mut text = String::new();
                std::fs::File::from(fd).take(32).read_to_string(&mut text)?;
                text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
            })
            .map_err(|error| MountError::Connection { id: self.connection_id(), file, error })
    }

    fn control(&self, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let name = format!("{}/{file}", self.connection_id());
        let flags = flags | OFlags::CLOEXEC;
        if statfs(CONTROL_DIR).is_ok_and(|fs| fs.f_type as u64 == FUSECTL_MAGIC) {
            let path = format!("{CONTROL_DIR}/{name}");
            return Ok(openat(CWD, path, flags, Mode::empty())?);
        }
        Ok(openat(private_control_dir()?, name, flags, Mode::empty())?)
    }
}

/// Mounts fusectl without attaching it: containers and small systems have none in /sys.
fn private_control_dir() -> io::Result<OwnedFd> {
    let not_found = |_| io::Error::from(io::ErrorKind::NotFound);
    let fs = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC).map_err(not_found)?;
    fsconfig_create(&fs).map_err(not_found)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)?)
}
