//! Sums over blocks of the journal.

use super::layout::{BLOCK_TAIL, CommitHeader, JournalIncompat, RawJournalSuperblock};
use crate::checksum::{crc32c, crc32c_without};

/// Sums of version 2 and 3. They differ in how much of a copy's sum the tag holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    seed: u32,
    mask: u32,
}

impl Sums {
    /// Those of a journal with these features; `None` where blocks have no sums of their own.
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

    /// What the tag of a copy holds, the copy as it lies in the journal.
    pub fn copy(self, sequence: u32, copy: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.to_be_bytes()), copy) & self.mask
    }

    /// What the end of a descriptor or of a block of revocations holds.
    pub fn tail(self, block: &[u8]) -> u32 {
        crc32c_without(self.seed, block, block.len() - BLOCK_TAIL)
    }

    /// Fills in the sum at the end of a descriptor or of a block of revocations.
    pub fn seal_tail(self, block: &mut [u8]) {
        let sum = self.tail(block);
        let at = block.len() - BLOCK_TAIL;
        block[at..].copy_from_slice(&sum.to_be_bytes());
    }

    /// Whether the sum at the end of a descriptor or of a block of revocations is right.
    pub fn tail_is_right(self, block: &[u8]) -> bool {
        block[block.len() - BLOCK_TAIL..] == self.tail(block).to_be_bytes()
    }

    /// What a commit record holds.
    pub fn commit(self, block: &[u8]) -> u32 {
        crc32c_without(self.seed, block, COMMIT_SUM)
    }

    /// Fills in the sum of a commit record.
    pub fn seal_commit(self, block: &mut [u8]) {
        let sum = self.commit(block);
        block[COMMIT_SUM..COMMIT_SUM + 4].copy_from_slice(&sum.to_be_bytes());
    }

    /// Whether the sum of a commit record is right.
    pub fn commit_is_right(self, block: &[u8]) -> bool {
        block[COMMIT_SUM..COMMIT_SUM + 4] == self.commit(block).to_be_bytes()
    }
}

const COMMIT_SUM: usize = std::mem::offset_of!(CommitHeader, chksum);

/// The sum of the journal's superblock. It has one in version 2 and 3 of the sums.
pub fn superblock_sum(bytes: &[u8; size_of::<RawJournalSuperblock>()]) -> u32 {
    crc32c_without(!0, bytes, std::mem::offset_of!(RawJournalSuperblock, checksum))
}

/// Sums of version 1: CRC-32 with the highest bit first (polynomial 04c11db7), not inverted, over the descriptors and the
/// copies of a transaction, from all ones on.
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
        // CRC-32/MPEG-2 of the catalogue of CRCs.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn blocks_keep_their_sums() {
        let sums = Sums::of(JournalIncompat::CSUM_V3, &[3; 16]).unwrap();
        let mut block = vec![9; 1024];
        sums.seal_tail(&mut block);
        assert!(sums.tail_is_right(&block));
        block[100] ^= 1;
        assert!(!sums.tail_is_right(&block));
        sums.seal_commit(&mut block);
        assert!(sums.commit_is_right(&block));
        block[1023] ^= 1;
        assert!(!sums.commit_is_right(&block));
        assert_eq!(Sums::of(JournalIncompat::BIT64, &[3; 16]), None);
        let narrow = Sums::of(JournalIncompat::CSUM_V2, &[3; 16]).unwrap();
        assert_eq!(narrow.copy(7, &block), sums.copy(7, &block) & 0xffff);
    }
}
