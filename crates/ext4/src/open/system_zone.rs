//! The system zone of a file system, collected from its group descriptors and its journal when it is opened.

use crate::buffer::MetadataCache;
use crate::error::{Corruption, Result};
use crate::group_desc::GroupDesc;
use crate::journal::JournalArea;
use crate::layout::SUPERBLOCK_OFFSET;
use crate::superblock::Geometry;
use crate::system_zone::SystemZone;

impl SystemZone {
    /// Of a file system that is to be written.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) where two structures claim a block, and for descriptors that are
    /// damaged.
    pub(crate) fn of(store: &MetadataCache, journal: Option<&JournalArea>) -> Result<Self> {
        let geometry = store.geometry();
        let mut ranges = Vec::new();
        for number in 0..geometry.groups {
            ranges.extend(of_group(geometry, number, &GroupDesc::read(geometry, store, number)?));
        }
        ranges.extend(journal.into_iter().flat_map(JournalArea::ranges));
        match Self::new(ranges) {
            (zone, None) => Ok(zone),
            (_, Some(block)) => {
                let what = "more than one group, or a group and the journal, have their metadata here";
                Err(Corruption::new(what).block(block).into())
            }
        }
    }

    /// As much as can be known of one that is only read.
    pub(crate) fn known(store: &MetadataCache, journal: Option<&JournalArea>) -> Self {
        let geometry = store.geometry();
        let mut ranges = Vec::new();
        for number in 0..geometry.groups.min(MAX_GROUPS_READ) {
            // Damage elsewhere in a block of descriptors is told by who needs them.
            let Ok(group) = GroupDesc::read(geometry, store, number) else { break };
            ranges.extend(of_group(geometry, number, &group));
        }
        ranges.extend(journal.into_iter().flat_map(JournalArea::ranges));
        Self::new(ranges).0
    }
}

fn of_group(geometry: &Geometry, number: u32, group: &GroupDesc) -> [(u64, u64); 4] {
    let table = u64::from(geometry.inode_table_blocks());
    let start = geometry.group_start(number);
    [
        (start, (start + geometry.first_blocks(number)).min(geometry.blocks)),
        (group.block_bitmap, group.block_bitmap + 1),
        (group.inode_bitmap, group.inode_bitmap + 1),
        (group.inode_table, group.inode_table + table),
    ]
}

impl Geometry {
    /// Blocks at the start of a group for superblock and descriptors, or copies of them, and room for more of these.
    fn first_blocks(&self, group: u32) -> u64 {
        let per_block = self.descriptors_per_block();
        let copy = self.has_superblock(group);
        // In the first group a boot sector may lie before it, in a block of its own.
        let superblock = match group {
            0 => (SUPERBLOCK_OFFSET >> self.block_bits) + 1 - u64::from(self.first_data_block),
            _ => copy.into(),
        };
        superblock
            + match self.first_meta_bg {
                Some(first) if group / per_block >= first => {
                    u64::from(matches!(group % per_block, 0 | 1) || group % per_block == per_block - 1)
                }
                Some(first) if copy => u64::from(first) + u64::from(self.reserved_descriptors),
                None if copy => {
                    u64::from(self.groups.div_ceil(per_block)) + u64::from(self.reserved_descriptors)
                }
                _ => 0,
            }
    }
}

/// Groups whose metadata is known where the file system is only read: with more, some maps that are wrong read as
/// something else than an error.
const MAX_GROUPS_READ: u32 = 1 << 20;
