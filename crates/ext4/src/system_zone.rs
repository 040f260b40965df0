//! Blocks that no file can have: what the groups need for themselves, and the journal.
//!
//! A map that leads there is damaged, or made to do damage: who follows it would read other people's inodes, or write
//! over what all else hangs on. Maps are held against this when they are followed, and blocks when they are freed or
//! given out.

use crate::buffer::MetadataCache;
use crate::error::{Corruption, Result};
use crate::group_desc::GroupDesc;
use crate::journal::JournalArea;
use crate::layout::SUPERBLOCK_OFFSET;
use crate::superblock::Geometry;

/// Groups whose metadata is known where the file system is only read: with more, some maps that are wrong read as
/// something else than an error.
const MAX_GROUPS_READ: u32 = 1 << 20;

/// Ranges of blocks, in order, with room between any two. Where metadata lies together (`flex_bg`) there are few: about
/// 500 for 1 TiB.
#[derive(Debug, Default)]
pub(crate) struct SystemZone(Box<[(u64, u64)]>);

impl SystemZone {
    /// Of ranges (start, end) in any order. Tells the first block that two of them have, too.
    fn new(mut ranges: Vec<(u64, u64)>) -> (Self, Option<u64>) {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut shared = None;
        ranges.dedup_by(|next, last| {
            if next.0 > last.1 {
                return false;
            }
            if next.0 < last.1 {
                shared.get_or_insert(next.0);
            }
            last.1 = last.1.max(next.1);
            true
        });
        (Self(ranges.into()), shared)
    }

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

    /// The ranges that meet `start..end`, as far as they do.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.partition_point(|range| range.1 <= start);
        let those = self.0[first..].iter().take_while(move |range| range.0 < end);
        those.map(move |range| (range.0.max(start), range.1.min(end)))
    }

    /// Checks blocks that a file claims.
    pub(crate) fn check(&self, start: u64, count: u64) -> std::result::Result<(), Corruption> {
        match self.within(start, start + count).next() {
            None => Ok(()),
            Some((block, _)) => Err(Corruption::new(format!(
                "blocks {start}+{count} are not a file's: {block} is metadata of the file system"
            ))),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_put_together_and_found() {
        let (zone, shared) = SystemZone::new(vec![(30, 40), (10, 12), (12, 15), (20, 20), (15, 16)]);
        assert_eq!((&*zone.0, shared), (&[(10, 16), (30, 40)][..], None));
        for (start, count, good) in
            [(1, 9, true), (1, 10, false), (15, 1, false), (16, 14, true), (39, 9, false)]
        {
            assert_eq!(zone.check(start, count).is_ok(), good, "{start}+{count}");
        }
        assert!(zone.check(40, 1 << 40).is_ok() && zone.check(0, 1 << 40).is_err());
        assert_eq!(zone.within(11, 35).collect::<Vec<_>>(), [(11, 16), (30, 35)]);
        assert_eq!(SystemZone::new(vec![(5, 9), (1, 6), (8, 9)]).1, Some(5));
    }
}
