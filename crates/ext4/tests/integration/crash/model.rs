//! A minimal model of a file system, and the states that a crash may leave of it.

use std::collections::BTreeMap;

use super::ops::Op;

/// A node of the tree. Names of one inode share its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File { content: Vec<u8>, xattr: Option<Vec<u8>> },
    Directory(BTreeMap<String, usize>),
    Symlink(Vec<u8>),
}

/// A state of the whole tree. The root is node 0; numbers are never reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsState {
    pub nodes: BTreeMap<usize, Node>,
    next: usize,
}

/// Test pattern of a write: different bytes for each half kilobyte and each operation.
pub fn pattern(operation: usize, offset: usize) -> u8 {
    let mixed =
        (operation as u32 + 1).wrapping_mul(0x9e37_79b9) ^ (offset as u32 / 512).wrapping_mul(0x85eb_ca6b);
    1 + ((mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d) >> 24) as u8 % 255
}

/// Target of every symbolic link.
pub const TARGET: &[u8] = b"a target that is too long for its inode, so that it takes a block of its own";

impl FsState {
    /// Creates the initial content of every image.
    pub fn new() -> Self {
        let mut state = Self { nodes: BTreeMap::new(), next: 1 };
        state.nodes.insert(0, Node::Directory(BTreeMap::new()));
        for directory in ["d", "e"] {
            state.enter(directory, Node::Directory(BTreeMap::new()));
        }
        for (place, (path, size)) in [("a", 5000), ("d/x", 2500)].into_iter().enumerate() {
            let content = (0..size).map(|offset| pattern(1000 + place, offset)).collect();
            state.enter(path, Node::File { content, xattr: None });
        }
        state
    }

    /// Returns the node of a path.
    pub fn find(&self, path: &str) -> Option<usize> {
        path.split('/').try_fold(0, |node, name| match self.nodes.get(&node)? {
            Node::Directory(entries) => entries.get(name).copied(),
            _ => None,
        })
    }

    /// Returns the entries of a path's parent directory, and the path's last name.
    fn parent<'a>(&mut self, path: &'a str) -> Option<(&mut BTreeMap<String, usize>, &'a str)> {
        let (node, name) = match path.rsplit_once('/') {
            Some((directory, name)) => (self.find(directory)?, name),
            None => (0, path),
        };
        match self.nodes.get_mut(&node)? {
            Node::Directory(entries) => Some((entries, name)),
            _ => None,
        }
    }

    fn enter(&mut self, path: &str, node: Node) -> Option<()> {
        let number = self.next;
        let (entries, name) = self.parent(path)?;
        if entries.contains_key(name) {
            return None;
        }
        entries.insert(name.into(), number);
        self.nodes.insert(number, node);
        self.next += 1;
        Some(())
    }

    /// Returns the number of links of a node.
    pub fn links(&self, node: usize) -> usize {
        let of = |entries: &BTreeMap<String, usize>| entries.values().filter(|&&entry| entry == node).count();
        self.nodes
            .values()
            .map(|node| if let Node::Directory(entries) = node { of(entries) } else { 0 })
            .sum()
    }

    /// Removes nodes without links.
    fn sweep(&mut self) {
        let unlinked: Vec<usize> =
            self.nodes.keys().copied().filter(|&node| node != 0 && self.links(node) == 0).collect();
        unlinked.iter().for_each(|node| drop(self.nodes.remove(node)));
    }

    fn file(&mut self, path: &str) -> Option<(&mut Vec<u8>, &mut Option<Vec<u8>>)> {
        let node = self.find(path)?;
        match self.nodes.get_mut(&node)? {
            Node::File { content, xattr } => Some((content, xattr)),
            _ => None,
        }
    }

    /// Returns the size of a file in bytes.
    pub fn size(&self, path: &str) -> usize {
        match self.find(path).and_then(|node| self.nodes.get(&node)) {
            Some(Node::File { content, .. }) => content.len(),
            _ => 0,
        }
    }

    fn is_directory(&self, node: usize) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Directory(_)))
    }

    fn is_empty(&self, node: usize) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Directory(entries)) if entries.is_empty())
    }

    /// Performs operation number `number`; returns `None`, without changes, if it is impossible.
    pub fn apply(&mut self, op: Op, number: usize) -> Option<()> {
        match op {
            Op::Sync => {}
            Op::Create(path) => self.enter(path, Node::File { content: Vec::new(), xattr: None })?,
            Op::Mkdir(path) => self.enter(path, Node::Directory(BTreeMap::new()))?,
            Op::Symlink(path) => self.enter(path, Node::Symlink(TARGET.into()))?,
            Op::Write(path, offset, length) => {
                let (content, _) = self.file(path)?;
                content.resize(content.len().max(offset + length), 0);
                (offset..offset + length).for_each(|at| content[at] = pattern(number, at));
            }
            Op::Append(path, length) => {
                let offset = self.file(path)?.0.len();
                return self.apply(Op::Write(path, offset, length), number);
            }
            Op::Truncate(path, size) => self.file(path)?.0.resize(size, 0),
            Op::Punch(path, offset, length) => {
                let (content, _) = self.file(path)?;
                let end = (offset + length).min(content.len());
                content.get_mut(offset..end)?.fill(0);
            }
            Op::Reserve(path, _) => {
                self.file(path)?;
            }
            Op::Xattr(path, length) => {
                *self.file(path)?.1 = Some((0..length).map(|at| pattern(number, at * 512)).collect());
            }
            Op::Link(from, to) => {
                let node = self.find(from).filter(|&node| !self.is_directory(node))?;
                let (entries, name) = self.parent(to)?;
                if entries.contains_key(name) {
                    return None;
                }
                entries.insert(name.into(), node);
            }
            Op::Unlink(path) | Op::Abandon(path) => {
                self.find(path).filter(|&node| !self.is_directory(node))?;
                let (entries, name) = self.parent(path)?;
                entries.remove(name)?;
            }
            Op::Rmdir(path) => {
                self.find(path).filter(|&node| self.is_empty(node))?;
                let (entries, name) = self.parent(path)?;
                entries.remove(name)?;
            }
            Op::Rename(from, to) => {
                let node = self.find(from)?;
                self.parent(to)?;
                if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
                    return None;
                }
                if let Some(old) = self.find(to) {
                    let fits = match (self.is_directory(node), self.is_directory(old)) {
                        (true, true) => self.is_empty(old),
                        (one, other) => one == other,
                    };
                    if !fits {
                        return None;
                    }
                    // Renaming one link of an inode to another does nothing.
                    if old == node {
                        return Some(());
                    }
                }
                let (entries, name) = self.parent(from)?;
                entries.remove(name);
                let (entries, name) = self.parent(to)?;
                entries.insert(name.into(), node);
            }
            Op::Exchange(one, other) => {
                let nodes = (self.find(one)?, self.find(other)?);
                let (entries, name) = self.parent(one)?;
                entries.insert(name.into(), nodes.1);
                let (entries, name) = self.parent(other)?;
                entries.insert(name.into(), nodes.0);
            }
        }
        self.sweep();
        Some(())
    }
}

/// The state after a crash: as [`FsState`], with the link count of each inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub nodes: BTreeMap<usize, Node>,
    pub links: BTreeMap<usize, usize>,
}

/// Checks that the state after a crash is one of these successive states. File bytes may be those of a later state: overwriting
/// is not transactional. They may not be older: data is durable before the metadata that references it.
pub fn is_one_of(found: &Found, states: &[FsState]) -> Result<(), String> {
    let mut why = String::new();
    for (place, state) in states.iter().enumerate().rev() {
        match is(found, 0, state, 0, &states[place..]) {
            Ok(()) => return Ok(()),
            Err(reason) => why = format!("{why}\n  {reason}"),
        }
    }
    Err(format!("the tree matches none of {} states:{why}", states.len()))
}

fn is(found: &Found, at: usize, state: &FsState, node: usize, states: &[FsState]) -> Result<(), String> {
    match (&found.nodes[&at], &state.nodes[&node]) {
        (Node::Directory(found_entries), Node::Directory(entries)) => {
            let names = |entries: &BTreeMap<String, usize>| entries.keys().cloned().collect::<Vec<_>>();
            if names(found_entries) != names(entries) {
                return Err(format!("names {:?}, not {:?}", names(found_entries), names(entries)));
            }
            for (name, entry) in found_entries {
                is(found, *entry, state, entries[name], states).map_err(|why| format!("{name}: {why}"))?;
            }
            Ok(())
        }
        (Node::Symlink(found), Node::Symlink(target)) if found == target => Ok(()),
        (Node::File { content, xattr }, Node::File { content: expected, xattr: expected_xattr }) => {
            if found.links[&at] != state.links(node) {
                return Err(format!("{} links, not {}", found.links[&at], state.links(node)));
            }
            if xattr != expected_xattr {
                return Err("the attribute has another value".into());
            }
            if content.len() != expected.len() {
                return Err(format!("{} bytes, not {}", content.len(), expected.len()));
            }
            let ages: Vec<&Vec<u8>> = states
                .iter()
                .filter_map(|state| match state.nodes.get(&node) {
                    Some(Node::File { content, .. }) => Some(content),
                    _ => None,
                })
                .collect();
            let known =
                |at: usize, byte: u8| ages.iter().any(|age| age.get(at).copied().unwrap_or(0) == byte);
            match content.iter().enumerate().find(|&(at, &byte)| !known(at, byte)) {
                Some((at, byte)) => Err(format!("byte {at} is {byte}, a value that was never written there")),
                None => Ok(()),
            }
        }
        _ => Err("another file type".into()),
    }
}
