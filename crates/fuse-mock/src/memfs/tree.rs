//! The inodes of a [`MemFs`](super::MemFs): directories, contents, link counts and lifetimes.

use std::collections::{BTreeMap, HashMap};

use shunt_fuse::{Attributes, Errno, FileType, RenameFlags, SetAttributes, SetTime, Timestamp};

pub(super) const ROOT: u64 = 1;
const NAME_MAX: usize = 255;
/// First position for names of a directory; the positions below are those of `.` and `..`.
const FIRST_POSITION: u64 = 3;

/// The limits of the file system.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of inodes.
    pub nodes: usize,
    /// Maximum size of one file in bytes.
    pub file: u64,
    /// Maximum total size of all files in bytes.
    pub total: u64,
    /// Maximum total size of the extended attributes of one inode, names and values, in bytes.
    pub xattrs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { nodes: 100_000, file: 16 << 20, total: 256 << 20, xattrs: 64 << 10 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) parent: u64,
    names: HashMap<Vec<u8>, u64>,
    /// By position, which a name keeps for its lifetime: a concurrent listing neither repeats nor skips.
    listing: BTreeMap<u64, Vec<u8>>,
    next: u64,
    children: HashMap<Vec<u8>, u64>,
}

#[derive(Debug)]
pub(super) enum Kind {
    File(Vec<u8>),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) lookups: u64,
    pub(super) opens: u64,
}

/// All inodes.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: HashMap<u64, Node>,
    next: u64,
    pub(super) bytes: u64,
    pub(super) limits: Limits,
    /// Number of lookups forgotten in excess.
    pub(super) excess_forgets: u64,
}

impl Directory {
    fn insert(&mut self, name: &[u8], id: u64) {
        self.next = self.next.max(FIRST_POSITION);
        self.listing.insert(self.next, name.to_vec());
        self.names.insert(name.to_vec(), self.next);
        self.children.insert(name.to_vec(), id);
        self.next += 1;
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(position) = self.names.remove(name) {
            self.listing.remove(&position);
        }
        self.children.remove(name);
    }

    pub(super) fn child(&self, name: &[u8]) -> Option<u64> {
        self.children.get(name).copied()
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names after a position: name, position, inode.
    pub(super) fn from(&self, position: u64) -> impl Iterator<Item = (&[u8], u64, u64)> {
        let behind = self.listing.range(position.saturating_add(1)..);
        behind.filter_map(|(&at, name)| Some((name.as_slice(), at, self.child(name)?)))
    }
}

impl Node {
    fn new(id: u64, kind: Kind, mode: u32, rdev: u32, owner: (u32, u32)) -> Self {
        let now = Timestamp::now();
        let nlink = if matches!(kind, Kind::Directory(_)) { 2 } else { 1 };
        let attributes = Attributes {
            ino: id,
            mode,
            nlink,
            uid: owner.0,
            gid: owner.1,
            rdev,
            blksize: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            ..Attributes::default()
        };
        Self { kind, attributes, xattrs: BTreeMap::new(), lookups: 0, opens: 0 }
    }

    pub(super) fn stat(&self) -> Attributes {
        let size = match &self.kind {
            Kind::File(bytes) | Kind::Symlink(bytes) => bytes.len() as u64,
            Kind::Directory(directory) => directory.names.len() as u64,
            Kind::Special => 0,
        };
        Attributes { size, blocks: size.div_ceil(512), ..self.attributes }
    }

    fn changed(&mut self) {
        self.attributes.ctime = Timestamp::now();
    }

    fn modified(&mut self) {
        self.changed();
        self.attributes.mtime = self.attributes.ctime;
    }
}

impl Tree {
    pub(super) fn new(limits: Limits) -> Self {
        let root = Kind::Directory(Directory { parent: ROOT, ..Directory::default() });
        let root = Node::new(ROOT, root, libc::S_IFDIR | 0o755, 0, (0, 0));
        Self { nodes: HashMap::from([(ROOT, root)]), next: ROOT + 1, bytes: 0, limits, excess_forgets: 0 }
    }

    pub(super) fn node(&self, id: u64) -> Result<&Node, Errno> {
        self.nodes.get(&id).ok_or(Errno::STALE)
    }

    pub(super) fn node_mut(&mut self, id: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno::STALE)
    }

    pub(super) fn directory(&self, id: u64) -> Result<&Directory, Errno> {
        match &self.node(id)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn directory_mut(&mut self, id: u64) -> Result<&mut Directory, Errno> {
        match &mut self.node_mut(id)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(super) fn child(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        let directory = self.directory(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(directory.parent),
            _ if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG),
            _ => directory.child(name).ok_or(Errno::NOENT),
        }
    }

    /// Checks that a new name may be made here.
    fn vacant(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        match self.child(parent, name) {
            Ok(_) => Err(Errno::EXIST),
            // A removed directory accepts no names.
            Err(Errno::NOENT) if self.node(parent)?.attributes.nlink == 0 => Err(Errno::NOENT),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Makes an inode without a name.
    pub(super) fn make_orphan(
        &mut self,
        kind: Kind,
        mode: u32,
        rdev: u32,
        owner: (u32, u32),
    ) -> Result<u64, Errno> {
        if self.nodes.len() >= self.limits.nodes {
            return Err(Errno::NOSPC);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node::new(id, kind, mode, rdev, owner));
        Ok(id)
    }

    pub(super) fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        kind: Kind,
        mode: u32,
        rdev: u32,
        owner: (u32, u32),
    ) -> Result<u64, Errno> {
        self.vacant(parent, name)?;
        let id = self.make_orphan(kind, mode, rdev, owner)?;
        self.attach(parent, name, id)?;
        Ok(id)
    }

    /// Gives an inode a name. Its link count is correct already.
    fn attach(&mut self, parent: u64, name: &[u8], id: u64) -> Result<(), Errno> {
        self.directory_mut(parent)?.insert(name, id);
        let parent_node = self.node_mut(parent)?;
        parent_node.modified();
        if let Kind::Directory(directory) = &mut self.node_mut(id)?.kind {
            directory.parent = parent;
            self.node_mut(parent)?.attributes.nlink += 1;
        }
        Ok(())
    }

    fn detach(&mut self, parent: u64, name: &[u8], id: u64) -> Result<(), Errno> {
        self.directory_mut(parent)?.remove(name);
        let is_directory = matches!(self.node(id)?.kind, Kind::Directory(_));
        let parent_node = self.node_mut(parent)?;
        parent_node.modified();
        if is_directory {
            parent_node.attributes.nlink -= 1;
        }
        Ok(())
    }

    pub(super) fn link(&mut self, id: u64, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.vacant(parent, name)?;
        let node = self.node_mut(id)?;
        if matches!(node.kind, Kind::Directory(_)) {
            return Err(Errno::PERM);
        }
        node.attributes.nlink += 1;
        node.changed();
        self.attach(parent, name, id)
    }

    pub(super) fn unlink(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let id = self.child(parent, name)?;
        if matches!(self.node(id)?.kind, Kind::Directory(_)) {
            return Err(Errno::ISDIR);
        }
        self.detach(parent, name, id)?;
        self.unname(id)
    }

    pub(super) fn rmdir(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        match name {
            b"." => return Err(Errno::INVAL),
            b".." => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        let id = self.child(parent, name)?;
        if !self.directory(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.detach(parent, name, id)?;
        self.unname(id)
    }

    /// Drops a link of an inode.
    fn unname(&mut self, id: u64) -> Result<(), Errno> {
        let node = self.node_mut(id)?;
        node.changed();
        node.attributes.nlink =
            if matches!(node.kind, Kind::Directory(_)) { 0 } else { node.attributes.nlink - 1 };
        self.reap(id);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if [name, new_name].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(Errno::BUSY);
        }
        let id = self.child(parent, name)?;
        let there = match self.child(new_parent, new_name) {
            Ok(there) => Some(there),
            Err(Errno::NOENT) if self.node(new_parent)?.attributes.nlink > 0 => None,
            Err(errno) => return Err(errno),
        };
        let exchange = flags == RenameFlags::EXCHANGE;
        if !(flags.is_empty() || exchange || flags == RenameFlags::NOREPLACE) {
            return Err(Errno::INVAL);
        }
        if flags == RenameFlags::NOREPLACE && there.is_some() {
            return Err(Errno::EXIST);
        }
        if exchange && there.is_none() {
            return Err(Errno::NOENT);
        }
        if self.is_within(new_parent, id)
            || (exchange && there.is_some_and(|there| self.is_within(parent, there)))
        {
            return Err(Errno::INVAL);
        }
        if there == Some(id) {
            return Ok(());
        }
        if let Some(there) = there.filter(|_| !exchange) {
            match (&self.node(id)?.kind, &self.node(there)?.kind) {
                (Kind::Directory(_), Kind::Directory(old)) if !old.is_empty() => return Err(Errno::NOTEMPTY),
                (Kind::Directory(_), Kind::Directory(_)) => {}
                (Kind::Directory(_), _) => return Err(Errno::NOTDIR),
                (_, Kind::Directory(_)) => return Err(Errno::ISDIR),
                _ => {}
            }
        }
        self.detach(parent, name, id)?;
        if let Some(there) = there {
            self.detach(new_parent, new_name, there)?;
            if exchange {
                self.attach(parent, name, there)?;
            }
        }
        self.attach(new_parent, new_name, id)?;
        self.node_mut(id)?.changed();
        match there {
            Some(there) if !exchange => self.unname(there),
            _ => Ok(()),
        }
    }

    /// Reports whether `inner` is `outer` or is below it.
    fn is_within(&self, mut inner: u64, outer: u64) -> bool {
        loop {
            if inner == outer {
                return true;
            }
            match self.directory(inner) {
                Ok(directory) if directory.parent != inner => inner = directory.parent,
                _ => return false,
            }
        }
    }

    pub(super) fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&id) else {
            self.excess_forgets = self.excess_forgets.saturating_add(lookups);
            return;
        };
        // The kernel holds the root forever.
        if id != ROOT {
            self.excess_forgets = self.excess_forgets.saturating_add(lookups.saturating_sub(node.lookups));
            node.lookups = node.lookups.saturating_sub(lookups);
            self.reap(id);
        }
    }

    /// Frees an inode without links, lookups and opens.
    pub(super) fn reap(&mut self, id: u64) {
        let dead = |node: &Node| node.attributes.nlink == 0 && node.lookups == 0 && node.opens == 0;
        if id == ROOT || !self.nodes.get(&id).is_some_and(dead) {
            return;
        }
        if let Some(Kind::File(bytes)) = self.nodes.remove(&id).map(|node| node.kind) {
            self.bytes -= bytes.len() as u64;
        }
    }

    pub(super) fn resize(&mut self, id: u64, size: u64) -> Result<(), Errno> {
        let (limits, total) = (self.limits, self.bytes);
        let node = self.node_mut(id)?;
        let Kind::File(bytes) = &mut node.kind else {
            return Err(if matches!(node.kind, Kind::Directory(_)) { Errno::ISDIR } else { Errno::INVAL });
        };
        let now = bytes.len() as u64;
        if size > limits.file {
            return Err(Errno::FBIG);
        }
        if size > now && total + (size - now) > limits.total {
            return Err(Errno::NOSPC);
        }
        bytes.resize(size as usize, 0);
        node.modified();
        self.bytes = total - now + size;
        Ok(())
    }

    pub(super) fn write(&mut self, id: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        let size = self.node(id)?.stat().size;
        if end > size || !matches!(self.node(id)?.kind, Kind::File(_)) {
            self.resize(id, end.max(size))?;
        }
        let node = self.node_mut(id)?;
        if let Kind::File(bytes) = &mut node.kind {
            bytes[offset as usize..end as usize].copy_from_slice(data);
        }
        node.modified();
        Ok(())
    }

    pub(super) fn set(&mut self, id: u64, set: &SetAttributes) -> Result<Attributes, Errno> {
        if let Some(size) = set.size {
            self.resize(id, size)?;
        }
        let node = self.node_mut(id)?;
        let when = |time: SetTime| match time {
            SetTime::Now => Timestamp::now(),
            SetTime::At(time) => time,
        };
        let now = &mut node.attributes;
        now.mode = set.mode.map_or(now.mode, |mode| now.mode & libc::S_IFMT | mode & 0o7777);
        now.uid = set.uid.unwrap_or(now.uid);
        now.gid = set.gid.unwrap_or(now.gid);
        now.atime = set.atime.map_or(now.atime, when);
        now.mtime = set.mtime.map_or(now.mtime, when);
        if set.kill_suidgid && now.file_type() != FileType::Directory {
            now.mode &= !libc::S_ISUID;
        }
        node.changed();
        node.attributes.ctime = set.ctime.unwrap_or(node.attributes.ctime);
        Ok(node.stat())
    }

    pub(super) fn file_type(&self, id: u64) -> FileType {
        self.nodes.get(&id).map_or(FileType::Regular, |node| node.attributes.file_type())
    }
}
