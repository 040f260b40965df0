//! Replacement of a range in a list of extents, with merging and splitting.

use crate::map::MappedExtent;

/// Maximum length of a written extent in blocks; that of an unwritten one is one less.
const MAX_WRITTEN_BLOCKS: u32 = 32768;
const MAX_UNWRITTEN_BLOCKS: u32 = 32767;

fn longest(written: bool) -> u32 {
    if written { MAX_WRITTEN_BLOCKS } else { MAX_UNWRITTEN_BLOCKS }
}

/// Appends a piece, merged with the last one if they are adjacent, and split if it is too long.
fn push(list: &mut Vec<MappedExtent>, mut piece: MappedExtent) {
    let limit = longest(piece.written);
    if let Some(last) = list.last_mut() {
        if last.end() == u64::from(piece.logical)
            && last.start + u64::from(last.length) == piece.start
            && last.written == piece.written
            && last.length + piece.length <= limit
        {
            last.length += piece.length;
            return;
        }
    }
    while piece.length > limit {
        list.push(MappedExtent { length: limit, ..piece });
        piece = piece.from(limit);
    }
    if piece.length > 0 {
        list.push(piece);
    }
}

/// Replaces the mapping of `from..to` by `new`; returns the new list and the removed pieces.
pub(super) fn splice(
    list: &[MappedExtent],
    (from, to): (u64, u64),
    new: &[MappedExtent],
) -> (Vec<MappedExtent>, Vec<MappedExtent>) {
    let (mut after, mut removed) = (Vec::with_capacity(list.len() + new.len() + 1), Vec::new());
    let mut behind = Vec::new();
    for piece in list {
        let (start, end) = (u64::from(piece.logical), piece.end());
        if start < from {
            push(&mut after, MappedExtent { length: (end.min(from) - start) as u32, ..*piece });
        }
        let (inner, inner_end) = (start.max(from), end.min(to));
        if inner < inner_end {
            let inside = piece.from((inner - start) as u32);
            removed.push(MappedExtent { length: (inner_end - inner) as u32, ..inside });
        }
        if end > to {
            behind.push(piece.from((to.max(start) - start) as u32));
        }
    }
    for piece in new.iter().chain(&behind) {
        push(&mut after, *piece);
    }
    (after, removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn as_block_by_block(ranges in proptest::collection::vec((0_u32..200, 1_u32..40, 0_u64..3, proptest::bool::ANY), 1..40)) {
            let mut list = Vec::new();
            let mut model = vec![None; 240];
            for (logical, length, region, written) in ranges {
                let start = 1000 * region + u64::from(logical);
                // Region 2 stands for a hole.
                let new: &[MappedExtent] = &[MappedExtent { logical, length, start, written }];
                let new = if region == 2 { &[] } else { new };
                let range = (u64::from(logical), u64::from(logical + length));
                let (after, removed) = splice(&list, range, new);
                let seen: Vec<_> = removed.iter().flat_map(|piece| (0..piece.length).map(|n| piece.from(n))).collect();
                let expected = (logical..logical + length).filter_map(|n| model[n as usize].map(|(start, written)| (n, start, written)));
                proptest::prop_assert!(seen.iter().map(|piece| (piece.logical, piece.start, piece.written)).eq(expected));
                for n in 0..length {
                    let block = (start + u64::from(n), written);
                    model[(logical + n) as usize] = (region != 2).then_some(block);
                }
                list = after;
            }
            let mut flat = vec![None; 240];
            for piece in &list {
                (0..piece.length).for_each(|n| flat[(piece.logical + n) as usize] = Some((piece.start + u64::from(n), piece.written)));
            }
            proptest::prop_assert!(flat == model);
            // Adjacent pieces are merged.
            for pair in list.windows(2) {
                let is_continued_by = pair[0].end() == u64::from(pair[1].logical)
                    && pair[0].start + u64::from(pair[0].length) == pair[1].start
                    && pair[0].written == pair[1].written;
                proptest::prop_assert!(!is_continued_by);
            }
        }
    }

    #[test]
    fn long_runs_are_split() {
        let piece = MappedExtent { logical: 0, length: 100_000, start: 7, written: false };
        let (list, _) = splice(&[], (0, 100_000), &[piece]);
        assert_eq!(list.iter().map(|piece| piece.length).collect::<Vec<_>>(), [32767, 32767, 32767, 1699]);
        assert_eq!(list[3].start, 7 + 3 * 32767);
    }
}
