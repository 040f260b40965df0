//! Who may have the last blocks: a part of the file system is reserved, so that root can still work where users filled it.

use crate::layout::{Incompat, RawSuperblock};

/// Whether blocks may be taken that are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservedAccess {
    /// All that are free.
    Reserved,
    /// Only those that are not reserved.
    Common,
}

/// Blocks that are reserved, as the superblock has it.
pub(crate) fn reserved(raw: &RawSuperblock, incompat: Incompat) -> u64 {
    let high = if incompat.contains(Incompat::BIT64) { raw.r_blocks_count_hi.get() } else { 0 };
    u64::from(high) << 32 | u64::from(raw.r_blocks_count_lo.get())
}
