//! Reserved blocks (`r_blocks_count`): free space that only privileged users may take, so that root can still work on a full file
//! system.

use crate::layout::{Incompat, RawSuperblock};

/// Permission to use reserved blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservedAccess {
    /// May use all free blocks.
    Reserved,
    /// May use only the blocks that are not reserved.
    Common,
}

/// Number of reserved blocks, from the superblock.
pub(crate) fn reserved(raw: &RawSuperblock, incompat: Incompat) -> u64 {
    let high = if incompat.contains(Incompat::BIT64) { raw.r_blocks_count_hi.get() } else { 0 };
    u64::from(high) << 32 | u64::from(raw.r_blocks_count_lo.get())
}
