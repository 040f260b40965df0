//! Checksums of journal blocks.

use super::layout::{BLOCK_TAIL_BYTES, CommitHeader, JournalIncompat, RawJournalSuperblock};
use crate::checksum::{crc32c, crc32c_without};

/// Checksums of version 2 and 3, which differ in how many bits of a block's checksum its tag holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    seed: u32,
    mask: u32,
}

impl Sums {
    /// Returns the checksums of a journal with these features; `None` if its blocks have no checksums of their own.
    pub fn of(features: JournalIncompat, uuid: &[u8; 16]) -> Option<Self> {
        let mask = if features.contains(JournalIncompat::CSUM_V3) {
            u32::MAX
        } else if features.contains(JournalIncompat::CSUM_V2) {
            0xffff
        } else {
            return None;
        };
        Some(Self { seed: crc32c(!0, uuid), mask })
    }

    /// Returns the checksum in the tag of a logged block, computed over the (escaped) bytes in the journal.
    pub fn copy(self, sequence: u32, copy: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.to_be_bytes()), copy) & self.mask
    }

    /// Returns the checksum in the tail of a descriptor or revoke block.
    pub(crate) fn tail(self, block: &[u8]) -> u32 {
        crc32c_without(self.seed, block, block.len() - BLOCK_TAIL_BYTES)
    }

    /// Fills in the checksum in the tail of a descriptor or revoke block.
    pub fn seal_tail(self, block: &mut [u8]) {
        let sum = self.tail(block);
        let at = block.len() - BLOCK_TAIL_BYTES;
        block[at..].copy_from_slice(&sum.to_be_bytes());
    }

    /// Reports whether the checksum in the tail of a descriptor or revoke block is correct.
    pub(crate) fn is_tail_valid(self, block: &[u8]) -> bool {
        block[block.len() - BLOCK_TAIL_BYTES..] == self.tail(block).to_be_bytes()
    }

    /// Returns the checksum of a commit record.
    pub(crate) fn commit(self, block: &[u8]) -> u32 {
        crc32c_without(self.seed, block, COMMIT_SUM_OFFSET)
    }

    /// Fills in the checksum of a commit record.
    pub fn seal_commit(self, block: &mut [u8]) {
        let sum = self.commit(block);
        block[COMMIT_SUM_OFFSET..COMMIT_SUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
    }

    /// Reports whether the checksum of a commit record is correct.
    pub(crate) fn is_commit_valid(self, block: &[u8]) -> bool {
        block[COMMIT_SUM_OFFSET..COMMIT_SUM_OFFSET + 4] == self.commit(block).to_be_bytes()
    }
}

const COMMIT_SUM_OFFSET: usize = std::mem::offset_of!(CommitHeader, chksum);

/// Returns the checksum of the journal superblock, which exists with checksums of version 2 and 3.
pub fn superblock_sum(bytes: &[u8; size_of::<RawJournalSuperblock>()]) -> u32 {
    crc32c_without(!0, bytes, std::mem::offset_of!(RawJournalSuperblock, checksum))
}

/// Checksum of version 1: CRC-32 with the highest bit first (polynomial 04c11db7), not inverted, starting with all ones, over the
/// descriptors and logged blocks of a transaction.
pub fn crc32_be(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, &byte| sum << 8 ^ CRC32_BE[(sum >> 24) as usize ^ usize::from(byte)])
}

const CRC32_BE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut sum = (n as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum >> 31 == 1 { sum << 1 ^ 0x04c1_1db7 } else { sum << 1 };
            bit += 1;
        }
        table[n] = sum;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sum() {
        // CRC-32/MPEG-2 of the CRC catalogue.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn blocks_keep_their_sums() {
        let sums = Sums::of(JournalIncompat::CSUM_V3, &[3; 16]).unwrap();
        let mut block = vec![9; 1024];
        sums.seal_tail(&mut block);
        assert!(sums.is_tail_valid(&block));
        block[100] ^= 1;
        assert!(!sums.is_tail_valid(&block));
        sums.seal_commit(&mut block);
        assert!(sums.is_commit_valid(&block));
        block[1023] ^= 1;
        assert!(!sums.is_commit_valid(&block));
        assert_eq!(Sums::of(JournalIncompat::BIT64, &[3; 16]), None);
        let narrow = Sums::of(JournalIncompat::CSUM_V2, &[3; 16]).unwrap();
        assert_eq!(narrow.copy(7, &block), sums.copy(7, &block) & 0xffff);
    }
}
