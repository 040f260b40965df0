//! What can go wrong, each in one line that says what and where.

use std::io;

/// A place on the image where a value is not what it must be.
///
/// Shown as `inode 12, block 345: extent depth 9 is more than 5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The inode, where one is concerned.
    pub inode: Option<u32>,
    /// The block that holds the value, where it is known.
    pub block: Option<u64>,
    /// Field and value, and what was expected.
    pub what: String,
}

impl Corruption {
    /// A wrong value somewhere.
    pub fn new(what: impl Into<String>) -> Self {
        Self { inode: None, block: None, what: what.into() }
    }

    /// In this inode.
    pub fn inode(mut self, inode: u32) -> Self {
        self.inode.get_or_insert(inode);
        self
    }

    /// In this block.
    pub fn block(mut self, block: u64) -> Self {
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

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image holds no ext2, ext3 or ext4; what it looks like instead.
    #[error("no ext2, ext3 or ext4 file system: it looks like {0}")]
    NotExt(&'static str),
    /// The image ends before the file system does.
    #[error("the image is truncated: the file system has {expected} bytes, the image {actual}")]
    Truncated {
        /// Bytes that the superblock promises.
        expected: u64,
        /// Bytes that are there.
        actual: u64,
    },
    /// Features that this engine does not know, by name.
    #[error("unknown or unsupported features: {0}")]
    Unsupported(String),
    /// A value on the image is wrong.
    #[error("the file system is damaged: {0}")]
    Corrupt(Corruption),
    /// The journal cannot be used as it was given.
    #[error("the journal: {0}")]
    Journal(String),
    /// The name or inode is not there.
    #[error("no such file or directory")]
    NotFound,
    /// The inode is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// Not for this kind of inode.
    #[error("invalid argument")]
    Invalid,
    /// A path leads through more symbolic links than are followed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The name is longer than 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// Opened to be read, or nothing can be changed since a commit failed.
    #[error("the file system is read-only")]
    ReadOnly,
    /// No block or inode is free.
    #[error("no space left")]
    NoSpace,
    /// The name or attribute is there already.
    #[error("it exists already")]
    Exists,
    /// A directory, where none may be.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has names.
    #[error("directory not empty")]
    NotEmpty,
    /// The inode can have no more names.
    #[error("too many links")]
    TooManyLinks,
    /// Immutable, or may only be appended to.
    #[error("operation not permitted")]
    NotPermitted,
    /// Not for who has nothing to do with it.
    #[error("permission denied")]
    Denied,
    /// There is no extended attribute of this name.
    #[error("no such attribute")]
    NoAttribute,
    /// The value of an attribute is too long.
    #[error("the value is too long")]
    TooBig,
    /// The name of an attribute is too long.
    #[error("out of range")]
    OutOfRange,
    /// Past the largest file.
    #[error("file too large")]
    TooLarge,
    /// Nothing is there up to the end of the file.
    #[error("no data up to the end of the file")]
    NoData,
    /// Encrypted, and there is no key.
    #[error("encrypted, and the key is not available")]
    NoKey,
    /// The device.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// The errno that a file system would answer with.
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

    /// Names the inode of a corruption that does not name one yet.
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
