//! SETATTR: changes of inode attributes, `chattr` flags and the privilege bits that a write clears. The kernel has checked
//! permissions; this module checks inode flags.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Attributes, Fallocate, Inode, Kind, SetMode, Time};
use shunt_fuse::{Errno, SetAttributes, SetTime, Timestamp};

use crate::Ext4;
use crate::killpriv::without_setid;

pub(crate) fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn new_time(set: SetTime) -> Time {
    time(match set {
        SetTime::Now => Timestamp::now(),
        SetTime::At(at) => at,
    })
}

/// Checks whether the flags of an inode permit a change of attributes.
///
/// # Errors
/// EPERM for an immutable inode, and for an append-only one unless both times are set to now.
fn may_change(inode: &Inode, set: &SetAttributes) -> Result<(), Errno> {
    if !inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Ok(());
    }
    let times_only = set.mode.is_none() && set.uid.is_none() && set.gid.is_none() && set.size.is_none();
    // The write-back cache sends the times of writes made before the flag was set. It names a handle; `utimensat(2)` does not.
    let written_back = set.atime.is_none() && set.ctime.is_some() && set.handle.is_some();
    // The kernel also sends a time for "now", which then equals the new ctime.
    let is_now = |set_time: Option<SetTime>| match set_time {
        Some(SetTime::Now) => true,
        Some(SetTime::At(at)) => Some(at) == set.ctime,
        None => false,
    };
    // `chown` to the present owner, or a write to a setuid file that bypasses the daemon.
    let marked = set.atime.is_none() && set.mtime.is_none();
    let touched = is_now(set.atime) && is_now(set.mtime);
    let may_grow = !inode.flags.contains(InodeFlags::IMMUTABLE);
    if times_only && (written_back || may_grow && (touched || marked)) { Ok(()) } else { Err(Errno::PERM) }
}

/// Checks whether the flags of an inode permit `fallocate(2)` through a descriptor that was opened before they were set.
pub(crate) fn may_allocate(inode: &Inode, mode: Fallocate) -> Result<(), Errno> {
    let only_adds = matches!(mode, Fallocate::Allocate | Fallocate::KeepSize);
    let immutable = inode.flags.contains(InodeFlags::IMMUTABLE);
    let append_only = inode.flags.contains(InodeFlags::APPEND);
    if immutable || append_only && !only_adds { Err(Errno::PERM) } else { Ok(()) }
}

/// Translates the mode flags of `fallocate(2)`.
pub(crate) fn fallocation(mode: u32) -> Result<Fallocate, Errno> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2;
    const COLLAPSE: u32 = 8;
    const ZERO: u32 = 0x10;
    const INSERT: u32 = 0x20;
    const PUNCH: u32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_KEEP: u32 = ZERO | KEEP_SIZE;
    Ok(match mode {
        0 => Fallocate::Allocate,
        KEEP_SIZE => Fallocate::KeepSize,
        PUNCH => Fallocate::Punch,
        ZERO => Fallocate::Zero { keep_size: false },
        ZERO_KEEP => Fallocate::Zero { keep_size: true },
        COLLAPSE => Fallocate::Collapse,
        INSERT => Fallocate::Insert,
        _ => return Err(Errno::OPNOTSUPP),
    })
}

impl Ext4 {
    /// Applies `chmod`, `chown`, `truncate` and `utimens`.
    pub(crate) fn change(&self, inode: &Inode, set: &SetAttributes) -> Result<Inode, Errno> {
        may_change(inode, set)?;
        if let Some(size) = set.size {
            self.to_errno(match &self.writing {
                Some(writing) => writing.truncate(inode.number, size),
                None => self.filesystem.truncate(inode.number, size),
            })?;
        }
        if set.kill_suidgid {
            self.drop_capability(inode)?;
        }
        let permissions = match (set.mode, set.kill_suidgid && inode.kind != Kind::Directory) {
            (Some(mode), _) => Some(mode as u16 & 0o7777),
            (None, true) => Some(without_setid(inode.permissions)).filter(|&new| new != inode.permissions),
            (None, false) => None,
        };
        let change = Attributes {
            permissions,
            uid: set.uid,
            gid: set.gid,
            atime: set.atime.map(new_time),
            mtime: set.mtime.map(new_time),
            ctime: set.ctime.map(time),
            flags: None,
        };
        if set.atime.is_some() {
            self.drop_pending_atime(inode.number);
        }
        if let Some(writing) = self.writing.as_ref().filter(|_| set.mtime.is_some()) {
            self.to_errno(writing.time_was_set(inode.number))?;
        }
        let changed = self.to_errno(self.filesystem.set_attributes(inode.number, &change))?;
        Ok(self.with_pending_atime(changed))
    }

    /// Sets the flags of `chattr`. The kernel has checked the caller.
    pub(crate) fn set_flags(&self, inode: &Inode, flags: InodeFlags) -> Result<(), Errno> {
        let change = Attributes { flags: Some(flags), ..Attributes::default() };
        self.to_errno(self.filesystem.set_attributes(inode.number, &change)).map(drop)
    }

    /// Runs `change`, and once more after the reaper has freed pending inodes if it failed with ENOSPC.
    pub(crate) fn with_space<T>(
        &self,
        mut change: impl FnMut() -> shunt_ext4::Result<T>,
    ) -> Result<T, Errno> {
        let result = match change() {
            Err(shunt_ext4::Error::NoSpace) => {
                if let Some(reaper) = &self.reaper {
                    reaper.catch_up();
                }
                change()
            }
            result => result,
        };
        self.to_errno(result)
    }
}

/// Translates the flags of `setxattr(2)`.
pub(crate) fn set_mode(flags: u32) -> Result<SetMode, Errno> {
    match flags {
        0 => Ok(SetMode::Either),
        1 => Ok(SetMode::Create),
        2 => Ok(SetMode::Replace),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_go() {
        for (before, after) in [(0o6755, 0o755), (0o2745, 0o2745), (0o4711, 0o711), (0o1777, 0o1777)] {
            assert_eq!(without_setid(before), after, "{before:o}");
        }
    }
}
