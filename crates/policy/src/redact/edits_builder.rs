//! Construction of the [`Edits`] of a file from replacements that may overlap.
//!
//! A byte that any replacement hides is never shown: zeros take precedence over spaces, and both over bytes, whichever
//! was found first. Where replacements by different bytes overlap, the bytes are zeros. Bytes that were computed from a
//! larger source (compressed text, checksums) reveal all of it, so they are zeros if any part of the source is hidden.

use std::collections::BTreeSet;
use std::ops::Range;

use super::edits::{Edits, Fill};

/// The bytes that replace a range.
#[derive(Debug)]
struct Replacement {
    /// The range from which the bytes were computed; `None` if each byte reveals only the one that it replaces.
    source: Option<Range<u64>>,
    offset: u64,
    bytes: Box<[u8]>,
}

/// Replacements in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct EditsBuilder {
    /// Ranges that the policy hides, whatever they contain.
    hidden: Vec<Range<u64>>,
    zeros: Vec<Range<u64>>,
    spaces: Vec<Range<u64>>,
    replacements: Vec<Replacement>,
}

/// A replacement that covers a range; of bytes, the index.
enum Cover {
    Zeros,
    Spaces,
    Bytes(usize),
}

impl EditsBuilder {
    /// Hides a range, and with it all bytes that were computed from any part of it.
    pub(super) fn hide(&mut self, range: Range<u64>) {
        self.hidden.push(range);
    }

    pub(super) fn zeros(&mut self, range: Range<u64>) {
        self.zeros.push(range);
    }

    pub(super) fn spaces(&mut self, range: Range<u64>) {
        self.spaces.push(range);
    }

    /// Replaces a range in place: each byte reveals only the one that it replaces.
    pub(super) fn replace(&mut self, offset: u64, bytes: impl Into<Box<[u8]>>) {
        self.replacements.push(Replacement { source: None, offset, bytes: bytes.into() });
    }

    /// Replaces a range by bytes that were computed from `source`.
    pub(super) fn derive(&mut self, source: Range<u64>, offset: u64, bytes: impl Into<Box<[u8]>>) {
        self.replacements.push(Replacement { source: Some(source), offset, bytes: bytes.into() });
    }

    /// Resolves overlaps, in a sweep over the ends of all ranges.
    pub(super) fn build(mut self) -> Edits {
        self.hidden = merged(self.hidden);
        let mut ends = Vec::new();
        let mut add = |range: Range<u64>, cover: fn(usize) -> Cover, index| {
            if !range.is_empty() {
                ends.push((range.start, true, cover(index)));
                ends.push((range.end, false, cover(index)));
            }
        };
        for (index, replacement) in self.replacements.iter().enumerate() {
            let Replacement { source, offset, bytes } = replacement;
            let reveals = source.as_ref().is_some_and(|source| self.hides_part_of(source));
            let range = *offset..offset.saturating_add(bytes.len() as u64);
            add(range, if reveals { |_| Cover::Zeros } else { Cover::Bytes }, index);
        }
        self.hidden.iter().chain(&self.zeros).for_each(|range| add(range.clone(), |_| Cover::Zeros, 0));
        self.spaces.iter().for_each(|range| add(range.clone(), |_| Cover::Spaces, 0));
        ends.sort_by_key(|(at, ..)| *at);

        let mut edits = Edits::default();
        let (mut from, mut zeros, mut spaces, mut bytes) = (0, 0usize, 0usize, BTreeSet::new());
        for (at, begins, cover) in ends {
            if from < at {
                let length = at - from;
                if zeros > 0 {
                    edits.append(from, Fill::Zeros(length));
                } else if spaces > 0 {
                    edits.append(from, Fill::Spaces(length));
                } else if !bytes.is_empty() {
                    edits.append(from, self.bytes(&bytes, from..at));
                }
                from = at;
            }
            match (cover, begins) {
                (Cover::Zeros, true) => zeros += 1,
                (Cover::Zeros, false) => zeros -= 1,
                (Cover::Spaces, true) => spaces += 1,
                (Cover::Spaces, false) => spaces -= 1,
                (Cover::Bytes(index), true) => drop(bytes.insert(index)),
                (Cover::Bytes(index), false) => drop(bytes.remove(&index)),
            }
        }
        edits
    }

    /// Reports whether the policy hides any part of a range. The hidden ranges are merged.
    fn hides_part_of(&self, range: &Range<u64>) -> bool {
        let first = self.hidden.partition_point(|hidden| hidden.end <= range.start);
        !range.is_empty() && self.hidden.get(first).is_some_and(|hidden| hidden.start < range.end)
    }

    /// Returns the bytes for a range that all of these replacements cover; where they differ, zeros.
    fn bytes(&self, covering: &BTreeSet<usize>, range: Range<u64>) -> Fill {
        let mut parts = covering.iter().map(|index| {
            let Replacement { offset, bytes, .. } = &self.replacements[*index];
            &bytes[(range.start - offset) as usize..(range.end - offset) as usize]
        });
        let mut bytes = parts.next().unwrap_or_default().to_vec();
        for part in parts {
            bytes.iter_mut().zip(part).filter(|(byte, other)| byte != other).for_each(|(byte, _)| *byte = 0);
        }
        Fill::Bytes(bytes.into())
    }
}

/// Sorts ranges, and joins those that overlap or touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let joins = next.start <= range.end;
        if joins {
            range.end = range.end.max(next.end);
        }
        joins
    });
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The size of the file in these tests.
    const SIZE: u64 = 40;

    #[derive(Debug, Clone)]
    enum Op {
        Hide(Range<u64>),
        Zeros(Range<u64>),
        Spaces(Range<u64>),
        Replace(u64, Vec<u8>),
        Derive(Range<u64>, u64, Vec<u8>),
    }

    fn range() -> impl Strategy<Value = Range<u64>> {
        (0..SIZE, 0..12u64).prop_map(|(start, length)| start..start + length)
    }

    fn op() -> impl Strategy<Value = Op> {
        // Few values, so that replacements often agree.
        let bytes = || proptest::collection::vec(b'a'..b'c', 0..12);
        prop_oneof![
            range().prop_map(Op::Hide),
            range().prop_map(Op::Zeros),
            range().prop_map(Op::Spaces),
            (0..SIZE, bytes()).prop_map(|(offset, bytes)| Op::Replace(offset, bytes)),
            (range(), 0..SIZE, bytes()).prop_map(|(source, offset, bytes)| Op::Derive(source, offset, bytes)),
        ]
    }

    fn built(ops: &[Op]) -> Edits {
        let mut builder = EditsBuilder::default();
        for op in ops.iter().cloned() {
            match op {
                Op::Hide(range) => builder.hide(range),
                Op::Zeros(range) => builder.zeros(range),
                Op::Spaces(range) => builder.spaces(range),
                Op::Replace(offset, bytes) => builder.replace(offset, bytes),
                Op::Derive(source, offset, bytes) => builder.derive(source, offset, bytes),
            }
        }
        builder.build()
    }

    /// Returns what one byte reads as, by the rules: `.` is an unchanged byte.
    fn expected(ops: &[Op], at: u64) -> u8 {
        let is_revealing = |source: &Range<u64>| {
            let hides =
                |op: &Op| matches!(op, Op::Hide(hidden) if source.clone().any(|at| hidden.contains(&at)));
            ops.iter().any(hides)
        };
        let mut seen = Vec::new();
        for op in ops {
            seen.extend(match op {
                Op::Hide(range) | Op::Zeros(range) => range.contains(&at).then_some(0),
                Op::Spaces(range) => range.contains(&at).then_some(b' '),
                Op::Replace(offset, bytes) => {
                    at.checked_sub(*offset).and_then(|n| bytes.get(n as usize)).copied()
                }
                Op::Derive(source, offset, bytes) => {
                    let byte = at.checked_sub(*offset).and_then(|n| bytes.get(n as usize)).copied();
                    byte.map(|byte| if is_revealing(source) { 0 } else { byte })
                }
            });
        }
        match &seen[..] {
            [] => b'.',
            seen if seen.contains(&0) => 0,
            seen if seen.contains(&b' ') => b' ',
            [first, rest @ ..] if rest.iter().all(|byte| byte == first) => *first,
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn a_byte_that_any_replacement_hides_is_never_shown(ops in proptest::collection::vec(op(), 0..12)) {
            let edits = built(&ops);
            let whole: Vec<u8> = (0..SIZE + 16).map(|at| expected(&ops, at)).collect();
            for offset in 0..whole.len() {
                for length in 0..whole.len() - offset {
                    let mut window = vec![b'.'; length];
                    edits.apply(offset as u64, &mut window);
                    prop_assert_eq!(&window[..], &whole[offset..offset + length], "{} {}", offset, length);
                }
            }
        }

        #[test]
        fn the_order_of_replacements_does_not_matter(ops in proptest::collection::vec(op(), 0..12)) {
            let reversed: Vec<Op> = ops.iter().rev().cloned().collect();
            prop_assert_eq!(built(&ops), built(&reversed));
        }
    }

    #[test]
    fn ranges_up_to_the_largest_offset_are_hidden() {
        let edits = built(&[Op::Hide(u64::MAX - 2..u64::MAX), Op::Replace(u64::MAX - 1, b"ab".to_vec())]);
        let mut bytes = *b"..";
        edits.apply(u64::MAX - 2, &mut bytes);
        assert_eq!(bytes, [0, 0]);
    }
}
