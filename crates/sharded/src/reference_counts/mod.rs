//! Reference counts of many objects by number, such as the FUSE lookup counts (nlookup) of inodes.
//!
//! The kernel may hold references to all inodes of a file system at once: nearly all of them cost a count only, so counts are
//! compact.

mod sparse;

pub use sparse::Number;
use sparse::SparseCounts;

/// Reference counts by number; a number without references takes no memory. A shard of a [`Sharded`](crate::Sharded) table,
/// selected by the [`group`](Number::group) of a number.
#[derive(Debug)]
pub struct ReferenceCounts<K> {
    counts: SparseCounts<K>,
    /// Number of counts that are not zero.
    len: u64,
}

impl<K> Default for ReferenceCounts<K> {
    fn default() -> Self {
        Self { counts: SparseCounts::default(), len: 0 }
    }
}

impl<K: Number> ReferenceCounts<K> {
    /// Increments a count.
    pub fn add(&mut self, number: K) {
        self.set(number, self.get(number).saturating_add(1));
    }

    /// Returns a count.
    pub fn get(&self, number: K) -> u64 {
        self.counts.get(number)
    }

    /// Sets a count.
    pub fn set(&mut self, number: K, count: u64) {
        let before = self.counts.get(number);
        self.len += u64::from(count > 0);
        self.len -= u64::from(before > 0);
        self.counts.set(number, count);
    }

    /// Decreases a count; reports whether it dropped to zero. A count that is lower than `references` drops to zero, one that is
    /// zero already stays.
    #[must_use]
    pub fn remove(&mut self, number: K, references: u64) -> bool {
        let before = self.counts.get(number);
        if before == 0 {
            return false;
        }
        let left = before.saturating_sub(references);
        self.counts.set(number, left);
        self.len -= u64::from(left == 0);
        left == 0
    }

    /// Reports whether a count is above zero.
    pub fn contains(&self, number: K) -> bool {
        self.counts.get(number) > 0
    }

    /// Returns the numbers whose counts are above zero.
    pub fn numbers(&self) -> Vec<u64> {
        self.counts.numbers()
    }

    /// Returns how many counts are above zero.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reports whether all counts are zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
