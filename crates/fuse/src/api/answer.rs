//! Return values of handlers. The framework turns each one into exactly one reply, so a reply can be neither forgotten nor sent
//! twice.

use std::time::Duration;

use shunt_fuse_abi as abi;
use shunt_fuse_abi::OpenOutFlags;

use super::Attributes;
use crate::id::{FileHandle, NodeId};
use crate::passthrough::Backing;

/// The time for which the kernel may cache a name or attributes (`entry_valid`, `attr_valid`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Duration);

impl Expiry {
    /// Not cached: the kernel asks again for each use.
    pub const NEVER_CACHED: Expiry = Expiry(Duration::ZERO);
    /// Cached until the server invalidates it.
    pub const FOREVER: Expiry = Expiry(Duration::from_secs(u32::MAX as u64));

    /// Cached for `time`.
    pub const fn after(time: Duration) -> Self {
        Self(time)
    }

    /// Returns the cache time.
    pub const fn time(self) -> Duration {
        self.0
    }

    pub(crate) fn wire(self) -> (u64, u32) {
        (self.0.as_secs(), self.0.subsec_nanos())
    }
}

/// The reply to an operation that finds or makes a name: the inode behind the name, and the cache times of both.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The inode's id. Each `Entry` that reaches the kernel counts as one lookup until FORGET.
    pub node: NodeId,
    /// Distinguishes reuses of one `node`; only file handles (NFS) see it.
    pub generation: u64,
    /// The attributes that `stat` shows.
    pub attributes: Attributes,
    /// Cache time of the name.
    pub entry_expiry: Expiry,
    /// Cache time of the attributes.
    pub attributes_expiry: Expiry,
}

impl Entry {
    /// Makes an entry whose name and attributes share one cache time.
    pub fn new(node: NodeId, attributes: Attributes, expiry: Expiry) -> Self {
        Self { node, generation: 0, attributes, entry_expiry: expiry, attributes_expiry: expiry }
    }

    /// A negative entry: the name does not exist, and the kernel caches that for `expiry`.
    ///
    /// `Err(Errno::NOENT)` reports a missing name too, and the kernel does not cache it.
    pub fn absent(expiry: Expiry) -> Self {
        Self::new(NodeId(0), Attributes::default(), expiry)
    }

    pub(crate) fn wire(&self) -> abi::EntryOut {
        let (entry_valid, entry_valid_nsec) = self.entry_expiry.wire();
        let (attr_valid, attr_valid_nsec) = self.attributes_expiry.wire();
        abi::EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attributes.wire(),
        }
    }
}

/// The I/O mode of an open file.
#[derive(Debug, Clone)]
pub enum Serve {
    /// Buffered I/O: the kernel's page cache serves the file, and fills itself by `read`.
    Cached,
    /// Direct I/O: every read and write is a request to the server, and nothing is cached.
    Direct,
    /// Passthrough: the kernel reads and writes the backing file itself, and the server sees neither.
    Passthrough(Backing),
}

/// An open file or directory.
///
/// The kernel allows one I/O mode per inode at a time: passthrough or not. The framework keeps that rule by serving an open that
/// asks for another mode in the mode of the opens that exist.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The handle that later requests on this open file carry.
    pub handle: FileHandle,
    /// The I/O mode.
    pub serve: Serve,
    pub(crate) flags: OpenOutFlags,
    pub(crate) watched: bool,
    pub(crate) joins: bool,
}

impl Opened {
    /// Opens the file for buffered I/O; the kernel drops pages that an earlier open left in the cache.
    pub fn cached(handle: FileHandle) -> Self {
        let flags = OpenOutFlags::empty();
        Self { handle, serve: Serve::Cached, flags, watched: false, joins: false }
    }

    /// Opens the file for direct I/O.
    pub fn direct(handle: FileHandle) -> Self {
        Self { serve: Serve::Direct, ..Self::cached(handle) }
    }

    /// Opens the file for passthrough to `backing`.
    pub fn passthrough(handle: FileHandle, backing: Backing) -> Self {
        Self { serve: Serve::Passthrough(backing), ..Self::cached(handle) }
    }

    /// Makes the server see all reads and writes through this open, regardless of the mode of other opens: where they are passed
    /// through, this one uses direct I/O. A mapping of it still maps the backing file.
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Lets a [direct](Self::direct) open be passed through where other opens of the file are: it then reads their backing file.
    pub fn joining(mut self) -> Self {
        self.joins = true;
        self
    }

    /// Keeps the pages (or the listing) that an earlier open left in the cache.
    pub fn keep_cache(mut self) -> Self {
        self.flags |= OpenOutFlags::KEEP_CACHE;
        self
    }

    /// Lets the kernel cache the listing of this directory.
    pub fn cache_listing(mut self) -> Self {
        self.flags |= OpenOutFlags::CACHE_DIR;
        self
    }

    /// Suppresses the FLUSH at close. Ignored where the server keeps POSIX locks (FLUSH releases them) or writes are cached.
    pub fn no_flush(mut self) -> Self {
        self.flags |= OpenOutFlags::NOFLUSH;
        self
    }

    /// Marks the file as not seekable.
    pub fn nonseekable(mut self) -> Self {
        self.flags |= OpenOutFlags::NONSEEKABLE;
        self
    }

    /// Marks the file as a stream, which has no file position.
    pub fn stream(mut self) -> Self {
        self.flags |= OpenOutFlags::STREAM;
        self
    }

    /// Allows concurrent direct writes to the file.
    pub fn parallel_direct_writes(mut self) -> Self {
        self.flags |= OpenOutFlags::PARALLEL_DIRECT_WRITES;
        self
    }

    /// Lets the data of reads and writes stay in the kernel: it moves between the pages of the caller and the file of
    /// [`Data::File`](crate::Data::File) or [`WriteData::write_to`](crate::WriteData::write_to), and the server never sees it.
    /// Use it for files whose requests are served that way. Replies in memory and
    /// [`WriteData::into_bytes`](crate::WriteData::into_bytes) remain correct, and become slower.
    ///
    /// The thread that received the request moves the data, with its own credentials. A handler must therefore not block it
    /// until another thread has called `write_to`; it may await that.
    ///
    /// Ignored where it is [not available](crate::RingBuffers::ZeroCopy), and for files opened with
    /// O_DIRECT or for direct I/O: the kernel does not wait for a transfer into the caller's memory when the connection is aborted.
    pub fn zero_copy(mut self) -> Self {
        self.flags |= OpenOutFlags::IO_URING_ZERO_COPY;
        self
    }
}

/// The reply to `create` and `tmpfile`, which make and open a file in one step.
#[derive(Debug, Clone)]
pub struct Created {
    /// The new name.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

/// The reply to `getxattr` and `listxattr`: a size or the bytes.
#[derive(Debug, Clone)]
pub enum XattrReply {
    /// The size of the value or list, for a caller that passed a `size` of 0.
    Size(u32),
    /// The value, or the list of names, each terminated by a NUL.
    Bytes(Vec<u8>),
}

impl XattrReply {
    /// Makes the reply to a request for `size` bytes (0: for the length only) from `value`; ERANGE where `value` is longer.
    pub fn fit(value: Vec<u8>, size: u32) -> Result<Self, crate::Errno> {
        match size as usize {
            0 => Ok(Self::Size(value.len().try_into().map_err(|_| crate::Errno::TOOBIG)?)),
            room if room < value.len() => Err(crate::Errno::RANGE),
            _ => Ok(Self::Bytes(value)),
        }
    }
}

/// File system statistics, as `statfs(2)` returns them.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatFs {
    /// Size of the file system, in units of `frsize`.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for unprivileged users.
    pub bavail: u64,
    /// Number of inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred size of I/O in bytes.
    pub bsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
    /// Size of a block in bytes.
    pub frsize: u32,
}

/// The reply to `statx`.
#[derive(Debug, Clone, Copy)]
pub struct StatxReply {
    /// The attributes.
    pub attributes: Attributes,
    /// Cache time of the attributes.
    pub expiry: Expiry,
}

/// The reply to `ioctl`.
#[derive(Debug, Clone, Default)]
pub struct IoctlReply {
    /// The return value of `ioctl(2)`.
    pub result: i32,
    /// Bytes for the caller's buffer; at most `out_size` of the request.
    pub data: Vec<u8>,
}
