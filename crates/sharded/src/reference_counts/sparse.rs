//! Compact table of counts for many numbers: a few bytes for each, in groups of neighbours. It shrinks when counts drop to zero.

use std::hash::Hash;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Size of a group of neighbours. Inodes of one directory mostly have consecutive numbers.
pub(super) const NEIGHBOURS: u8 = 8;

/// A number that has a count.
pub trait Number: Copy + Eq + Hash + Into<u64> {
    /// Returns the group of the number. A sharded table is compact if it stores all counts of a group in one shard.
    #[must_use]
    fn group(self) -> Self;
}

impl Number for u32 {
    #[inline]
    fn group(self) -> Self {
        self / Self::from(NEIGHBOURS)
    }
}

impl Number for u64 {
    #[inline]
    fn group(self) -> Self {
        self / Self::from(NEIGHBOURS)
    }
}

/// Sparse array of counts by number.
///
/// Groups store the lowest bytes of the counts of neighbours; the higher bytes are stored the same way in `above`, so that only
/// large counts cost more bytes. A group of 32-bit numbers takes 13 bytes in a table that is 7/16 to 7/8 full: neighbours take
/// 1.9 to 3.7 bytes each, a lone number 15 to 30.
#[derive(Debug)]
pub(super) struct SparseCounts<K> {
    lowest: HashMap<K, [u8; NEIGHBOURS as usize]>,
    above: Option<Box<SparseCounts<K>>>,
}

impl<K> Default for SparseCounts<K> {
    fn default() -> Self {
        Self { lowest: HashMap::new(), above: None }
    }
}

impl<K: Number> SparseCounts<K> {
    pub(super) fn get(&self, number: K) -> u64 {
        let lowest = self.lowest.get(&number.group()).map_or(0, |group| group[place(number)]);
        let above = self.above.as_ref().map_or(0, |above| above.get(number));
        above << 8 | u64::from(lowest)
    }

    pub(super) fn set(&mut self, number: K, count: u64) {
        match (self.lowest.entry(number.group()), count as u8) {
            (Entry::Occupied(mut group), lowest) => {
                group.get_mut()[place(number)] = lowest;
                if *group.get() == [0; NEIGHBOURS as usize] {
                    group.remove();
                    self.give_back();
                }
            }
            (Entry::Vacant(_), 0) => {}
            (Entry::Vacant(group), lowest) => group.insert(Default::default())[place(number)] = lowest,
        }
        if count >> 8 != 0 {
            self.above.get_or_insert_default().set(number, count >> 8);
        } else if let Some(above) = &mut self.above {
            above.set(number, 0);
            self.above.take_if(|above| above.is_empty());
        }
    }

    /// Returns the numbers with a count, in ascending order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers = self.above.as_ref().map_or_else(Vec::new, |above| above.numbers());
        for (&group, counts) in &self.lowest {
            let first = group.into() * u64::from(NEIGHBOURS);
            numbers.extend((first..).zip(counts).filter(|(_, count)| **count > 0).map(|(number, _)| number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn is_empty(&self) -> bool {
        self.lowest.is_empty() && self.above.is_none()
    }

    /// Shrinks a table of which less than 1/8 is in use. It grows again only once the number of groups has doubled.
    fn give_back(&mut self) {
        let groups = self.lowest.len();
        if groups < self.lowest.capacity() / 8 {
            self.lowest.shrink_to(groups * 2);
        }
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let above = self.above.as_ref().map_or(0, |above| size_of::<Self>() + above.bytes());
        self.lowest.allocation_size() + above
    }
}

fn place(number: impl Into<u64>) -> usize {
    (number.into() % u64::from(NEIGHBOURS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_size_come_back() {
        let mut counts = SparseCounts::<u32>::default();
        let all = [1, 255, 256, 257, 65_535, 65_536, u64::MAX, 0];
        for (number, count) in (0..).zip(all) {
            counts.set(number, count);
        }
        assert_eq!(std::array::from_fn(|number| counts.get(number as u32)), all);
        assert_eq!(counts.numbers(), [0, 1, 2, 3, 4, 5, 6]);
        for number in 0..8 {
            counts.set(number, 0);
        }
        assert!(counts.is_empty());
    }

    #[test]
    fn a_carry_leaves_the_rest_alone() {
        let mut counts = SparseCounts::<u32>::default();
        for count in 1..=70_000 {
            counts.set(9, count);
            assert_eq!((counts.get(8), counts.get(9), counts.get(10)), (0, count, 0));
        }
        for count in (0..70_000).rev() {
            counts.set(9, count);
            assert_eq!(counts.get(9), count);
        }
        assert!(counts.is_empty());
    }

    #[test]
    fn what_is_forgotten_takes_no_memory() {
        let mut counts = SparseCounts::<u32>::default();
        (0..100_000).for_each(|number| counts.set(number, 300));
        let peak = counts.bytes();
        (0..100_000).rev().for_each(|number| counts.set(number, 0));
        assert!(counts.is_empty());
        assert!(counts.bytes() < peak / 1000, "{} of {peak}", counts.bytes());
    }
}
