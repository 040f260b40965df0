//! Errors of opening a source directory.

use std::path::PathBuf;

use shunt_fuse::Errno;

/// The reason why a directory cannot be mirrored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The path does not exist.
    #[error("{}: no such directory; create it, or check the path", .0.display())]
    Missing(PathBuf),
    /// The path is not a directory.
    #[error("{}: not a directory; name the directory that contains it", .0.display())]
    NotADirectory(PathBuf),
    /// Permission to the directory, or to one above it, is denied.
    #[error("{}: permission denied; run as root or as a user who may read it", .0.display())]
    Permission(PathBuf),
    /// Opening the source failed for another reason.
    #[error("{}: cannot open the directory: {errno}", path.display())]
    Open {
        /// The source.
        path: PathBuf,
        /// The errno of the open.
        errno: Errno,
    },
}

impl MirrorError {
    /// Returns the error for an errno of opening `path`.
    pub fn new(path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing(path),
            Errno::NOTDIR => Self::NotADirectory(path),
            Errno::ACCESS | Errno::PERM => Self::Permission(path),
            errno => Self::Open { path, errno },
        }
    }
}
