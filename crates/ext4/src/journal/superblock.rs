//! Journal superblock: parsing, validation and encoding.

use zerocopy::{FromBytes, IntoBytes};

use super::checksum::superblock_sum;
use super::layout::{
    BlockHeader, JOURNAL_MAGIC, JournalCompat, JournalIncompat, RawJournalSuperblock, block_type,
    checksum_type,
};
use crate::error::{Corruption, Error, Result};

/// Number of fast-commit blocks if the superblock does not specify it.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// Minimum number of blocks of a journal, as in the kernel.
const MIN_JOURNAL_BLOCKS: u32 = 1024;

/// A validated journal superblock.
///
/// Of the journal blocks `0..length`, `first..end` are the ring, and `fast..length` the fast-commit area.
#[derive(Debug, Clone)]
pub struct JournalSuperblock {
    raw: RawJournalSuperblock,
    /// Compatible features.
    pub compat: JournalCompat,
    /// Incompatible features.
    pub incompat: JournalIncompat,
    /// UUID of the file system, or of an external journal's device.
    pub uuid: [u8; 16],
    /// Number of blocks of the journal.
    pub length: u32,
    /// First block of the ring.
    pub first: u32,
    /// Block behind the last block of the ring, which wraps around to `first`.
    pub end: u32,
    /// First block of the fast-commit area; `length` if there is none.
    pub fast: u32,
    /// Number of the first transaction expected in the ring.
    pub sequence: u32,
    /// Block at which it starts; 0 if no recovery is needed.
    pub start: u32,
    /// Reason for an abort, as a positive errno; 0 if the journal was not aborted.
    pub errno: u32,
}

impl JournalSuperblock {
    /// Validates the superblock of a journal with `available` blocks of `block_size` bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and [`Error::Unsupported`] for unknown features.
    pub fn parse(bytes: &[u8], block_size: u32, available: u32) -> Result<Self> {
        let wrong = |what: String| Err(Corruption::new(format!("journal superblock: {what}")).into());
        let Ok((raw, _)) = RawJournalSuperblock::read_from_prefix(bytes) else {
            return wrong("too short".into());
        };
        let BlockHeader { magic, blocktype, .. } = raw.header;
        let v2 = match (magic.get(), blocktype.get()) {
            (JOURNAL_MAGIC, block_type::SUPERBLOCK_V1) => false,
            (JOURNAL_MAGIC, block_type::SUPERBLOCK_V2) => true,
            (magic, blocktype) => {
                return wrong(format!("invalid magic {magic:#010x} or block type {blocktype}"));
            }
        };
        let features = |field: u32| if v2 { field } else { 0 };
        let compat = JournalCompat::from_bits_retain(features(raw.feature_compat.get()));
        let incompat = JournalIncompat::from_bits_retain(features(raw.feature_incompat.get()));
        let unknown = (incompat - JournalIncompat::all()).bits() | features(raw.feature_ro_compat.get());
        if unknown != 0 {
            return Err(Error::Unsupported(format!("features {unknown:#x} of the journal")));
        }
        let sums = incompat & (JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3);
        if !sums.is_empty() {
            if sums.bits().count_ones() > 1 || compat.contains(JournalCompat::CHECKSUM) {
                return wrong("more than one checksum version is enabled".into());
            }
            if raw.checksum_type != checksum_type::CRC32C {
                return wrong(format!("checksum type {} is not crc32c", raw.checksum_type));
            }
            let computed = superblock_sum(raw.as_bytes().try_into().expect("the size is that of the type"));
            if raw.checksum.get() != computed {
                return wrong(format!("checksum {:#010x}, computed {computed:#010x}", raw.checksum));
            }
        }
        let (length, first, start) = (raw.maxlen.get(), raw.first.get(), raw.start.get());
        if raw.blocksize.get() != block_size {
            return wrong(format!("block size {}, not {block_size}", raw.blocksize));
        }
        if length > available || length < MIN_JOURNAL_BLOCKS {
            return wrong(format!("invalid length of {length} blocks, of {available} on the device"));
        }
        let (mut end, mut fast) = (length, length);
        if incompat.contains(JournalIncompat::FAST_COMMIT) {
            let blocks = match raw.num_fc_blocks.get() {
                0 => DEFAULT_FAST_COMMIT_BLOCKS,
                blocks => blocks,
            };
            // If the ring would become too short, it keeps all blocks and there are no fast commits.
            if let Some(rest) = length.checked_sub(blocks).filter(|&rest| rest >= MIN_JOURNAL_BLOCKS) {
                (end, fast) = (rest, rest + 1);
            }
        }
        if first == 0 || first >= end || start != 0 && !(first..end).contains(&start) {
            return wrong(format!("invalid log from block {first} to {end} with start {start}"));
        }
        // Stored as the kernel's negative errno; both signs occur.
        let errno = (raw.errno.get() as i32).unsigned_abs();
        Ok(Self {
            compat,
            incompat,
            uuid: if v2 { raw.uuid } else { [0; 16] },
            length,
            first,
            end,
            fast,
            sequence: raw.sequence.get(),
            start,
            errno,
            raw,
        })
    }

    /// Sets the features. A superblock of version 1 becomes one of version 2 with its first feature.
    pub(crate) fn set_features(&mut self, compat: JournalCompat, incompat: JournalIncompat) {
        (self.compat, self.incompat) = (compat, incompat);
        if self.raw.header.blocktype.get() == block_type::SUPERBLOCK_V1
            && (compat.bits() | incompat.bits()) != 0
        {
            self.raw.header.blocktype = block_type::SUPERBLOCK_V2.into();
            self.raw.nr_users = 1.into();
        }
    }

    /// Returns the on-disk form, with unknown fields as they were read, and the checksum filled in.
    pub fn encode(&self) -> [u8; size_of::<RawJournalSuperblock>()] {
        let mut raw = self.raw.clone();
        raw.sequence = self.sequence.into();
        raw.start = self.start.into();
        raw.errno = self.errno.wrapping_neg().into();
        if raw.header.blocktype.get() == block_type::SUPERBLOCK_V2 {
            raw.feature_compat = self.compat.bits().into();
            raw.feature_incompat = self.incompat.bits().into();
            raw.uuid = self.uuid;
        }
        let mut bytes = [0; size_of::<RawJournalSuperblock>()];
        if self.incompat.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
            raw.checksum_type = checksum_type::CRC32C;
            bytes.copy_from_slice(raw.as_bytes());
            raw.checksum = superblock_sum(&bytes).into();
        } else {
            raw.checksum_type = 0;
            raw.checksum = 0.into();
        }
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns the block behind `block` in the ring.
    pub(crate) fn after(&self, block: u32) -> u32 {
        if block + 1 >= self.end { self.first } else { block + 1 }
    }

    /// Returns the UUIDs of the file systems that use this journal.
    pub(crate) fn users(&self) -> &[[u8; 16]] {
        let users = self.raw.nr_users.get() as usize;
        &self.raw.users[..users.min(self.raw.users.len())]
    }
}
