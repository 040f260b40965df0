//! A part of the node table: a slab in fixed chunks, and an index over it.

use hashbrown::HashTable;

use super::{Location, Node, SHARD_BITS};
use rustix::fs::FileType;

/// Slots of one chunk: chunks are allocated whole, and never moved.
const CHUNK: usize = 256;

struct Slot {
    lookups: u64,
    /// Of a free slot: the next free one.
    ino: u64,
    /// `None`: the slot is free.
    location: Option<Location>,
    generation: u32,
    mount: u16,
    device: u16,
    kind: Kind,
    used: bool,
}

/// [`FileType`] in one byte.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
    Unknown,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

impl From<Kind> for FileType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Regular => Self::RegularFile,
            Kind::Directory => Self::Directory,
            Kind::Symlink => Self::Symlink,
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::CharDevice => Self::CharacterDevice,
            Kind::BlockDevice => Self::BlockDevice,
            Kind::Unknown => Self::Unknown,
        }
    }
}

// One cache line: 64 bytes of the budget of 160 per inode.
const _: () = assert!(size_of::<Slot>() <= 64);

impl Slot {
    fn free(next: u64) -> Self {
        Self {
            lookups: 0,
            ino: next,
            location: None,
            generation: 0,
            mount: 0,
            device: 0,
            kind: Kind::Unknown,
            used: false,
        }
    }

    fn node(&self) -> Option<Node> {
        Some(Node {
            ino: self.ino,
            mount: self.mount,
            device: self.device,
            kind: self.kind.into(),
            location: self.location.clone()?,
        })
    }
}

/// End of the free list.
const NONE: u64 = u64::MAX;

pub(super) struct Shard {
    chunks: Vec<Box<[Slot]>>,
    free: u64,
    index: HashTable<u32>,
    heap: usize,
    hand: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NONE, index: HashTable::new(), heap: 0, hand: 0 }
    }
}

impl Shard {
    fn slot(&self, local: u32) -> Option<&Slot> {
        self.chunks.get(local as usize / CHUNK).map(|chunk| &chunk[local as usize % CHUNK])
    }

    fn slot_mut(&mut self, local: u32) -> Option<&mut Slot> {
        self.chunks.get_mut(local as usize / CHUNK).map(|chunk| &mut chunk[local as usize % CHUNK])
    }

    /// Takes slot 0 out of use for ever.
    pub(super) fn reserve_first(&mut self) {
        let first = self.take_free();
        debug_assert_eq!(first, Some(0));
    }

    fn take_free(&mut self) -> Option<u32> {
        if self.free == NONE {
            let start = self.chunks.len() * CHUNK;
            if start + CHUNK > (1 << (32 - SHARD_BITS)) {
                return None;
            }
            let next = |local: usize| if local + 1 < start + CHUNK { local as u64 + 1 } else { NONE };
            self.chunks.push((start..start + CHUNK).map(|local| Slot::free(next(local))).collect());
            self.free = start as u64;
        }
        let local = self.free as u32;
        self.free = self.slot(local)?.ino;
        Some(local)
    }

    /// Finds a node; tells slot and generation.
    pub(super) fn find(&self, hash: u64, node: &Node) -> Option<(u32, u32)> {
        let same = |&local: &u32| {
            self.slot(local).is_some_and(|slot| {
                slot.ino == node.ino
                    && slot.mount == node.mount
                    && slot.location.as_ref().is_some_and(|location| location.same(&node.location))
            })
        };
        let &local = self.index.find(hash, same)?;
        Some((local, self.slot(local)?.generation))
    }

    /// Whether a node of this inode number is held, of whatever generation.
    pub(super) fn holds(&self, hash: u64, mount: u16, ino: u64) -> bool {
        let same = |&local: &u32| self.slot(local).is_some_and(|slot| slot.ino == ino && slot.mount == mount);
        self.index.find(hash, same).is_some()
    }

    /// Finds or adds a node; tells slot, generation, and whether it was added.
    pub(super) fn acquire(
        &mut self,
        hash: u64,
        node: Node,
        hasher: impl Fn(&Node) -> u64,
    ) -> Option<(u32, u32, bool)> {
        if let Some((local, generation)) = self.find(hash, &node) {
            let slot = self.slot_mut(local)?;
            slot.lookups += 1;
            slot.used = true;
            return Some((local, generation, false));
        }
        let local = self.take_free()?;
        if let Location::Handle(handle) = &node.location {
            self.heap += handle.heap();
        }
        let slot = self.slot_mut(local)?;
        slot.lookups = 1;
        slot.ino = node.ino;
        slot.mount = node.mount;
        slot.device = node.device;
        slot.kind = node.kind.into();
        slot.location = Some(node.location);
        slot.used = true;
        let generation = slot.generation;
        let chunks = &self.chunks;
        self.index.insert_unique(hash, local, |&local| {
            let slot = &chunks[local as usize / CHUNK][local as usize % CHUNK];
            slot.node().map_or(0, |node| hasher(&node))
        });
        Some((local, generation, true))
    }

    pub(super) fn get(&mut self, local: u32, generation: u32) -> Option<Node> {
        let slot = self.slot_mut(local).filter(|slot| slot.generation == generation)?;
        slot.used = true;
        slot.node()
    }

    pub(super) fn forget(
        &mut self,
        local: u32,
        generation: u32,
        lookups: u64,
        hasher: impl Fn(&Node) -> u64,
    ) -> Option<Node> {
        let free = self.free;
        let slot =
            self.slot_mut(local).filter(|slot| slot.generation == generation && slot.location.is_some())?;
        // A count too large can only be a broken peer; the node is gone either way.
        slot.lookups = slot.lookups.saturating_sub(lookups);
        if slot.lookups > 0 {
            return None;
        }
        let node = slot.node()?;
        slot.location = None;
        slot.generation = slot.generation.wrapping_add(1);
        slot.ino = free;
        self.free = u64::from(local);
        if let Ok(entry) = self.index.find_entry(hasher(&node), |&candidate| candidate == local) {
            entry.remove();
        }
        if let Location::Handle(handle) = &node.location {
            self.heap -= handle.heap();
        }
        // After a walk over millions of names the index gives its memory back.
        if self.index.len() * 8 < self.index.capacity() && self.index.capacity() > 4096 {
            let chunks = &self.chunks;
            self.index.shrink_to(self.index.len() * 2, |&local| {
                let slot = &chunks[local as usize / CHUNK][local as usize % CHUNK];
                slot.node().map_or(0, |node| hasher(&node))
            });
        }
        Some(node)
    }

    pub(super) fn memory(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot>()
            + self.chunks.capacity() * size_of::<Box<[Slot]>>()
            + self.index.allocation_size()
            + self.heap
    }

    /// Moves the hand over the slots, clears the marks of those used, and collects up to `count` of the others.
    pub(super) fn cold(&mut self, count: usize) -> Vec<(u32, u32)> {
        let slots = (self.chunks.len() * CHUNK) as u32;
        let mut cold = Vec::new();
        for _ in 0..slots {
            if cold.len() >= count {
                break;
            }
            let local = self.hand % slots;
            self.hand = (local + 1) % slots;
            let Some(slot) = self.slot_mut(local) else { break };
            if slot.location.is_some() && !std::mem::take(&mut slot.used) {
                cold.push((local, slot.generation));
            }
        }
        cold
    }
}
