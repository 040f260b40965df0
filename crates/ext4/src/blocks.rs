//! Metadata blocks in memory.
//!
//! Bounded, sharded, and checked on the way in: a block comes out of here only as what somebody verified it to be.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::Device;
use crate::error::Result;

/// What a block was verified as: its kind, and whose it is. A block that two structures claim is verified for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Seal {
    /// Group descriptors, from this number on.
    Descriptors(u32),
    /// Inodes; each is verified by itself.
    Inodes,
    /// A node of this inode's extent tree (inode, generation, depth).
    Extents(u32, u32, u16),
    /// Block numbers of this inode.
    Indirect,
    /// A block of this directory, leaf or node (inode, generation).
    Directory(u32, u32),
    /// Extended attributes.
    Xattrs,
}

#[derive(Debug)]
struct Held {
    bytes: Arc<[u8]>,
    seal: Seal,
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    held: HashMap<u64, Held>,
    /// The numbers held, in a ring for the hand that looks for unused ones.
    ring: Vec<u64>,
    hand: usize,
}

const SHARDS: usize = 16;

/// The blocks used lately.
pub(crate) struct Blocks {
    device: Arc<dyn Device>,
    block_bits: u32,
    shards: [Mutex<Shard>; SHARDS],
    /// Blocks that a shard may hold.
    room: usize,
}

impl Blocks {
    /// A cache of at most `bytes`.
    pub(crate) fn new(device: Arc<dyn Device>, block_bits: u32, bytes: usize) -> Self {
        let room = ((bytes >> block_bits) / SHARDS).max(4);
        Self { device, block_bits, shards: Default::default(), room }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// A block, which `verify` accepts as what `seal` says.
    pub(crate) fn get(
        &self,
        number: u64,
        seal: Seal,
        verify: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<Arc<[u8]>> {
        let shard = &self.shards[(number as usize) % SHARDS];
        let known = {
            let mut shard = shard.lock();
            shard.held.get_mut(&number).map(|held| {
                held.used = true;
                (held.bytes.clone(), held.seal)
            })
        };
        if let Some((bytes, sealed)) = known {
            if sealed != seal {
                verify(&bytes)?;
                if let Some(held) = shard.lock().held.get_mut(&number) {
                    held.seal = seal;
                }
            }
            return Ok(bytes);
        }
        let mut bytes = vec![0; 1 << self.block_bits];
        self.device.read_at(number << self.block_bits, &mut bytes)?;
        verify(&bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        shard.lock().put(number, Held { bytes: bytes.clone(), seal, used: false }, self.room);
        Ok(bytes)
    }
}

impl Shard {
    fn put(&mut self, number: u64, held: Held, room: usize) {
        if self.held.insert(number, held).is_some() {
            return;
        }
        if self.ring.len() < room {
            self.ring.push(number);
            return;
        }
        // Second chance: each block passed over loses its mark, so this ends within one round.
        loop {
            let place = self.hand % self.ring.len();
            self.hand = place + 1;
            let candidate = self.ring[place];
            if !self.held.get_mut(&candidate).is_some_and(|held| std::mem::take(&mut held.used)) {
                self.held.remove(&candidate);
                self.ring[place] = number;
                return;
            }
        }
    }
}
