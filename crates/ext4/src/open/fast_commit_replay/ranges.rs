//! Sets of blocks, stored as ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent ranges: start to end.
#[derive(Debug, Default, Clone)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds `start..end`.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|&(_, &to)| to >= start) {
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        self.0.insert(start, end);
    }

    /// Reports whether the set overlaps `start..end`.
    pub(super) fn meets(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, &to)| to > start)
    }

    /// Returns the parts of `start..end` that are not in the set.
    pub(super) fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut at = start;
        let first = self.0.range(..=start).next_back().map_or(start, |(&from, _)| from);
        for (&from, &to) in self.0.range(first..end.max(first)) {
            if from > at {
                missing.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&start, &end)| (start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn as_one_by_one(ranges in proptest::collection::vec((0_u64..100, 0_u64..20), 0..30), ask in (0_u64..100, 1_u64..30)) {
            let (mut set, mut model) = (Ranges::default(), [false; 200]);
            for (start, length) in ranges {
                set.insert(start, start + length);
                model[start as usize..(start + length) as usize].fill(true);
            }
            let seen: Vec<u64> = set.iter().flat_map(|(start, end)| start..end).collect();
            let expected: Vec<u64> = (0..200).filter(|&n| model[n as usize]).collect();
            proptest::prop_assert_eq!(seen, expected);
            let (from, to) = (ask.0, ask.0 + ask.1);
            let missing: Vec<u64> = set.missing(from, to).into_iter().flat_map(|(start, end)| start..end).collect();
            let expected: Vec<u64> = (from..to).filter(|&n| !model[n as usize]).collect();
            proptest::prop_assert_eq!(set.meets(from, to), expected.len() as u64 != to - from);
            proptest::prop_assert_eq!(missing, expected);
        }
    }
}
