//! Journal recovery: writes committed blocks that are not checkpointed to their final locations.
//!
//! The journal is read and validated completely before the first block is written, and each block is written once, in its newest
//! version. A damaged or forged journal therefore changes nothing.

mod revoked;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use scan::Found;
use zerocopy::FromBytes;

use super::layout::{JOURNAL_MAGIC, JournalIncompat};
use super::{JournalArea, JournalSuperblock, Sums, fast_commit};
use crate::device::Device;
use crate::error::{Corruption, Result};
use crate::layout::{RawSuperblock, SUPERBLOCK_OFFSET};
use crate::superblock::Geometry;
use scan::{Copy, Scan};

/// Result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Number of complete transactions.
    pub transactions: u32,
    /// Number of blocks written to their final locations.
    pub blocks: u64,
    /// Number of changes in fast commits behind the last transaction, which became one more transaction. 0 if they do not fit the
    /// file system and it is opened for reading only.
    pub fast_changes: usize,
    /// Number of the next transaction.
    pub next: u32,
}

/// A journal to recover.
pub(crate) struct Recovery<'a> {
    /// Device of the file system.
    pub(crate) device: &'a dyn Device,
    pub(crate) log: &'a JournalArea,
    pub(crate) superblock: &'a JournalSuperblock,
    pub(crate) geometry: &'a Geometry,
}

impl Recovery<'_> {
    /// Reads and validates the journal.
    pub(crate) fn read(&self) -> Result<Found> {
        let Self { device, log, superblock, geometry } = self;
        if superblock.start == 0 {
            return Ok(Found { next: superblock.sequence.wrapping_add(1), ..Found::default() });
        }
        let mut found = Scan::new(log, superblock).run(None)?;
        if let Some(Damaged { at, sequence }) = check_copies(log, superblock, &found)? {
            // With asynchronous commit, the commit record of the last transaction may be on the device without all of its blocks.
            let is_last = found.next == sequence.wrapping_add(1);
            if !is_last || !superblock.incompat.contains(JournalIncompat::ASYNC_COMMIT) {
                return Err(scan::wrong_sum(at, sequence));
            }
            found = Scan::new(log, superblock).run(Some(sequence))?;
            if let Some(Damaged { at, sequence }) = check_copies(log, superblock, &found)? {
                return Err(scan::wrong_sum(at, sequence));
            }
        }
        check_places(*device, log, geometry, &mut found)?;
        found.fast = fast_commit::read(log, superblock, found.next)?;
        Ok(found)
    }

    /// Writes the recovered blocks to the device of the file system. The journal itself stays unchanged: it must be
    /// [emptied](JournalArea::set_superblock) after a flush of the device.
    pub(crate) fn write(&self, found: &Found) -> Result<Recovered> {
        self.write_to(self.device, found)?;
        Ok(Recovered {
            transactions: found.transactions,
            blocks: found.copies.len() as u64,
            fast_changes: 0,
            next: found.next,
        })
    }

    /// Writes the recovered blocks to another device.
    pub(crate) fn write_to(&self, device: &dyn Device, found: &Found) -> Result<()> {
        let mut block = vec![0; self.log.block_size() as usize];
        for (&number, copy) in &found.copies {
            read_copy(self.log, copy, &mut block)?;
            device.write_at(number << self.geometry.block_bits, &block)?;
        }
        Ok(())
    }
}

/// Reads a logged block and undoes its escaping.
fn read_copy(log: &JournalArea, copy: &Copy, block: &mut [u8]) -> Result<()> {
    log.read(copy.at, block)?;
    if copy.escaped {
        block[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
    }
    Ok(())
}

/// Checks that logged blocks belong to the file system and not to the journal.
fn check_places(
    device: &dyn Device,
    log: &JournalArea,
    geometry: &Geometry,
    found: &mut Found,
) -> Result<()> {
    let mut end = geometry.blocks;
    if let Some(copy) = found.copies.get(&(SUPERBLOCK_OFFSET >> geometry.block_bits)) {
        let mut block = vec![0; log.block_size() as usize];
        read_copy(log, copy, &mut block)?;
        let start = (SUPERBLOCK_OFFSET & u64::from(geometry.block_size - 1)) as usize;
        let raw = block
            .get(start..start + size_of::<RawSuperblock>())
            .and_then(|bytes| RawSuperblock::read_from_bytes(bytes).ok());
        if let Some(whole) = raw.and_then(|raw| Geometry::check(&raw).ok()) {
            // Growing the file system is journaled too: a superblock in the journal may count more blocks.
            end = end.max(whole.blocks).min(device.size() >> geometry.block_bits);
            found.superblock = true;
        }
    }
    let wrong = |block: u64, copy: &Copy, what: &str| {
        let what = format!("journal: transaction {} contains block {block}, which is {what}", copy.sequence);
        Err(Corruption::new(what).into())
    };
    for (&block, copy) in &found.copies {
        if block >= end || block < geometry.first_data_block.into() {
            return wrong(block, copy, "not of this file system");
        }
        if log.overlaps(block, 1) {
            return wrong(block, copy, "the journal's own");
        }
    }
    Ok(())
}

struct Damaged {
    at: u32,
    sequence: u32,
}

/// Returns the earliest transaction that has a logged block with a wrong checksum.
fn check_copies(log: &JournalArea, superblock: &JournalSuperblock, found: &Found) -> Result<Option<Damaged>> {
    let Some(sums) = Sums::of(superblock.incompat, &superblock.uuid) else { return Ok(None) };
    let mut block = vec![0; log.block_size() as usize];
    let mut damaged: Option<Damaged> = None;
    for copy in found.copies.values() {
        log.read(copy.at, &mut block)?;
        let is_older = |damaged: &Damaged| super::is_after(damaged.sequence, copy.sequence);
        if sums.copy(copy.sequence, &block) != copy.sum && damaged.as_ref().is_none_or(is_older) {
            damaged = Some(Damaged { at: copy.at, sequence: copy.sequence });
        }
    }
    Ok(damaged)
}
