//! Errors of the engine. Each is shown in one line that states the problem and its location.

use std::io;

/// An invalid value on the image, with its location.
///
/// Shown as `inode 12, block 345: extent depth 9 is more than 5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// Inode affected, if any.
    pub inode: Option<u32>,
    /// Block that contains the value, if known.
    pub block: Option<u64>,
    /// Field, value, and expected value.
    pub what: String,
}

impl Corruption {
    /// Creates a corruption without a location.
    pub fn new(what: impl Into<String>) -> Self {
        Self { inode: None, block: None, what: what.into() }
    }

    /// Sets the inode, unless one is set.
    pub fn inode(mut self, inode: u32) -> Self {
        self.inode.get_or_insert(inode);
        self
    }

    /// Sets the block, unless one is set.
    pub(crate) fn block(mut self, block: u64) -> Self {
        self.block.get_or_insert(block);
        self
    }
}

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.inode, self.block) {
            (Some(inode), Some(block)) => write!(f, "inode {inode}, block {block}: ")?,
            (Some(inode), None) => write!(f, "inode {inode}: ")?,
            (None, Some(block)) => write!(f, "block {block}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.what)
    }
}

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image contains no ext2, ext3 or ext4 file system; carries what it looks like instead.
    #[error("not an ext2, ext3 or ext4 file system: it looks like {0}")]
    NotExt(&'static str),
    /// The image ends before the file system does.
    #[error("the image is truncated: the file system has {expected} bytes, the image only {actual}")]
    Truncated {
        /// Size in bytes, according to the superblock.
        expected: u64,
        /// Size of the image in bytes.
        actual: u64,
    },
    /// The file system has unknown or unsupported features, listed by name.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A value on the image is wrong.
    #[error("the file system is corrupt: {0}; run e2fsck -f")]
    Corrupt(Corruption),
    /// The journal cannot be used.
    #[error("cannot use the journal: {0}")]
    Journal(String),
    /// The name or inode does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The inode is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation is not valid for this kind of inode.
    #[error("invalid argument")]
    Invalid,
    /// Path resolution met too many symbolic links.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The name is longer than 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// The file system was opened read-only, or a failed commit has made it read-only.
    #[error("the file system is read-only")]
    ReadOnly,
    /// No block or inode is free.
    #[error("no space left")]
    NoSpace,
    /// The name or attribute exists already.
    #[error("already exists")]
    Exists,
    /// The inode is a directory, which the operation does not allow.
    #[error("is a directory")]
    IsDirectory,
    /// The directory is not empty.
    #[error("directory not empty")]
    NotEmpty,
    /// The inode has the maximum number of links.
    #[error("too many links")]
    TooManyLinks,
    /// The inode is immutable or append-only.
    #[error("operation not permitted")]
    NotPermitted,
    /// The caller lacks permission.
    #[error("permission denied")]
    Denied,
    /// There is no extended attribute of this name.
    #[error("no such extended attribute")]
    NoAttribute,
    /// The value of an extended attribute is too long.
    #[error("the value of the extended attribute is too long")]
    TooBig,
    /// The name of an extended attribute is too long.
    #[error("the name of the extended attribute is too long")]
    OutOfRange,
    /// The offset exceeds the maximum file size.
    #[error("file too large")]
    TooLarge,
    /// There is no data between the offset and the end of the file.
    #[error("no data between the offset and the end of the file")]
    NoData,
    /// The inode is encrypted and the key is not available.
    #[error("encrypted: the key is not available")]
    NoKey,
    /// The device reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// Returns the errno that a file system reports for this error.
    pub fn errno(&self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Self::NotExt(_) | Self::Journal(_) | Self::Invalid => Errno::INVAL,
            Self::Truncated { .. } | Self::Corrupt(_) => Errno::UCLEAN,
            Self::Unsupported(_) => Errno::OPNOTSUPP,
            Self::NotFound => Errno::NOENT,
            Self::NotDirectory => Errno::NOTDIR,
            Self::Loop => Errno::LOOP,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::ReadOnly => Errno::ROFS,
            Self::NoData => Errno::NXIO,
            Self::NoSpace => Errno::NOSPC,
            Self::Exists => Errno::EXIST,
            Self::IsDirectory => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::TooManyLinks => Errno::MLINK,
            Self::NotPermitted => Errno::PERM,
            Self::Denied => Errno::ACCESS,
            Self::NoAttribute => Errno::NODATA,
            Self::TooBig => Errno::TOOBIG,
            Self::OutOfRange => Errno::RANGE,
            Self::TooLarge => Errno::FBIG,
            Self::NoKey => Errno::NOKEY,
            Self::Io(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
        }
    }

    /// Returns the cause without a remedy, for messages that state their own.
    pub fn cause(&self) -> &dyn std::fmt::Display {
        match self {
            Self::Corrupt(corruption) => corruption,
            other => other,
        }
    }

    /// Sets the inode of a corruption that names none.
    pub(crate) fn of_inode(self, inode: u32) -> Self {
        match self {
            Self::Corrupt(corruption) => Self::Corrupt(corruption.inode(inode)),
            other => other,
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(corruption)
    }
}

/// The result of an operation on an image.
pub type Result<T> = std::result::Result<T, Error>;
