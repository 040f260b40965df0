//! Why a directory cannot be mirrored.

use std::path::PathBuf;

use shunt_fuse::Errno;

/// Why a directory cannot be mirrored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// There is nothing at this path.
    #[error("{}: no such directory; create it, or check the path", .0.display())]
    Missing(PathBuf),
    /// The path leads to something else.
    #[error("{}: not a directory; name the directory that holds it", .0.display())]
    NotADirectory(PathBuf),
    /// The directory, or one above it, cannot be read.
    #[error("{}: permission denied; run as a user who may read it, or as root", .0.display())]
    Permission(PathBuf),
    /// Anything else.
    #[error("{}: cannot be opened: {errno}", path.display())]
    Open {
        /// The source.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl MirrorError {
    pub(crate) fn new(path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing(path),
            Errno::NOTDIR => Self::NotADirectory(path),
            Errno::ACCESS | Errno::PERM => Self::Permission(path),
            errno => Self::Open { path, errno },
        }
    }
}
