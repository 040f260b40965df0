//! What handlers return. A value returned is a reply sent, so none can be forgotten or sent twice.

use std::time::Duration;

use shunt_fuse_abi as abi;
use shunt_fuse_abi::OpenOutFlags;

use super::Attributes;
use crate::id::{FileHandle, NodeId};
use crate::passthrough::Backing;

/// How long the kernel may use an answer without asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Duration);

impl Expiry {
    /// Ask again every time.
    pub const NEVER_CACHED: Expiry = Expiry(Duration::ZERO);
    /// Never ask again: the server says when something changes.
    pub const FOREVER: Expiry = Expiry(Duration::from_secs(u32::MAX as u64));

    /// Good for this long.
    pub const fn after(time: Duration) -> Self {
        Self(time)
    }

    /// How long.
    pub const fn time(self) -> Duration {
        self.0
    }

    pub(crate) fn wire(self) -> (u64, u32) {
        (self.0.as_secs(), self.0.subsec_nanos())
    }
}

/// A name found (or made): the inode behind it, and how long both may be cached.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The inode's id. Each `Entry` that reaches the kernel counts as one lookup until FORGET.
    pub node: NodeId,
    /// Distinguishes reuses of one `node`; only file handles (NFS) see it.
    pub generation: u64,
    /// What `stat` says.
    pub attributes: Attributes,
    /// How long the name may be cached.
    pub entry_expiry: Expiry,
    /// How long the attributes may be cached.
    pub attributes_expiry: Expiry,
}

impl Entry {
    /// An entry whose name and attributes share one expiry.
    pub fn new(node: NodeId, attributes: Attributes, expiry: Expiry) -> Self {
        Self { node, generation: 0, attributes, entry_expiry: expiry, attributes_expiry: expiry }
    }

    /// The name does not exist, and the kernel may remember that for `expiry`.
    ///
    /// `Err(Errno::NOENT)` says the same without the memory.
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

/// How the data of an open file travels.
#[derive(Debug, Clone)]
pub enum Serve {
    /// Through the kernel's page cache, filled by `read`.
    Cached,
    /// Every read and write comes to the server; nothing is cached.
    Direct,
    /// The kernel reads and writes the backing file itself; the server sees neither.
    Passthrough(Backing),
}

/// An open file or directory.
///
/// The kernel allows one mode per inode while it is open (passthrough, or not). The framework keeps that rule: an
/// open that disagrees with those already there is served as they are.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The mark that later requests on this open file carry.
    pub handle: FileHandle,
    /// How its data travels.
    pub serve: Serve,
    pub(crate) flags: OpenOutFlags,
    pub(crate) watched: bool,
    pub(crate) joins: bool,
}

impl Opened {
    /// Served through the page cache; pages cached by an earlier open are dropped.
    pub fn cached(handle: FileHandle) -> Self {
        let flags = OpenOutFlags::empty();
        Self { handle, serve: Serve::Cached, flags, watched: false, joins: false }
    }

    /// Served by the server at every read and write.
    pub fn direct(handle: FileHandle) -> Self {
        Self { serve: Serve::Direct, ..Self::cached(handle) }
    }

    /// Served by the kernel from `backing`.
    pub fn passthrough(handle: FileHandle, backing: Backing) -> Self {
        Self { serve: Serve::Passthrough(backing), ..Self::cached(handle) }
    }

    /// Have the server see what is read and written through this open, whatever others have: where they are passed
    /// through, this one is served directly. A mapping of it is of the backing file all the same.
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Pass a [direct](Self::direct) open through where others are: what it reads is of their backing file then.
    pub fn joining(mut self) -> Self {
        self.joins = true;
        self
    }

    /// Keep the pages (or the listing) that an earlier open left in the cache.
    pub fn keep_cache(mut self) -> Self {
        self.flags |= OpenOutFlags::KEEP_CACHE;
        self
    }

    /// Let the kernel cache the listing of this directory.
    pub fn cache_listing(mut self) -> Self {
        self.flags |= OpenOutFlags::CACHE_DIR;
        self
    }

    /// Send no FLUSH at close. Ignored where the server keeps POSIX locks (FLUSH ends them) or writes are cached.
    pub fn no_flush(mut self) -> Self {
        self.flags |= OpenOutFlags::NOFLUSH;
        self
    }

    /// The file has no position to seek to.
    pub fn nonseekable(mut self) -> Self {
        self.flags |= OpenOutFlags::NONSEEKABLE;
        self
    }

    /// The file is a stream: it has no position at all.
    pub fn stream(mut self) -> Self {
        self.flags |= OpenOutFlags::STREAM;
        self
    }

    /// Several direct writes to one file may be under way at once.
    pub fn parallel_direct_writes(mut self) -> Self {
        self.flags |= OpenOutFlags::PARALLEL_DIRECT_WRITES;
        self
    }
}

/// A file made and opened in one step.
#[derive(Debug, Clone)]
pub struct Created {
    /// The new name.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

/// The size of an extended attribute or of their list, or the bytes.
#[derive(Debug, Clone)]
pub enum XattrReply {
    /// The caller asked how much room it needs (`size` was 0).
    Size(u32),
    /// The value, or the names each ended by a NUL.
    Bytes(Vec<u8>),
}

impl XattrReply {
    /// Answers a request for `size` bytes (0: only the length is wanted) with `value`; ERANGE where it does not fit.
    pub fn fit(value: Vec<u8>, size: u32) -> Result<Self, crate::Errno> {
        match size as usize {
            0 => Ok(Self::Size(value.len().try_into().map_err(|_| crate::Errno::TOOBIG)?)),
            room if room < value.len() => Err(crate::Errno::RANGE),
            _ => Ok(Self::Bytes(value)),
        }
    }
}

/// What `statfs` tells.
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

/// The answer to `statx`.
#[derive(Debug, Clone, Copy)]
pub struct StatxReply {
    /// The attributes.
    pub attributes: Attributes,
    /// How long they may be cached.
    pub expiry: Expiry,
}

/// The answer to `ioctl`.
#[derive(Debug, Clone, Default)]
pub struct IoctlReply {
    /// What `ioctl(2)` returns.
    pub result: i32,
    /// Bytes for the caller's buffer; at most `out_size` of the request.
    pub data: Vec<u8>,
}
