//! The journal of an image, and its transactions that await recovery.

use std::collections::BTreeMap;

use shunt_ext4::Geometry;
use shunt_ext4::journal::layout::{JOURNAL_MAGIC, JournalCompat, JournalIncompat, TagFlags, block_type};
use shunt_ext4::journal::{Sums, Tag, TagForm};
use shunt_ext4::layout::{Compat, RawSuperblock};

use super::inodes::JOURNAL;
use super::{Kind, Site, inode_of, map};
use crate::number::big_u32_at;

/// Offset of a descriptor in the image, and its tags with the offsets of the logged blocks.
pub type Descriptor = (usize, Vec<(Tag, usize)>);

/// A transaction that awaits recovery. Offsets are bytes in the image.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Descriptors, in order.
    pub descriptors: Vec<Descriptor>,
    /// Revoke blocks.
    pub revocations: Vec<usize>,
    /// Commit record.
    pub commit: usize,
}

/// The journal of an image.
pub struct Journal {
    /// Offset of the journal superblock in bytes.
    pub superblock: usize,
    /// Format of the tags.
    pub form: TagForm,
    /// Block checksums of version 2 or 3.
    pub sums: Option<Sums>,
    /// Commit records have a checksum of version 1.
    pub old_sums: bool,
    /// Transactions that await recovery.
    pub transactions: Vec<Transaction>,
    /// Offsets of the fast-commit blocks in bytes.
    pub fast: Vec<usize>,
    pub(super) sites: Vec<Site>,
}

/// Offsets in the journal superblock.
mod at {
    pub const MAXLEN: usize = 16;
    pub const FIRST: usize = 20;
    pub const SEQUENCE: usize = 24;
    pub const START: usize = 28;
    pub const COMPAT: usize = 36;
    pub const INCOMPAT: usize = 40;
    pub const UUID: usize = 48;
    pub const FAST_BLOCKS: usize = 84;
}

/// Number of fast-commit blocks if the superblock does not specify it.
const FAST_BLOCKS: u32 = 256;

/// Reads the journal of a sound image.
pub(super) fn find(bytes: &[u8], geometry: &Geometry, superblock: &RawSuperblock) -> Option<Journal> {
    if !geometry.compat.contains(Compat::HAS_JOURNAL) || superblock.journal_inum.get() != JOURNAL {
        return None;
    }
    let size = geometry.block_size as usize;
    let blocks = map::blocks(bytes, size, &inode_of(bytes, geometry, JOURNAL));
    let place: BTreeMap<u32, usize> =
        blocks.data.iter().map(|&(logical, block)| (logical, block as usize * size)).collect();
    let start = *place.get(&0)?;
    let head = &bytes[start..start + size];
    let incompat = JournalIncompat::from_bits_retain(big_u32_at(head, at::INCOMPAT));
    let compat = JournalCompat::from_bits_retain(big_u32_at(head, at::COMPAT));
    let uuid: [u8; 16] = head[at::UUID..at::UUID + 16].try_into().expect("sixteen bytes");
    let length = big_u32_at(head, at::MAXLEN);
    let fast = match (incompat.contains(JournalIncompat::FAST_COMMIT), big_u32_at(head, at::FAST_BLOCKS)) {
        (true, 0) => FAST_BLOCKS,
        (true, blocks) => blocks,
        (false, _) => 0,
    };
    let mut journal = Journal {
        superblock: start,
        form: TagForm::of(incompat),
        sums: Sums::of(incompat, &uuid),
        old_sums: compat.contains(JournalCompat::CHECKSUM),
        transactions: Vec::new(),
        fast: Vec::new(),
        sites: Vec::new(),
    };
    let site =
        |kind, start, length| Site { kind, start, length, owner: JOURNAL, block: (start / size) as u64 };
    journal.sites.push(site(Kind::JournalSuperblock, start, 1024));
    journal.scan(bytes, size, &place, length - fast);
    for block in length - fast..length {
        let start = place[&block];
        // Skip blocks that were never written: they are zeros.
        if bytes[start..start + 4] != [0; 4] {
            journal.fast.push(start);
            journal.sites.push(site(Kind::FastCommit, start, size));
        }
    }
    for transaction in &journal.transactions {
        let descriptors = transaction.descriptors.iter().map(|descriptor| descriptor.0);
        journal.sites.extend(descriptors.map(|start| site(Kind::JournalDescriptor, start, size)));
        let revocations = transaction.revocations.iter();
        journal.sites.extend(revocations.map(|&start| site(Kind::JournalRevocations, start, size)));
        journal.sites.push(site(Kind::JournalCommit, transaction.commit, size));
    }
    Some(journal)
}

impl Journal {
    fn scan(&mut self, bytes: &[u8], size: usize, place: &BTreeMap<u32, usize>, end: u32) {
        let head = &bytes[self.superblock..][..size];
        let (first, mut sequence) = (big_u32_at(head, at::FIRST), big_u32_at(head, at::SEQUENCE));
        let mut block = big_u32_at(head, at::START);
        if block == 0 {
            return;
        }
        let mut open = Transaction::default();
        let next = |block: u32| if block + 1 == end { first } else { block + 1 };
        // Bounded by the number of blocks: the log ends at leftovers of older transactions.
        for _ in 0..end {
            let start = place[&block];
            let bytes = &bytes[start..start + size];
            if (big_u32_at(bytes, 0), big_u32_at(bytes, 8)) != (JOURNAL_MAGIC, sequence) {
                return;
            }
            block = next(block);
            match big_u32_at(bytes, 4) {
                block_type::DESCRIPTOR => {
                    let mut tags = Vec::new();
                    for tag in self.form.tags(bytes) {
                        tags.push((tag, place[&block]));
                        block = next(block);
                    }
                    open.descriptors.push((start, tags));
                }
                block_type::REVOKE => open.revocations.push(start),
                block_type::COMMIT => {
                    open.commit = start;
                    self.transactions.push(std::mem::take(&mut open));
                    sequence += 1;
                }
                _ => return,
            }
        }
    }

    fn tags(&self) -> impl Iterator<Item = &(Tag, usize)> {
        self.transactions.iter().flat_map(|one| &one.descriptors).flat_map(|(_, tags)| tags)
    }

    /// Replays the journal, ignoring revocations.
    pub(super) fn apply(&self, view: &mut [u8], size: usize) {
        for &(tag, copy) in self.tags() {
            let start = tag.block as usize * size;
            view.copy_within(copy..copy + size, start);
            if tag.flags.contains(TagFlags::ESCAPE) {
                view[start..start + 4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
            }
        }
    }

    /// Returns the offset of the last logged version of each block.
    pub(super) fn copies(&self) -> BTreeMap<u64, usize> {
        self.tags().map(|&(tag, copy)| (tag.block, copy)).collect()
    }
}
