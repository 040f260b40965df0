//! Backing files that stay registered although no open that a server answered uses them: a program in the kernel opens files with
//! them. Their records are a memory file of its own, created with the first record.
//!
//! | word of a record | meaning |
//! |---|---|
//! | 0 | node, 0 while nothing is there. Written last, cleared first |
//! | 1 | number of the backing file |

use std::collections::HashMap;
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
    /// Backing files of records that were being written or removed when an earlier server ended.
    doubtful: Vec<u32>,
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
            if node.0 != 0 && backing != 0 && kept.indices.insert((node, backing), index).is_none() {
                continue;
            }
            if backing != 0 {
                kept.doubtful.push(backing);
            }
            kept.clear(index);
            kept.free.push(index);
        }
        Ok(kept)
    }

    fn new(map: Map) -> Self {
        Self { map, indices: HashMap::new(), free: Vec::new(), next: 0, doubtful: Vec::new() }
    }

    fn clear(&self, index: usize) {
        self.map[index * RECORD_WORDS].store(0, Ordering::Release);
        self.map[index * RECORD_WORDS + 1].store(0, Ordering::Release);
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

    /// Begins to remove a record: until [`removed`](Self::removed) it shows that the backing file may still be registered.
    pub(super) fn remove(&mut self, node: NodeId, backing: u32) -> Option<usize> {
        let index = self.indices.remove(&(node, backing))?;
        self.map[index * RECORD_WORDS].store(0, Ordering::Release);
        Some(index)
    }

    /// Ends the removal of a record.
    pub(super) fn removed(&mut self, index: usize) {
        self.clear(index);
        self.free.push(index);
    }

    /// Returns all records.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.indices.keys().copied()
    }

    /// Returns the backing files that may be registered without a record.
    pub(super) fn doubtful(&self) -> &[u32] {
        &self.doubtful
    }
}

impl AsFd for KeptBackings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
