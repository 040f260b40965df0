//! Revoke blocks.

use zerocopy::FromBytes;

use crate::error::Corruption;
use crate::journal::layout::{BLOCK_TAIL_BYTES, JournalIncompat, RevokeHeader};

/// Iterates over the file system blocks that a revoke block lists.
pub(super) fn blocks(
    bytes: &[u8],
    features: JournalIncompat,
) -> Result<impl Iterator<Item = u64>, Corruption> {
    let sums = features.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3);
    let end = bytes.len() - if sums { BLOCK_TAIL_BYTES } else { 0 };
    let (header, _) =
        RevokeHeader::read_from_prefix(bytes).map_err(|_| Corruption::new("revocation block: too short"))?;
    let count = header.count.get() as usize;
    if count < size_of::<RevokeHeader>() || count > end {
        return Err(Corruption::new(format!("{count} bytes of revocations exceed the block size {end}")));
    }
    let size = if features.contains(JournalIncompat::BIT64) { 8 } else { 4 };
    let numbers = bytes[size_of::<RevokeHeader>()..count].chunks_exact(size);
    Ok(numbers.map(|number| number.iter().fold(0, |block, &byte| block << 8 | u64::from(byte))))
}
