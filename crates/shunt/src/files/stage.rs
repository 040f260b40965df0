//! A private directory for creating objects that can be opened only by name.
//!
//! A symbolic link, a device, a pipe or a socket is created by name and opened afterwards. Users who can write to the directory
//! could exchange it in between; in a directory of mode 0700 that belongs to the caller no other process can.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dev, FileType};

use super::{PRIVATE, make_directory, open_path, temporary_name};

/// A temporary directory with mode 0700 for one object. Dropping it removes it.
#[derive(Debug)]
pub struct Stage<'a> {
    parent: BorrowedFd<'a>,
    name: CString,
    directory: OwnedFd,
}

impl<'a> Stage<'a> {
    /// The name of the object in the directory.
    pub const NEW: &'static CStr = c"new";

    /// Creates one inside the directory that the object will be published in.
    pub fn new(parent: BorrowedFd<'a>) -> io::Result<Self> {
        let name = temporary_name();
        let directory = make_directory(parent, &name)?;
        Ok(Self { parent, name, directory })
    }

    /// The private directory. The object is created in it as [`Stage::NEW`].
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Moves the object to its name, replacing any object of that name.
    pub fn replace(self, name: &CStr) -> rustix::io::Result<()> {
        rustix::fs::renameat(&self.directory, Self::NEW, self.parent, name)
    }

    /// Links the object to its name. Fails with `EXIST` if the name exists.
    pub fn publish(self, name: &CStr) -> rustix::io::Result<()> {
        rustix::fs::linkat(&self.directory, Self::NEW, self.parent, name, AtFlags::empty())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.directory, Self::NEW, AtFlags::empty());
        let _ = rustix::fs::unlinkat(self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Makes a symbolic link in a directory that no other user can write to, and opens it with `O_PATH`.
pub fn make_symlink(private: impl AsFd, name: &CStr, target: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::symlinkat(target, &private, name)?;
    open_path(private, name)
}

/// Makes a device, a pipe or a socket in a directory that no other user can write to, and opens it with `O_PATH`.
pub fn make_node(
    private: impl AsFd,
    name: &CStr,
    kind: FileType,
    device: Dev,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mknodat(&private, name, kind, PRIVATE, device)?;
    open_path(private, name)
}
