//! Orphan file: blocks of inode numbers in arbitrary slots, so that writers do not contend for the head of a list.

use std::collections::HashMap;

use crate::block_mapping::Mapping;
use crate::buffer::{BlockKind, Handle, MetadataCache};
use crate::checksum::crc32c;
use crate::error::{Corruption, Result};
use crate::filesystem::Filesystem;
use crate::layout::Compat;
use crate::map;
use crate::orphan_slots::OrphanFileSlots;

/// Size in bytes of the tail of a block: magic and checksum.
const TAIL_BYTES: usize = 8;

/// `EXT4_ORPHAN_BLOCK_MAGIC`.
const MAGIC: u32 = 0x0b10_ca04;

/// Maximum number of blocks of the orphan file that are used; mke2fs creates no larger files.
const MAX_BLOCKS: u32 = 512;

/// Fills in the checksum of a block. It covers the block number, so that a misplaced block is detected.
pub(crate) fn fill_sum(seed: u32, number: u64, bytes: &mut [u8]) {
    let sum = sum(seed, number, bytes);
    let tail = bytes.len() - 4;
    bytes[tail..].copy_from_slice(&sum.to_le_bytes());
}

fn sum(seed: u32, number: u64, bytes: &[u8]) -> u32 {
    crc32c(crc32c(seed, &number.to_le_bytes()), &bytes[..bytes.len() - TAIL_BYTES])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl OrphanFileSlots {
    /// Reads the orphan file; `None` if there is none.
    pub(super) fn read(fs: &Filesystem) -> Result<Option<Self>> {
        if !fs.geometry.compat.contains(Compat::ORPHAN_FILE) {
            return Ok(None);
        }
        let number = fs.superblock.orphan_file_inum.get();
        let inode = fs.inode(number)?;
        let length = (inode.size >> fs.geometry.block_bits).min(MAX_BLOCKS.into()) as u32;
        let mut slots = Self {
            kind: BlockKind::Orphans(inode.number, inode.generation),
            blocks: Vec::new(),
            per_block: (fs.geometry.block_size as usize - TAIL_BYTES) / 4,
            taken: HashMap::new(),
            free: Vec::new(),
        };
        for logical in 0..length {
            let run = map::map(&fs.geometry, &fs.store, &inode, logical, 1)?;
            let Mapping::Written(block) = run.mapping else {
                return Err(Corruption::new("orphan file: has holes").inode(number).into());
            };
            slots.blocks.push(block);
            let bytes = slots.get(&fs.store, block)?;
            for index in 0..slots.per_block {
                let slot = logical as usize * slots.per_block + index;
                match word(&bytes, index * 4) {
                    0 => slots.free.push(slot),
                    inode => drop(slots.taken.insert(inode, slot)),
                }
            }
        }
        // Use slots from the front, so that used ones stay together.
        slots.free.reverse();
        Ok(Some(slots))
    }

    fn get(&self, store: &MetadataCache, block: u64) -> Result<std::sync::Arc<[u8]>> {
        store.get(block, self.kind, |bytes| self.verify(store, block, bytes))
    }

    fn verify(&self, store: &MetadataCache, block: u64, bytes: &[u8]) -> Result<()> {
        let wrong = |what: String| Err(Corruption::new(format!("orphan file: {what}")).block(block).into());
        let magic = word(bytes, bytes.len() - TAIL_BYTES);
        if magic != MAGIC {
            return wrong(format!("invalid magic {magic:#010x}"));
        }
        if let (Some(seed), BlockKind::Orphans(inode, generation)) =
            (store.geometry().checksum_seed, self.kind)
        {
            let computed = sum(crate::checksum::owner_seed(seed, inode, generation), block, bytes);
            let stored = word(bytes, bytes.len() - 4);
            if stored != computed {
                return wrong(format!("checksum {stored:#010x}, computed {computed:#010x}"));
            }
        }
        Ok(())
    }

    /// Adds an inode; returns `false` if there is no free slot.
    pub(super) fn add(&mut self, handle: &mut Handle<'_>, number: u32) -> Result<bool> {
        let Some(&slot) = self.free.last() else { return Ok(false) };
        self.put(handle, slot, number)?;
        self.free.pop();
        self.taken.insert(number, slot);
        Ok(true)
    }

    /// Removes an inode; returns `false` if it is not in the file.
    pub(super) fn remove(&mut self, handle: &mut Handle<'_>, number: u32) -> Result<bool> {
        let Some(&slot) = self.taken.get(&number) else { return Ok(false) };
        self.put(handle, slot, 0)?;
        self.taken.remove(&number);
        self.free.push(slot);
        Ok(true)
    }

    fn put(&self, handle: &mut Handle<'_>, slot: usize, number: u32) -> Result<()> {
        let block = self.blocks[slot / self.per_block];
        let at = slot % self.per_block * 4;
        let store = handle.store();
        let verify = |bytes: &[u8]| self.verify(store, block, bytes);
        handle.change(block, self.kind, verify, |bytes| {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            Ok(())
        })
    }
}
