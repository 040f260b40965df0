//! Errors of mounting and unmounting. Each message is one line that ends with the remedy.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::MountMethod;

/// An error of mounting, of unmounting, or of examining a mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE, or its module is not loaded.
    #[error("cannot open /dev/fuse: {0}: load the kernel module with `modprobe fuse`")]
    NoDevice(io::Error),

    /// `/dev/fuse` exists but this user may not open it. `fusermount3` opens it as its caller, too.
    #[error(
        "cannot open /dev/fuse: permission denied: run as root, or let users in with `chmod 666 /dev/fuse`"
    )]
    DeviceDenied,

    /// `/dev/fuse` cannot be opened for another reason.
    #[error("cannot open /dev/fuse: {0}")]
    Device(io::Error),

    /// A mount option is invalid in itself or together with the others.
    #[error("mount option `{option}`: {reason}")]
    Option {
        /// The option as the user wrote it.
        option: String,
        /// The mistake and the correct form.
        reason: String,
    },

    /// The mount point does not exist.
    #[error("mount point {} does not exist: create it with `mkdir`", .0.display())]
    Missing(PathBuf),

    /// The mount point cannot be examined.
    #[error("cannot use mount point {}: {error}", .path.display())]
    Unreachable {
        /// The mount point.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },

    /// A directory is to be mounted over a file.
    #[error("mount point {} is not a directory: name an existing directory", .0.display())]
    NotDirectory(PathBuf),

    /// A file is to be mounted over a directory.
    #[error("mount point {} is a directory but the file system's root is a file: name an existing file", .0.display())]
    IsDirectory(PathBuf),

    /// The server of a mount at this path has exited.
    #[error("mount point {path} holds a dead mount (transport endpoint is not connected): remove it with `shunt umount {path}`", path = .0.display())]
    Dead(PathBuf),

    /// A mount call failed.
    #[error("cannot mount by {method}: {step}: {errno}{}", .log.as_ref().map(|l| format!(" ({l})")).unwrap_or_default())]
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
    #[error("not permitted to mount and no fusermount3 found: run as root, or install the package fuse3")]
    NoHelper,

    /// The helper refuses `allow_other`.
    #[error(
        "fusermount3 refuses allow_other: add the line `user_allow_other` to /etc/fuse.conf, or mount without it"
    )]
    AllowOther,

    /// The helper failed.
    #[error("fusermount3 failed for {}: {message}", .path.display())]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// The helper's message, or its exit status.
        message: String,
    },

    /// Nothing is mounted at the path.
    #[error("{} is not a mount point: nothing to do; `shunt list` shows the mounts", .0.display())]
    NotMounted(PathBuf),

    /// The mount at the path is not a FUSE mount.
    #[error("{} is a mount of type {kind}, not FUSE: use umount(8)", .path.display())]
    NotFuse {
        /// The path.
        path: PathBuf,
        /// The type in mountinfo.
        kind: String,
    },

    /// Another mount covers this one.
    #[error("{} is covered by another mount: unmount that one first, see `findmnt {}`", .0.display(), .0.display())]
    Covered(PathBuf),

    /// The mount is in use.
    #[error("{path} is busy: see who uses it with `fuser -vm {path}`, or unmount with --lazy", path = .0.display())]
    Busy(PathBuf),

    /// An unmount failed.
    #[error("cannot unmount {}: {errno}", .path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's errno.
        errno: Errno,
    },

    /// The unmount succeeded but removed another mount that was attached on top of ours at that moment.
    #[error("unmounted another mount that just appeared over {}: unmount again", .0.display())]
    Raced(PathBuf),

    /// The control files of a connection cannot be used.
    #[error("cannot use /sys/fs/fuse/connections/{id}/{file}: {error}{}", connection_hint(.error))]
    Connection {
        /// The id of the connection.
        id: u64,
        /// `abort` or `waiting`.
        file: &'static str,
        /// The cause.
        error: io::Error,
    },

    /// The mount table cannot be read.
    #[error("cannot read {what}: {error}")]
    State {
        /// The file or call.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
}

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
