//! The system zone of a file system, collected from its group descriptors and its journal when it is opened.

use crate::buffer::MetadataCache;
use crate::error::{Corruption, Result};
use crate::group_desc::GroupDesc;
use crate::journal::JournalArea;
use crate::layout::SUPERBLOCK_OFFSET;
use crate::superblock::Geometry;
use crate::system_zone::SystemZone;

impl SystemZone {
    /// Builds the zone of a file system that is opened for writing.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if two structures claim the same block, and for damaged descriptors.
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
                let what = "metadata of more than one group, or of a group and the journal, overlaps here";
                Err(Corruption::new(what).block(block).into())
            }
        }
    }

    /// Builds the zone of a read-only file system, as far as descriptors are readable.
    pub(crate) fn of_readable(store: &MetadataCache, journal: Option<&JournalArea>) -> Self {
        let geometry = store.geometry();
        let mut ranges = Vec::new();
        for number in 0..geometry.groups.min(MAX_GROUPS_READ) {
            // Damage in other descriptors is reported when they are needed.
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
    /// Number of blocks at the start of a group for the superblock and descriptors, or their copies, and for reserved
    /// descriptors.
    fn first_blocks(&self, group: u32) -> u64 {
        let per_block = self.descriptors_per_block();
        let copy = self.has_superblock(group);
        // In the first group, a boot sector may precede the superblock in a block of its own.
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

/// Number of groups covered on a read-only file system. Beyond it, some corrupt maps yield wrong data instead of an error.
const MAX_GROUPS_READ: u32 = 1 << 20;
