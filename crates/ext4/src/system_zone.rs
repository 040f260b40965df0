//! System zone (block_validity.c): the blocks of group metadata and of the journal, which no file may own.
//!
//! A map that references them is corrupt or malicious: following it would expose other inodes or overwrite file system metadata.
//! Mappings are checked against the zone when they are followed, and blocks when they are freed or allocated.

use crate::error::Corruption;

/// Ranges of blocks, sorted, and not adjacent to each other. With `flex_bg` there are few: about 500 for 1 TiB.
#[derive(Debug, Default)]
pub(crate) struct SystemZone(Box<[(u64, u64)]>);

impl SystemZone {
    /// Builds the zone of ranges (start, end) in any order. Also returns the first block that two of them share.
    pub(crate) fn new(mut ranges: Vec<(u64, u64)>) -> (Self, Option<u64>) {
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

    /// Returns the parts of the ranges that overlap `start..end`.
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
                "blocks {start}+{count} cannot belong to a file: block {block} is metadata of the file system"
            ))),
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
