//! Compact table of counts for many inodes: a few bytes for each, in groups of neighbours. It shrinks when counts drop to zero.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Number of inodes whose counts share a group. Inodes of one directory mostly have consecutive numbers.
pub(super) const TOGETHER: u32 = 8;

/// Sparse array of counts by inode number.
///
/// Groups store the lowest bytes of the counts of neighbours; the higher bytes are stored the same way in `above`, so that only
/// large counts cost more bytes. A group takes 13 bytes in a table that is 7/16 to 7/8 full: neighbours take 1.9 to 3.7 bytes
/// each, a lone inode 15 to 30.
#[derive(Debug, Default)]
pub(super) struct Counts {
    lowest: HashMap<u32, [u8; TOGETHER as usize]>,
    above: Option<Box<Counts>>,
}

impl Counts {
    pub(super) fn get(&self, number: u32) -> u64 {
        let lowest = self.lowest.get(&(number / TOGETHER)).map_or(0, |group| group[place(number)]);
        let above = self.above.as_ref().map_or(0, |above| above.get(number));
        above << 8 | u64::from(lowest)
    }

    pub(super) fn set(&mut self, number: u32, count: u64) {
        match (self.lowest.entry(number / TOGETHER), count as u8) {
            (Entry::Occupied(mut group), lowest) => {
                group.get_mut()[place(number)] = lowest;
                if *group.get() == [0; TOGETHER as usize] {
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

fn place(number: u32) -> usize {
    (number % TOGETHER) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_size_come_back() {
        let mut counts = Counts::default();
        let all = [1, 255, 256, 257, 65_535, 65_536, u64::MAX, 0];
        for (number, count) in (0..).zip(all) {
            counts.set(number, count);
        }
        assert_eq!(std::array::from_fn(|number| counts.get(number as u32)), all);
        for number in 0..8 {
            counts.set(number, 0);
        }
        assert!(counts.is_empty());
    }

    #[test]
    fn a_carry_leaves_the_rest_alone() {
        let mut counts = Counts::default();
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
        let mut counts = Counts::default();
        (0..100_000).for_each(|number| counts.set(number, 300));
        let most = counts.bytes();
        (0..100_000).rev().for_each(|number| counts.set(number, 0));
        assert!(counts.is_empty());
        assert!(counts.bytes() < most / 1000, "{} of {most}", counts.bytes());
    }
}
