//! Errors of opening a replica and of operations on it.

use std::io;
use std::path::PathBuf;

use rusqlite::ffi;
use rustix::io::Errno;

/// The reasons why a replica cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// Its directory cannot be used.
    #[error("cannot use {}: {error}", path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Another process has it open.
    #[error("{} is in use: it is mounted already", .0.display())]
    Busy(PathBuf),
    /// It was created by a newer version.
    #[error("the replica has format {found}, this version supports up to {known}: use a newer version")]
    Format {
        /// The format of the replica.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// It belongs to another volume or node.
    #[error("the replica belongs to {property} {found:?}, not {requested:?}: give another --cache directory")]
    Mismatch {
        /// The property that differs: the volume or the node.
        property: &'static str,
        /// The identity of the replica.
        found: String,
        /// The identity that was requested.
        requested: String,
    },
    /// An error of its database.
    #[error("cannot access the cache database: {0}")]
    Database(#[from] rusqlite::Error),
}

/// The reason why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpError {
    /// The error for the caller.
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

/// Converts an error of the cache's file system to an error number.
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
        tracing::error!(
            "operation on the cache database failed: {error}; check the disk of the \
            cache directory"
        );
        // On a file system without preallocation, a full disk prevents growing the WAL index; hardly anything else does.
        let index = error.sqlite_error().map(|error| error.extended_code) == Some(ffi::SQLITE_IOERR_SHMSIZE);
        let is_full = index || error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        Self { errno: if is_full { Errno::NOSPC } else { Errno::IO }, database: true }
    }
}

impl From<postcard::Error> for OpError {
    fn from(error: postcard::Error) -> Self {
        tracing::error!(
            "cannot decode a value in the cache database: {error}; the database is \
            damaged: move the cache directory away and mount again"
        );
        Self { errno: Errno::IO, database: true }
    }
}
