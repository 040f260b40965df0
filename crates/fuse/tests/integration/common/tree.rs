//! In-memory inodes of the test file system.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use shunt_fuse::{Attributes, Errno, FileType, NodeId, Timestamp};

/// The I/O mode with which an open is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAs {
    Cached,
    KeepCache,
    Direct,
    /// Passed through to `Content::File`; cached where that is refused.
    Passthrough,
    /// Cached; direct if there are opens that are passed through.
    Watched,
    /// Cached, with no FLUSH at close.
    NoFlush,
}

/// The storage of a file's bytes.
#[derive(Clone)]
pub enum Content {
    Bytes(Vec<u8>),
    Static(&'static [u8]),
    File(Arc<OwnedFd>),
}

impl Content {
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Static(bytes) => bytes.len() as u64,
            Self::File(file) => rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64),
        }
    }
}

pub struct Node {
    pub attributes: Attributes,
    pub content: Content,
    /// The reported size is this at least.
    pub least_size: u64,
    pub names: BTreeMap<Vec<u8>, NodeId>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub open: Option<OpenAs>,
    /// The kernel's lookup count.
    pub lookups: u64,
}

pub struct Tree {
    pub nodes: HashMap<NodeId, Node>,
    next: u64,
}

impl Tree {
    pub fn new() -> Self {
        let mut tree = Self { nodes: HashMap::new(), next: 1 };
        tree.make(FileType::Directory.mode() | 0o755, 0, 0);
        tree
    }

    pub fn get(&mut self, node: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&node).ok_or(Errno::STALE)
    }

    /// Makes an inode without a name.
    pub fn make(&mut self, mode: u32, uid: u32, gid: u32) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        let now = Timestamp::now();
        let attributes = Attributes {
            ino: id.0,
            mode,
            nlink: if FileType::from_mode(mode) == Some(FileType::Directory) { 2 } else { 1 },
            uid,
            gid,
            blksize: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(Timestamp::new(1_000_000_007, 123_456_789)),
            ..Attributes::default()
        };
        let node = Node {
            attributes,
            content: Content::Bytes(Vec::new()),
            least_size: 0,
            names: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            open: None,
            lookups: 0,
        };
        self.nodes.insert(id, node);
        id
    }

    pub fn child(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId, Errno> {
        self.get(parent)?.names.get(name).copied().ok_or(Errno::NOENT)
    }

    pub fn attributes(&mut self, node: NodeId) -> Result<Attributes, Errno> {
        let node = self.get(node)?;
        let mut attributes = node.attributes;
        attributes.size = match attributes.file_type() {
            FileType::Symlink => node.target.len() as u64,
            _ => node.content.len().max(node.least_size),
        };
        attributes.blocks = attributes.size.div_ceil(512);
        Ok(attributes)
    }

    /// Drops lookups, and the inode if it has neither names nor lookups left.
    pub fn forget(&mut self, node: NodeId, lookups: u64) {
        if let Some(held) = self.nodes.get_mut(&node) {
            held.lookups = held.lookups.saturating_sub(lookups);
        }
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for Content {
    fn from(bytes: &[u8; N]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}
