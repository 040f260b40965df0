//! Model of a file system in memory.

use std::collections::{BTreeMap, BTreeSet};

use shunt_ext4::{Fallocate, SetMode};

use crate::model::ops::{Kind, Op, RenameMode};

/// Target of a long symbolic link.
pub const LONG: &[u8] = &[b'l'; 300];
/// Target of a short symbolic link.
pub const SHORT: &[u8] = b"short";

/// Kind and content of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeContent {
    Directory(BTreeMap<String, usize>),
    File(Vec<u8>),
    Symlink(&'static [u8]),
    /// Major and minor number; those of a whiteout are 0, 0.
    Device(u32, u32),
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub what: NodeContent,
    pub permissions: u16,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A file system. An operation that returns `None` must fail without changes.
#[derive(Debug, Clone)]
pub struct ModelFs {
    pub nodes: BTreeMap<usize, Node>,
    /// Files held open, the longest held first.
    pub held: Vec<usize>,
    next: usize,
    /// Block size in bytes, and whether files have extents.
    block: u64,
    extents: bool,
}

impl ModelFs {
    pub fn new(block: u64, extents: bool) -> Self {
        let mut state = Self { nodes: BTreeMap::new(), held: Vec::new(), next: 0, block, extents };
        state.node(NodeContent::Directory(BTreeMap::new()), 0o755);
        state
    }

    fn node(&mut self, what: NodeContent, permissions: u16) -> usize {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, Node { what, permissions, xattrs: BTreeMap::new() });
        number
    }

    fn entries(&self, node: usize) -> Option<&BTreeMap<String, usize>> {
        match &self.nodes[&node].what {
            NodeContent::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn find(&self, path: &str) -> Option<usize> {
        path.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(0, |node, part| self.entries(node)?.get(part).copied())
    }

    /// Returns the parent directory and the name of a path.
    fn place<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = self.find(above)?;
        self.entries(directory)?;
        Some((directory, name))
    }

    fn set(&mut self, directory: usize, name: &str, node: Option<usize>) {
        let NodeContent::Directory(entries) =
            &mut self.nodes.get_mut(&directory).expect("the directory exists").what
        else {
            panic!("the node is not a directory")
        };
        match node {
            Some(node) => entries.insert(name.to_owned(), node),
            None => entries.remove(name),
        };
    }

    /// Returns the number of names of each inode.
    pub fn links(&self) -> BTreeMap<usize, usize> {
        let mut links = BTreeMap::new();
        for node in self.nodes.values() {
            if let NodeContent::Directory(entries) = &node.what {
                entries.values().for_each(|node| *links.entry(*node).or_default() += 1);
            }
        }
        links
    }

    /// Removes inodes that have no name and are not held.
    pub fn sweep(&mut self) {
        loop {
            let links = self.links();
            let held: BTreeSet<_> = self.held.iter().copied().collect();
            let before = self.nodes.len();
            self.nodes.retain(|node, _| *node == 0 || links.contains_key(node) || held.contains(node));
            if self.nodes.len() == before {
                return;
            }
        }
    }

    /// Releases held files, as after a close, or a power failure after a sync.
    pub fn free_unlinked(&mut self) {
        self.held.clear();
        self.sweep();
    }

    fn content(&mut self, node: usize) -> Option<&mut Vec<u8>> {
        match &mut self.nodes.get_mut(&node)?.what {
            NodeContent::File(content) => Some(content),
            _ => None,
        }
    }

    fn below(&self, node: usize, above: usize) -> bool {
        node == above || self.entries(above).is_some_and(|e| e.values().any(|child| self.below(node, *child)))
    }

    pub fn apply(&mut self, op: &Op) -> Option<()> {
        match op {
            Op::Make(path, kind) => {
                let (directory, name) = self.place(path)?;
                if self.find(path).is_some() {
                    return None;
                }
                let (what, permissions) = match kind {
                    // Subdirectories inherit the set-group-ID bit.
                    Kind::Directory => {
                        let above = self.nodes[&directory].permissions;
                        (NodeContent::Directory(BTreeMap::new()), 0o755 | above & 0o2000)
                    }
                    Kind::File => (NodeContent::File(Vec::new()), 0o755),
                    Kind::Short => (NodeContent::Symlink(SHORT), 0o777),
                    Kind::Long => (NodeContent::Symlink(LONG), 0o777),
                    Kind::Device => (NodeContent::Device(300, 70_000), 0o755),
                };
                let node = self.node(what, permissions);
                self.set(directory, name, Some(node));
            }
            Op::Link(from, to) => {
                let node = self.find(from)?;
                let (directory, name) = self.place(to)?;
                if self.entries(node).is_some() || self.find(to).is_some() {
                    return None;
                }
                self.set(directory, name, Some(node));
            }
            Op::Unlink(path) => {
                let node = self.find(path)?;
                if self.entries(node).is_some() {
                    return None;
                }
                let (directory, name) = self.place(path)?;
                self.set(directory, name, None);
            }
            Op::Rmdir(path) => {
                if !self.entries(self.find(path)?)?.is_empty() {
                    return None;
                }
                let (directory, name) = self.place(path)?;
                self.set(directory, name, None);
            }
            Op::Rename(from, to, how) => self.rename(from, to, *how)?,
            Op::Write(path, offset, length, byte) => {
                let node = self.find(path)?;
                let content = self.content(node)?;
                let (start, end) = (*offset as usize, *offset as usize + length);
                content.resize(content.len().max(end), 0);
                content[start..end].fill(*byte);
            }
            Op::Truncate(path, size) => {
                let node = self.find(path)?;
                self.content(node)?.resize(*size as usize, 0);
            }
            Op::Fallocate(path, what, offset, length) => {
                let node = self.find(path)?;
                self.fallocate(node, *what, *offset, *length)?;
            }
            Op::SetXattr(path, name, size, mode) => {
                let node = self.find(path)?;
                let node = self.nodes.get_mut(&node)?;
                let user = name.starts_with("user.");
                if user && !matches!(node.what, NodeContent::File(_) | NodeContent::Directory(_)) {
                    return None;
                }
                match (mode, node.xattrs.contains_key(name)) {
                    (SetMode::Create, true) | (SetMode::Replace, false) => return None,
                    _ => node.xattrs.insert(name.clone(), vec![*size as u8; *size]),
                };
            }
            Op::RemoveXattr(path, name) => {
                let node = self.find(path)?;
                self.nodes.get_mut(&node)?.xattrs.remove(name)?;
            }
            Op::Permissions(path, permissions) => {
                let node = self.find(path)?;
                self.nodes.get_mut(&node)?.permissions = *permissions;
            }
            Op::Hold(path) => {
                let node = self.find(path)?;
                self.content(node)?;
                self.held.push(node);
            }
            Op::Nameless => {
                let node = self.node(NodeContent::File(Vec::new()), 0o755);
                self.held.push(node);
            }
            Op::Name(path) => {
                let node = *self.held.first()?;
                let (directory, name) = self.place(path)?;
                if self.find(path).is_some() {
                    return None;
                }
                self.set(directory, name, Some(node));
            }
            Op::Release => {
                if self.held.is_empty() {
                    return None;
                }
                self.held.remove(0);
            }
            Op::Sync | Op::Kill => {}
            Op::Reopen | Op::Crash => self.free_unlinked(),
        }
        self.sweep();
        Some(())
    }

    fn rename(&mut self, from: &str, to: &str, how: RenameMode) -> Option<()> {
        let node = self.find(from)?;
        let ((old_place, old_name), (new_place, new_name)) = (self.place(from)?, self.place(to)?);
        let there = self.find(to);
        if self.below(new_place, node) {
            return None;
        }
        match (how, there) {
            (RenameMode::Keep, Some(_)) | (RenameMode::Exchange, None) => return None,
            (RenameMode::Exchange, Some(there)) => {
                if self.below(old_place, there) {
                    return None;
                }
                self.set(old_place, old_name, Some(there));
                self.set(new_place, new_name, Some(node));
                return Some(());
            }
            // Renaming one link of an inode to another does nothing.
            (_, Some(there)) if there == node => return Some(()),
            (_, Some(there)) => match (self.entries(node), self.entries(there)) {
                (Some(_), Some(entries)) if entries.is_empty() => {}
                (None, None) => {}
                _ => return None,
            },
            (_, None) => {}
        }
        let left = (how == RenameMode::Whiteout).then(|| self.node(NodeContent::Device(0, 0), 0));
        self.set(old_place, old_name, left);
        self.set(new_place, new_name, Some(node));
        Some(())
    }

    fn fallocate(&mut self, node: usize, what: Fallocate, offset: u64, length: u64) -> Option<()> {
        let (block, extents) = (self.block, self.extents);
        let content = self.content(node)?;
        if !extents && what != Fallocate::Punch {
            return None;
        }
        let size = content.len() as u64;
        let (start, end) = (offset as usize, (offset + length) as usize);
        let whole = offset % block == 0 && length % block == 0;
        match what {
            Fallocate::KeepSize => {}
            Fallocate::Allocate => content.resize(content.len().max(end), 0),
            Fallocate::Punch => zero(content, start, end),
            Fallocate::Zero { keep_size } => {
                if !keep_size {
                    content.resize(content.len().max(end), 0);
                }
                zero(content, start, end);
            }
            Fallocate::Collapse if whole && offset + length < size => drop(content.drain(start..end)),
            Fallocate::Insert if whole && offset < size => {
                drop(content.splice(start..start, std::iter::repeat_n(0, length as usize)));
            }
            Fallocate::Collapse | Fallocate::Insert => return None,
        }
        Some(())
    }
}

fn zero(content: &mut [u8], start: usize, end: usize) {
    let end = end.min(content.len());
    if start < end {
        content[start..end].fill(0);
    }
}
