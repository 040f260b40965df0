//! The reserved blocks that a user may have, and the room that is left with them.

use crate::allocate::ReservedAccess;
use crate::filesystem::Filesystem;

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
