//! Inodes that are to be freed or cut after a crash.

use crate::checksum::crc32c;

/// Bytes at the end of a block of the orphan file: magic and sum.
const TAIL: usize = 8;

/// Fills in the sum of a block of the orphan file. It covers the block's number, so that none can take another's place.
pub(crate) fn fill_sum(seed: u32, number: u64, bytes: &mut [u8]) {
    let tail = bytes.len() - TAIL;
    let sum = crc32c(crc32c(seed, &number.to_le_bytes()), &bytes[..tail]);
    bytes[tail + 4..].copy_from_slice(&sum.to_le_bytes());
}
