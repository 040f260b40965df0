//! Making files in directories that other users can write to.
//!
//! A user who can write to a directory can exchange any name in it between two system calls. Commands that run as root
//! therefore resolve a path once ([`open_parent`]), create and finish files through descriptors ([`NewFile`], [`Stage`],
//! [`Attributes`]), and enter directories through descriptors. No later step follows a path. `clippy.toml` of this crate
//! forbids the calls that set attributes by path.

mod attributes;
mod new_file;
mod stage;
mod walk;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags};

pub use attributes::{Attributes, xattrs};
pub use new_file::NewFile;
pub use stage::{Stage, make_node, make_symlink};
pub use walk::open_parent;

/// The mode of an unfinished file or special file.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Creates a regular file for writing. Fails with `EXIST` if the name exists, a symbolic link included.
pub fn make_file(parent: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, PRIVATE)
}

/// Opens a directory for reading. Fails with `NOTDIR` or `LOOP` if the name is a symbolic link.
pub fn open_directory(parent: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Opens any object with `O_PATH`, a symbolic link itself included.
pub fn open_path(parent: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a directory with mode 0700, and opens it.
///
/// No other user can write to the new directory, but a user who can write to `parent` can still rename it: another directory may
/// have its name when it is opened. So it must be empty, the caller's own, and closed to all others.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], and [`io::ErrorKind::PermissionDenied`] if another directory has taken its place.
pub fn make_directory(parent: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
    let made = open_directory(&parent, name)?;
    let is = rustix::fs::fstat(&made)?;
    let is_ours = is.st_uid == rustix::process::geteuid().as_raw() && is.st_mode & OTHERS == 0;
    if (is_ours || !keeps_owners(&made)?) && names_in(&made)?.is_empty() {
        return Ok(made);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "another process replaced the directory that was just created",
    ))
}

/// Reports whether a new file belongs to the user who creates it. It does not on FAT, or where a server maps root to another
/// user.
fn keeps_owners(directory: &OwnedFd) -> io::Result<bool> {
    let file = NewFile::create(directory.as_fd())?;
    Ok(rustix::fs::fstat(file.file())?.st_uid == rustix::process::geteuid().as_raw())
}

/// The names in a directory, except `.` and `..`. It may be open with `O_PATH`.
pub fn names_in(directory: impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::new(open_directory(directory, c".")?)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// A random name for an unfinished file.
fn temporary_name() -> CString {
    // Hexadecimal digits contain no zero byte.
    CString::new(format!(".shunt-{:016x}", rand::random::<u64>())).unwrap_or_default()
}

/// A path that leads to an open file itself, independent of its current name.
pub fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Opens a regular file for reading, given an `O_PATH` descriptor of it.
pub fn reopen(file: impl AsFd) -> io::Result<std::fs::File> {
    std::fs::File::open(path_of(file))
}
