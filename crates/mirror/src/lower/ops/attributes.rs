//! Attribute operations: stat, setattr, statfs and readlink.

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, StatVfs, Statx, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::credentials::KeepSetid;
use super::super::open_inode::InodeFd;
use super::super::sys::ProcPath;
use super::super::{Caller, Lower, STAT};

/// A timestamp to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewTime {
    /// The current time.
    Now,
    /// Seconds and nanoseconds since the epoch.
    At(i64, u32),
}

/// Attributes to change; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner, as shown in the mount.
    pub uid: Option<u32>,
    /// Group, as shown in the mount.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<NewTime>,
    /// Modification time.
    pub mtime: Option<NewTime>,
    /// The open file through which the caller truncates.
    pub handle: Option<u64>,
    /// A change of the size clears setuid and setgid.
    pub kill_setid: bool,
}

fn timespec(time: Option<NewTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(NewTime::At(seconds, nanoseconds)) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

impl Lower {
    /// Reads attributes, through an open file if `handle` names one of the inode.
    ///
    /// # Errors
    /// ESTALE, or the error of `statx(2)`.
    pub(crate) fn stat(&self, id: NodeId, handle: Option<u64>) -> Result<Statx, Errno> {
        let reached = match handle.and_then(|handle| self.files.get_of(id, handle)) {
            Some(file) => InodeFd::File(file),
            None => self.open_path(id)?,
        };
        let stat = rustix::fs::statx(&reached, c"", AtFlags::EMPTY_PATH, STAT)?;
        Ok(self.shown(stat))
    }

    /// Changes attributes; returns the new ones.
    ///
    /// # Errors
    /// The error of `chown(2)`, `chmod(2)`, `truncate(2)` or `utimensat(2)`; EWOULDBLOCK while another process holds a
    /// lease on a file to truncate: the caller must then retry the whole change. Changes made before an error stay.
    pub(crate) fn change(&self, id: NodeId, changes: &Changes, caller: Caller) -> Result<Statx, Errno> {
        self.writable()?;
        let reached = match changes.handle.and_then(|handle| self.files.get_of(id, handle)) {
            Some(file) => InodeFd::File(file),
            None => self.open_path(id)?,
        };
        if changes.uid.is_some() || changes.gid.is_some() {
            // For every caller, the kernel clears setuid, the setgid bit of group-executable files, and
            // `security.capability` here. A setgid bit without group execution stays if the caller has CAP_FSETID.
            let _keep = KeepSetid::of(&reached, caller.keeps_setid())?;
            let uid = changes.uid.map(|uid| Uid::from_raw(self.ids.users.store(uid)));
            let gid = changes.gid.map(|gid| Gid::from_raw(self.ids.groups.store(gid)));
            rustix::fs::chownat(&reached, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = changes.mode {
            // The client has already cleared the setgid bit if the caller may not set it.
            let _keep = KeepSetid::when(mode & 0o2000 != 0)?;
            chmod(&reached, mode & 0o7777)?;
        }
        if let Some(size) = changes.size {
            self.truncate(id, &reached, size, changes.kill_setid, caller)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.atime),
                last_modification: timespec(changes.mtime),
            };
            rustix::fs::utimensat(&reached, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        let stat = rustix::fs::statx(&reached, c"", AtFlags::EMPTY_PATH, STAT)?;
        Ok(self.shown(stat))
    }

    fn truncate(
        &self,
        id: NodeId,
        reached: &InodeFd,
        size: u64,
        kill_setid: bool,
        caller: Caller,
    ) -> Result<(), Errno> {
        let _keep = KeepSetid::of(reached, !kill_setid)?;
        let _member = kill_setid.then(|| self.as_member(reached, caller)).transpose()?;
        if let InodeFd::File(file) = reached
            && file.writable
        {
            return rustix::fs::ftruncate(file, size);
        }
        if let Some(file) = self.files.writable(id) {
            return rustix::fs::ftruncate(&*file, size);
        }
        rustix::fs::ftruncate(self.reopen(id, OFlags::WRONLY | OFlags::NONBLOCK)?, size)
    }

    /// Returns the usage of the file system that contains an inode.
    ///
    /// # Errors
    /// ESTALE, or the error of `fstatfs(2)`.
    pub(crate) fn statvfs(&self, id: NodeId) -> Result<StatVfs, Errno> {
        rustix::fs::fstatvfs(self.open_path(id)?)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if the inode is not a symbolic link.
    pub(crate) fn readlink(&self, id: NodeId) -> Result<Vec<u8>, Errno> {
        match rustix::fs::readlinkat(self.open_path(id)?, c"", Vec::with_capacity(256)) {
            // The kernel returns ENOENT for an empty path if the descriptor is not a symbolic link.
            Err(Errno::NOENT) => Err(Errno::INVAL),
            result => Ok(result?.into_bytes()),
        }
    }
}

fn chmod(reached: &InodeFd, mode: u32) -> Result<(), Errno> {
    let path = ProcPath::new(reached);
    rustix::fs::chmodat(CWD, path.as_cstr(), Mode::from_raw_mode(mode), AtFlags::empty())
}
