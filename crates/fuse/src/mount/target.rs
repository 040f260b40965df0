//! The mount point, opened and checked before anything is mounted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::Errno;

use super::{MountError, RootKind, point};

/// An existing file or directory to mount on.
#[derive(Debug)]
pub(super) struct Target {
    pub path: PathBuf,
    /// Pins the inode, so that the one that was checked is the one that is mounted on.
    pub fd: OwnedFd,
}

impl Target {
    pub(super) fn open(path: &Path, root: RootKind) -> Result<Self, MountError> {
        let path = point::physical(path)?;
        let unreachable = |errno: Errno| MountError::Unreachable { path: path.clone(), error: errno.into() };
        let fd = open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map_err(unreachable)?;
        // Bypasses the cache: the cached attributes of a mount outlive its server.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        match statx(&fd, "", flags, StatxFlags::TYPE) {
            Ok(st) => {
                let is_dir = FileType::from_raw_mode(st.stx_mode.into()).is_dir();
                match root {
                    RootKind::Directory if !is_dir => return Err(MountError::NotDirectory(path)),
                    RootKind::File if is_dir => return Err(MountError::IsDirectory(path)),
                    _ => {}
                }
            }
            Err(Errno::NOTCONN | Errno::CONNABORTED) => return Err(MountError::Dead(path)),
            // Another user's mount, which even root has no access to: mounting over it is still fine.
            Err(Errno::ACCESS) => {}
            Err(errno) => return Err(unreachable(errno)),
        }
        Ok(Target { path, fd })
    }
}
