//! Errors of mounting and unmounting. Each message is one line that ends with the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::MountMethod;

/// An error of mounting, of unmounting, or of examining a mount.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE, or its module is not loaded.
    NoDevice(io::Error),

    /// `/dev/fuse` exists but this user may not open it. `fusermount3` opens it as its caller, too.
    DeviceDenied,

    /// `/dev/fuse` cannot be opened for another reason.
    Device(io::Error),

    /// A mount option is invalid in itself or together with the others.
    Option {
        /// The option as the user wrote it.
        option: String,
        /// The mistake and the correct form.
        reason: String,
    },

    /// The mount point does not exist.
    Missing(PathBuf),

    /// The mount point cannot be examined.
    Unreachable {
        /// The mount point.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },

    /// A directory is to be mounted over a file.
    NotDirectory(PathBuf),

    /// A file is to be mounted over a directory.
    IsDirectory(PathBuf),

    /// The server of a mount at this path has exited.
    Dead(PathBuf),

    /// A mount call failed.
    Kernel {
        /// The method that was tried.
        method: MountMethod,
        /// The call and its object.
        step: String,
        /// The kernel's errno.
        errno: Errno,
        /// The kernel's messages in the log of the mount, if any.
        log: Option<String>,
    },

    /// The caller is not privileged, and there is no mount helper.
    NoHelper,

    /// The helper refuses `allow_other`.
    AllowOther,

    /// The helper failed.
    Helper {
        /// The mount point.
        path: PathBuf,
        /// The helper's message, or its exit status.
        message: String,
    },

    /// Nothing is mounted at the path.
    NotMounted(PathBuf),

    /// The mount at the path is not a FUSE mount.
    NotFuse {
        /// The path.
        path: PathBuf,
        /// The type in mountinfo.
        kind: String,
    },

    /// Another mount covers this one.
    Covered(PathBuf),

    /// The mount is in use.
    Busy(PathBuf),

    /// An unmount failed.
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's errno.
        errno: Errno,
    },

    /// The unmount succeeded but removed another mount that was attached on top of ours at that moment.
    Raced(PathBuf),

    /// The control files of a connection cannot be used.
    Connection {
        /// The id of the connection.
        id: u64,
        /// `abort` or `waiting`.
        file: &'static str,
        /// The cause.
        error: io::Error,
    },

    /// The mount table cannot be read.
    State {
        /// The file or call.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice(error) => {
                write!(f, "cannot open /dev/fuse: {error}: load the kernel module with `modprobe fuse`")
            }
            Self::DeviceDenied => f.write_str(
                "cannot open /dev/fuse: permission denied: run as root, or let users in with `chmod 666 /dev/fuse`",
            ),
            Self::Device(error) => write!(f, "cannot open /dev/fuse: {error}"),
            Self::Option { option, reason } => write!(f, "mount option `{option}`: {reason}"),
            Self::Missing(path) => {
                write!(f, "mount point {} does not exist: create it with `mkdir`", path.display())
            }
            Self::Unreachable { path, error } => write!(f, "cannot use mount point {}: {error}", path.display()),
            Self::NotDirectory(path) => {
                write!(f, "mount point {} is not a directory: name an existing directory", path.display())
            }
            Self::IsDirectory(path) => write!(
                f,
                "mount point {} is a directory but the file system's root is a file: name an existing file",
                path.display()
            ),
            Self::Dead(path) => {
                let path = path.display();
                write!(
                    f,
                    "mount point {path} holds a dead mount (transport endpoint is not connected): remove it with `shunt umount {path}`"
                )
            }
            Self::Kernel { method, step, errno, log } => {
                write!(f, "cannot mount by {method}: {step}: {errno}")?;
                log.iter().try_for_each(|log| write!(f, " ({log})"))
            }
            Self::NoHelper => f.write_str(
                "not permitted to mount and no fusermount3 found: run as root, or install the package fuse3",
            ),
            Self::AllowOther => f.write_str(
                "fusermount3 refuses allow_other: add the line `user_allow_other` to /etc/fuse.conf, or mount without it",
            ),
            Self::Helper { path, message } => write!(f, "fusermount3 failed for {}: {message}", path.display()),
            Self::NotMounted(path) => {
                write!(f, "{} is not a mount point: nothing to do; `shunt list` shows the mounts", path.display())
            }
            Self::NotFuse { path, kind } => {
                write!(f, "{} is a mount of type {kind}, not FUSE: use umount(8)", path.display())
            }
            Self::Covered(path) => {
                let path = path.display();
                write!(f, "{path} is covered by another mount: unmount that one first, see `findmnt {path}`")
            }
            Self::Busy(path) => {
                let path = path.display();
                write!(f, "{path} is busy: see who uses it with `fuser -vm {path}`, or unmount with --lazy")
            }
            Self::Unmount { path, errno } => write!(f, "cannot unmount {}: {errno}", path.display()),
            Self::Raced(path) => {
                write!(f, "unmounted another mount that just appeared over {}: unmount again", path.display())
            }
            Self::Connection { id, file, error } => {
                let hint = connection_hint(error);
                write!(f, "cannot use /sys/fs/fuse/connections/{id}/{file}: {error}{hint}")
            }
            Self::State { what, error } => write!(f, "cannot read {what}: {error}"),
        }
    }
}

impl std::error::Error for MountError {}

fn connection_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": permitted only to root and the user who mounted",
        io::ErrorKind::NotFound => {
            ": the connection has ended, or fusectl is not mounted: run `mount -t fusectl none /sys/fs/fuse/connections`"
        }
        _ => "",
    }
}

impl MountError {
    pub(super) fn kernel(method: MountMethod, step: impl Into<String>, errno: Errno) -> Self {
        MountError::Kernel { method, step: step.into(), errno, log: None }
    }

    pub(super) fn option(option: impl Into<String>, reason: impl Into<String>) -> Self {
        MountError::Option { option: option.into(), reason: reason.into() }
    }

    /// Reports whether the kernel, or a sandbox around us, does not have the system call at all.
    pub(super) fn is_missing_call(&self) -> bool {
        matches!(self, MountError::Kernel { errno: Errno::NOSYS, .. })
    }

    /// Reports whether the caller lacks a privilege, which another method may not need.
    pub(super) fn is_permission(&self) -> bool {
        matches!(self, MountError::Kernel { errno: Errno::PERM | Errno::ACCESS, .. })
    }
}
