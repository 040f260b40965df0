//! Who may have the last blocks: a part of the file system is reserved, so that root can still work where users filled it.

use crate::filesystem::Filesystem;
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

impl Filesystem {
    /// What a user with this group may have. Reserved blocks are for root, and for the user and the group that the
    /// superblock names (`tune2fs -u`, `-g`); for no group where it names that of root.
    pub fn rights(&self, uid: u32, gid: u32) -> ReservedAccess {
        let raw = self.superblock();
        let user = u32::from(raw.def_resuid.get());
        let group = u32::from(raw.def_resgid.get());
        match uid == 0 || uid == user || group != 0 && gid == group {
            true => ReservedAccess::Reserved,
            false => ReservedAccess::Common,
        }
    }

    /// Bytes that somebody with these rights may still write into holes and behind the ends of files; some of them may be
    /// needed for maps. 0 where nothing can be written.
    pub fn room(&self, rights: ReservedAccess) -> u64 {
        self.allocator().map_or(0, |allocator| allocator.left_for_data(rights) << self.geometry.block_bits)
    }
}
