//! What can go wrong.

use std::io;
use std::path::PathBuf;

use rusqlite::ffi;
use rustix::io::Errno;

/// Why a replica cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// Its directory cannot be used.
    #[error("cannot use {}: {error}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Somebody has it open.
    #[error("{} is in use: it is mounted already", .0.display())]
    Busy(PathBuf),
    /// It was made by a newer version.
    #[error("the replica has format {found}, and this version knows {known}: use a newer version")]
    Format {
        /// What it has.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// It belongs to another volume or node.
    #[error("the replica is {what} {found:?}, not {wanted:?}: give another --cache directory")]
    Other {
        /// Of which kind.
        what: &'static str,
        /// What it is.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// Its database.
    #[error("the replica's database: {0}")]
    Database(#[from] rusqlite::Error),
}

/// Why an operation was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpError {
    /// What a caller is told.
    pub(crate) errno: Errno,
    /// The database failed: it may hold half of a change.
    pub(crate) database: bool,
}

impl OpError {
    pub(crate) const fn new(errno: Errno) -> Self {
        Self { errno, database: false }
    }
}

pub(crate) type Result<T, E = OpError> = std::result::Result<T, E>;

impl From<Errno> for OpError {
    fn from(errno: Errno) -> Self {
        Self::new(errno)
    }
}

/// What a caller is told of an error of the cache's file system.
pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl From<io::Error> for OpError {
    fn from(error: io::Error) -> Self {
        Self::new(errno(error))
    }
}

impl From<rusqlite::Error> for OpError {
    fn from(error: rusqlite::Error) -> Self {
        tracing::error!("the replica's database: {error}");
        // A file system that cannot keep room has none for the index of the log: hardly anything else fails there.
        let index = error.sqlite_error().map(|error| error.extended_code) == Some(ffi::SQLITE_IOERR_SHMSIZE);
        let is_full = index || error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        Self { errno: if is_full { Errno::NOSPC } else { Errno::IO }, database: true }
    }
}

impl From<postcard::Error> for OpError {
    fn from(error: postcard::Error) -> Self {
        tracing::error!("the replica's database holds what makes no sense: {error}");
        Self { errno: Errno::IO, database: true }
    }
}
