//! Changes of inodes, as the kernel asks for them.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Attributes, Fallocate, Inode, Kind, SetMode, Time};
use shunt_fuse::{Errno, SetAttributes, SetTime, Timestamp};

use crate::Ext4;

/// What lets a program act with the rights of its owner.
const CAPABILITY: &[u8] = b"security.capability";

const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o010;

pub(crate) fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn new_time(set: SetTime) -> Time {
    time(match set {
        SetTime::Now => Timestamp::now(),
        SetTime::At(at) => at,
    })
}

/// The bits that are left once somebody else wrote or the owner changed: setgid without the right of the group to execute
/// is a mark for locks, and stays.
fn without_setid(permissions: u16) -> u16 {
    let setgid = if permissions & GROUP_EXECUTES != 0 { SETGID } else { 0 };
    permissions & !SETUID & !setgid
}

/// What the flags of an inode allow.
///
/// # Errors
/// EPERM for what is immutable; and for what may only be appended to, unless both times are set to now.
fn may_change(inode: &Inode, set: &SetAttributes) -> Result<(), Errno> {
    if !inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Ok(());
    }
    let times_only = set.mode.is_none() && set.uid.is_none() && set.gid.is_none() && set.size.is_none();
    // A write-back cache writes back the times of writes before the flag was set. It names a handle; `utimensat(2)` does not.
    let written_back = set.atime.is_none() && set.ctime.is_some() && set.handle.is_some();
    // It also gives the time for "now", which is that of the change of the inode then.
    let is_now = |set_time: Option<SetTime>| match set_time {
        Some(SetTime::Now) => true,
        Some(SetTime::At(at)) => Some(at) == set.ctime,
        None => false,
    };
    // `chown` to the owner that it has, or a write past the daemon to a setuid file.
    let marked = set.atime.is_none() && set.mtime.is_none();
    let touched = is_now(set.atime) && is_now(set.mtime);
    let may_grow = !inode.flags.contains(InodeFlags::IMMUTABLE);
    if times_only && (written_back || may_grow && (touched || marked)) { Ok(()) } else { Err(Errno::PERM) }
}

/// Whether the flags of an inode allow `fallocate(2)` through a descriptor that was opened before they were set.
pub(crate) fn may_allocate(inode: &Inode, what: Fallocate) -> Result<(), Errno> {
    let only_adds = matches!(what, Fallocate::Allocate | Fallocate::KeepSize);
    let immutable = inode.flags.contains(InodeFlags::IMMUTABLE);
    let append_only = inode.flags.contains(InodeFlags::APPEND);
    if immutable || append_only && !only_adds { Err(Errno::PERM) } else { Ok(()) }
}

/// What `fallocate(2)` means by its flags.
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
    /// `chmod`, `chown`, `truncate`, `utimens`.
    pub(crate) fn change(&self, inode: &Inode, set: &SetAttributes) -> Result<Inode, Errno> {
        may_change(inode, set)?;
        if let Some(size) = set.size {
            self.told(match &self.writing {
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
            self.drop_read(inode.number);
        }
        if let Some(writing) = self.writing.as_ref().filter(|_| set.mtime.is_some()) {
            self.told(writing.time_was_set(inode.number))?;
        }
        let changed = self.told(self.filesystem.set_attributes(inode.number, &change))?;
        Ok(self.as_read(changed))
    }

    /// What a write by somebody without the rights of the owner ends.
    pub(crate) fn drop_privileges(&self, inode: &Inode) -> Result<(), Errno> {
        self.drop_capability(inode)?;
        let permissions = without_setid(inode.permissions);
        if permissions != inode.permissions {
            let change = Attributes { permissions: Some(permissions), ..Attributes::default() };
            self.told(self.filesystem.set_attributes(inode.number, &change))?;
        }
        Ok(())
    }

    /// An ACL was set by somebody who is not in the group.
    pub(crate) fn drop_setgid(&self, inode: &Inode) -> Result<(), Errno> {
        let permissions = Some(inode.permissions & !SETGID);
        let change = Attributes { permissions, ..Attributes::default() };
        self.told(self.filesystem.set_attributes(inode.number, &change)).map(drop)
    }

    /// `chattr`. The kernel has checked who asks.
    pub(crate) fn set_flags(&self, inode: &Inode, flags: InodeFlags) -> Result<(), Errno> {
        let change = Attributes { flags: Some(flags), ..Attributes::default() };
        self.told(self.filesystem.set_attributes(inode.number, &change)).map(drop)
    }

    fn drop_capability(&self, inode: &Inode) -> Result<(), Errno> {
        match self.filesystem.remove_xattr(inode.number, CAPABILITY) {
            Ok(_) | Err(shunt_ext4::Error::NoAttribute) => Ok(()),
            Err(error) => self.told(Err(error)),
        }
    }

    /// Runs `change` again once what is about to be freed is, where it finds no space.
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
        self.told(result)
    }
}

/// How `setxattr(2)` is meant.
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
