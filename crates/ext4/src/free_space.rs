//! The reserved blocks that a user may have, and the room that is left with them.

use crate::allocate::ReservedAccess;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Returns the rights of a user with this group. Reserved blocks are for root, and for the user and the group that the
    /// superblock names (`tune2fs -u`, `-g`); group 0 there means no group.
    pub fn rights(&self, uid: u32, gid: u32) -> ReservedAccess {
        let raw = self.superblock();
        let user = u32::from(raw.def_resuid.get());
        let group = u32::from(raw.def_resgid.get());
        match uid == 0 || uid == user || group != 0 && gid == group {
            true => ReservedAccess::Reserved,
            false => ReservedAccess::Common,
        }
    }

    /// Number of bytes that can still be written into holes and beyond the ends of files with these rights, including the blocks
    /// that mapping metadata may need. 0 if the file system is not writable.
    pub fn room(&self, rights: ReservedAccess) -> u64 {
        self.allocator()
            .map_or(0, |allocator| allocator.available_for_data(rights) << self.geometry.block_bits)
    }
}
