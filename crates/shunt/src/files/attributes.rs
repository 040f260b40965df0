//! Owner, mode, times and extended attributes of a file, set through a descriptor.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::path_of;

/// Set-user-ID and set-group-ID.
const AS_OWNER: u32 = 0o6000;

/// The attributes to set on a file.
#[derive(Debug)]
pub struct Attributes {
    pub uid: u32,
    pub gid: u32,
    /// The permission bits, with set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    pub times: Timestamps,
}

impl Attributes {
    /// Copies the attributes of another file.
    pub fn of(stat: &Stat) -> Self {
        let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            times: Timestamps {
                last_access: time(stat.st_atime as _, stat.st_atime_nsec as _),
                last_modification: time(stat.st_mtime as _, stat.st_mtime_nsec as _),
            },
        }
    }

    /// Sets them on an open file or directory, or on any other object that is open with `O_PATH`.
    ///
    /// Attributes that only root may set are left out for other users: the owner, with it set-user-ID and set-group-ID, and
    /// extended attributes outside of `user.`.
    ///
    /// The order matters: a change of owner clears bits of the mode and removes file capabilities, an ACL sets bits of the
    /// mode, and each of them moves the times.
    ///
    /// # Errors
    /// The first error. The attributes after it are set all the same.
    pub fn set(&self, to: impl AsFd, xattrs: impl IntoIterator<Item = (CString, Vec<u8>)>) -> io::Result<()> {
        let to = to.as_fd();
        let kind = FileType::from_raw_mode(rustix::fs::fstat(to)?.st_mode);
        let mut first = Ok(());
        let mut note = |done: rustix::io::Result<()>| {
            if first.is_ok() {
                first = done;
            }
        };
        let owned = set_owner(to, self.uid, self.gid);
        if !matches!(owned, Err(Errno::PERM | Errno::ACCESS)) {
            note(owned);
        }
        if kind != FileType::Symlink {
            let is_open = matches!(kind, FileType::RegularFile | FileType::Directory);
            for (name, value) in xattrs {
                match set_xattr(to, is_open, &name, &value) {
                    Err(Errno::PERM) if !name.as_bytes().starts_with(b"user.") => {}
                    set => note(set),
                }
            }
            note(set_mode(to, is_open, mode(self.mode, owned.is_ok())));
        }
        note(set_times(to, &self.times));
        Ok(first?)
    }
}

/// Clears set-user-ID and set-group-ID unless the file has its intended owner: a program must not run as another user.
fn mode(requested: u32, is_owned: bool) -> Mode {
    Mode::from_raw_mode(requested & if is_owned { 0o7777 } else { 0o7777 & !AS_OWNER })
}

#[expect(clippy::disallowed_methods, reason = "the path is empty: the descriptor itself is meant")]
fn set_owner(file: impl AsFd, uid: u32, gid: u32) -> rustix::io::Result<()> {
    // The kernel takes this number as "do not change".
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::INVAL);
    }
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(file, "", uid, gid, AtFlags::EMPTY_PATH)
}

#[expect(clippy::disallowed_methods, reason = "the path is empty: the descriptor itself is meant")]
fn set_times(file: impl AsFd, times: &Timestamps) -> rustix::io::Result<()> {
    rustix::fs::utimensat(file, "", times, AtFlags::EMPTY_PATH)
}

// `fchmod` and `fsetxattr` refuse `O_PATH` descriptors; their files are reached by the path of the descriptor in /proc.

#[expect(clippy::disallowed_methods, reason = "the path is that of a descriptor")]
fn set_mode(file: impl AsFd, is_open: bool, mode: Mode) -> rustix::io::Result<()> {
    if is_open { rustix::fs::fchmod(file, mode) } else { rustix::fs::chmod(path_of(file), mode) }
}

#[expect(clippy::disallowed_methods, reason = "the path is that of a descriptor")]
fn set_xattr(file: impl AsFd, is_open: bool, name: &CString, value: &[u8]) -> rustix::io::Result<()> {
    let flags = XattrFlags::empty();
    if is_open {
        rustix::fs::fsetxattr(file, name, value, flags)
    } else {
        rustix::fs::setxattr(path_of(file), name, value, flags)
    }
}

/// The extended attributes of an open file, also of one that is open with `O_PATH` and is no symbolic link.
pub fn xattrs(file: impl AsFd) -> io::Result<Vec<(CString, Vec<u8>)>> {
    let path = path_of(file);
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::listxattr(&path, &mut names[..])?;
    let mut value = vec![0; 1 << 16];
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::getxattr(&path, name, &mut value[..])?;
        found.push((CString::new(name)?, value[..length].to_vec()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setid_bits_are_dropped_for_another_owner() {
        assert_eq!(mode(0o6755, true).as_raw_mode(), 0o6755);
        assert_eq!(mode(0o6755, false).as_raw_mode(), 0o755);
        assert_eq!(mode(0o1777, false).as_raw_mode(), 0o1777);
    }
}
