//! Backing files that stay registered although no open that a server answered uses them: a program in the kernel opens files with
//! them. Their records are in a memory file of their own, which is created with the first record.
//!
//! | word of a record | meaning |
//! |---|---|
//! | 0 | node, 0 while nothing is there. Written last, cleared first |
//! | 1 | number of the backing file |

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::map::Map;
use crate::id::NodeId;

/// Maximum number of records.
pub(super) const MAX_KEPT: usize = 1 << 14;
const RECORD_WORDS: usize = 2;

/// The records, and the index of each.
#[derive(Debug)]
pub(super) struct KeptBackings {
    map: Map,
    indices: HashMap<(NodeId, u32), usize>,
    /// Free indices below `next`.
    free: Vec<usize>,
    next: usize,
    /// Records that were being written or removed when an earlier server ended: their backing files may be registered.
    doubtful: Vec<(usize, u32)>,
}

impl KeptBackings {
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self::new(Map::create(MAX_KEPT * RECORD_WORDS)?))
    }

    /// Opens the records of an earlier server.
    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        let mut kept = Self::new(Map::open(file, MAX_KEPT * RECORD_WORDS)?);
        kept.next = MAX_KEPT;
        for index in (0..MAX_KEPT).rev() {
            let node = NodeId(kept.map[index * RECORD_WORDS].load(Ordering::Acquire));
            let backing = kept.map[index * RECORD_WORDS + 1].load(Ordering::Acquire) as u32;
            match kept.indices.entry((node, backing)) {
                Entry::Vacant(vacant) if node.0 != 0 && backing != 0 => {
                    vacant.insert(index);
                }
                _ if backing != 0 => kept.doubtful.push((index, backing)),
                _ => kept.finish_removal(index),
            }
        }
        Ok(kept)
    }

    fn new(map: Map) -> Self {
        Self { map, indices: HashMap::new(), free: Vec::new(), next: 0, doubtful: Vec::new() }
    }

    /// Adds a record. Returns `false` if there is no room.
    pub(super) fn add(&mut self, node: NodeId, backing: u32) -> bool {
        if self.indices.contains_key(&(node, backing)) {
            return true;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.next < MAX_KEPT => {
                self.next += 1;
                self.next - 1
            }
            None => return false,
        };
        self.indices.insert((node, backing), index);
        self.map[index * RECORD_WORDS + 1].store(backing.into(), Ordering::Release);
        self.map[index * RECORD_WORDS].store(node.0, Ordering::Release);
        true
    }

    /// Begins to remove a record: until [`finish_removal`](Self::finish_removal) it shows that the backing file may still be
    /// registered.
    pub(super) fn begin_removal(&mut self, node: NodeId, backing: u32) -> Option<usize> {
        let index = self.indices.remove(&(node, backing))?;
        self.map[index * RECORD_WORDS].store(0, Ordering::Release);
        Some(index)
    }

    pub(super) fn finish_removal(&mut self, index: usize) {
        self.map[index * RECORD_WORDS].store(0, Ordering::Release);
        self.map[index * RECORD_WORDS + 1].store(0, Ordering::Release);
        self.free.push(index);
    }

    /// Returns all records.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.indices.keys().copied()
    }

    /// Returns the backing files that may be registered without a complete record.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = u32> {
        self.doubtful.iter().map(|(_, backing)| *backing)
    }

    /// Forgets the doubtful records, once their backing files are closed.
    pub(super) fn clear_doubtful(&mut self) {
        for (index, _) in std::mem::take(&mut self.doubtful) {
            self.finish_removal(index);
        }
    }
}

impl AsFd for KeptBackings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
