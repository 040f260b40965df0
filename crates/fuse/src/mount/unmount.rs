//! Unmounting of exactly this mount, and no other that was attached at its path.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{MountError, MountPoint, helper, ident};

/// How to unmount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmount {
    /// Fails while the mount is in use.
    #[default]
    Normal,
    /// Detaches the mount from the tree now; it ends with its last user.
    Lazy,
    /// Aborts the connection, so that pending requests fail, then unmounts if the mount is not in use.
    Force,
}

/// Unmounts the topmost mount at a name in an open directory.
fn under(parent: &OwnedFd, name: &OsStr, flags: UnmountFlags) -> Result<(), Errno> {
    let mut path = OsString::from(format!("/proc/self/fd/{}/", parent.as_raw_fd()));
    path.push(name);
    rustix::mount::unmount(path.as_bytes(), flags | UnmountFlags::NOFOLLOW)
}

/// Unmounts the mount with this id of the mount table at a path, if it is there and not in use. No symbolic link on the way to it
/// is followed: a user who can change a directory above it cannot redirect the unmount to another mount.
///
/// # Errors
///
/// EINVAL where another mount is there, or none; EBUSY; the errors of `openat2(2)`.
pub fn unmount_numbered(number: u64, path: &Path) -> Result<(), Errno> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let strictly = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let parent = openat2(CWD, dir, flags, Mode::empty(), strictly)?;
    match ident::mount_at(&parent, Path::new(name))? {
        top if top.is_root && top.identity.old_id == number => under(&parent, name, UnmountFlags::empty()),
        _ => Err(Errno::INVAL),
    }
}

impl MountPoint {
    /// Unmounts this mount.
    ///
    /// `umount2` goes by path, and a descriptor of the mount itself would make it busy. Therefore the *parent* directory is
    /// opened, the mount on top of the name in it is compared with ours, and that name under that directory is unmounted. A
    /// rename above the mount point does no harm. One race remains: a mount made on top of ours between the comparison and the
    /// call is unmounted instead. That takes a privileged process and a few microseconds, and is reported as
    /// [`MountError::Raced`].
    ///
    /// # Errors
    ///
    /// [`MountError::Busy`], [`MountError::Covered`], [`MountError::NotMounted`], and lack of permission.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        let path = self.path();
        let failed = |errno| MountError::Unmount { path: path.to_owned(), errno };
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(Errno::INVAL));
        };
        let parent = match open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(parent) => parent,
            Err(_) if !self.is_mounted() => return Err(MountError::NotMounted(path.to_owned())),
            Err(errno) => return Err(failed(errno)),
        };
        let top = match ident::mount_at(&parent, Path::new(name)) {
            Err(Errno::IO) => ident::mount_in_table(path),
            top => top.ok(),
        };
        if !top.is_some_and(|top| self.is_same_mount(&top)) {
            return Err(match self.is_mounted() {
                true => MountError::Covered(path.to_owned()),
                false => MountError::NotMounted(path.to_owned()),
            });
        }

        let flags = match how {
            Unmount::Normal => UnmountFlags::empty(),
            Unmount::Lazy => UnmountFlags::DETACH,
            Unmount::Force => UnmountFlags::FORCE,
        };
        let done = match under(&parent, name, flags) {
            // Without /proc, only the path remains.
            Err(Errno::NOENT) if !Path::new("/proc/self/fd").exists() => {
                rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW)
            }
            done => done,
        };
        match done {
            Ok(()) => {}
            Err(Errno::PERM) => {
                if how == Unmount::Force {
                    self.abort()?;
                }
                helper::unmount(path, how == Unmount::Lazy)?;
            }
            Err(Errno::INVAL | Errno::NOENT) => return Err(MountError::NotMounted(path.to_owned())),
            Err(Errno::BUSY) => return Err(MountError::Busy(path.to_owned())),
            Err(errno) => return Err(failed(errno)),
        }
        if self.is_mounted() { Err(MountError::Raced(path.to_owned())) } else { Ok(()) }
    }
}
