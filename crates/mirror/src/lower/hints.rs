//! Lossy map from inodes, including forgotten ones, to the directory in which each was last seen.

use parking_lot::Mutex;
use shunt_fuse::NodeId;
use shunt_sharded::Sharded;

use super::node_id::Ident;

const SHARDS: usize = 64;

/// Entries per shard: all shards together remember a million inodes, in 16 bytes each.
const SHARD_ENTRIES: usize = 1 << 14;

/// Associativity: entries in which an inode may be stored, the latest first. With half of all entries in use, fewer
/// than one inode in a hundred finds no free one.
const WAYS: usize = 8;

const BUCKETS: usize = SHARDS * SHARD_ENTRIES / WAYS;

/// Entries of a key and a parent each, in buckets.
type Shards = Sharded<Mutex<Vec<[u64; 2]>>, SHARDS>;

/// The last known parent directory of inodes, keyed by mount and inode number. An entry may be missing or out of date,
/// but is never invented.
///
/// The table grows as inodes are seen, up to 16 MiB; then each new entry replaces the least recently noted one of its
/// bucket.
pub(super) struct Hints(Option<Box<Shards>>);

/// The key of a node: mount and inode number. 0 is none.
fn key(node: NodeId) -> Option<u64> {
    Ident::of(node).map(|Ident { mount, ino, .. }| u64::from(mount) << 48 | ino)
}

impl Hints {
    /// Creates an empty table. It stores nothing unless `enabled`.
    pub(super) fn new(enabled: bool) -> Self {
        // All-zero memory: the kernel provides each page when it is first written.
        let shard = |_| Mutex::new(vec![[0; 2]; SHARD_ENTRIES]);
        Self(enabled.then(|| Box::new(Sharded::from_fn(shard))))
    }

    /// Reports whether hints are stored.
    pub(super) fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    fn bucket(&self, key: u64) -> Option<(&Mutex<Vec<[u64; 2]>>, usize)> {
        // Fibonacci hashing: its highest bits spread consecutive inode numbers evenly.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2());
        Some((self.0.as_ref()?.by_low_bits(hash), hash as usize / SHARDS * WAYS))
    }

    /// Records the directory in which an inode was seen.
    pub(super) fn note(&self, node: NodeId, parent: NodeId) {
        let Some(key) = key(node) else { return };
        let Some((shard, first)) = self.bucket(key) else { return };
        let mut entries = shard.lock();
        let bucket = &mut entries[first..first + WAYS];
        let index = bucket.iter().position(|[known, _]| *known == key).unwrap_or(WAYS - 1);
        bucket[..=index].rotate_right(1);
        bucket[0] = [key, parent.0];
    }

    /// Returns the directory in which an inode was last seen.
    pub(super) fn parent(&self, node: NodeId) -> Option<NodeId> {
        let key = key(node)?;
        let (shard, first) = self.bucket(key)?;
        let entries = shard.lock();
        let found = entries[first..first + WAYS].iter().find(|[known, _]| *known == key)?;
        Some(NodeId(found[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ino: u64) -> NodeId {
        Ident { mount: 0, ino, generation: ino as u32 }.id().unwrap()
    }

    #[test]
    fn parent_returns_the_last_noted_directory() {
        const INODES: u64 = 500_000;
        let hints = Hints::new(true);
        for number in 1..INODES {
            hints.note(id(number), id(1));
            hints.note(id(number), id(number / 10));
        }
        let right = (1..INODES).filter(|&number| hints.parent(id(number)) == Some(id(number / 10))).count();
        assert!(right > INODES as usize * 99 / 100, "{right}");
        assert!((1..INODES).all(|number| hints.parent(id(number)) != Some(id(1)) || number / 10 == 1));
        assert_eq!(hints.parent(id(2 * INODES)), None);
        let none = Hints::new(false);
        none.note(id(1), id(2));
        assert_eq!(none.parent(id(1)), None);
    }

    #[test]
    fn a_full_bucket_replaces_the_oldest_entry() {
        let hints = Hints::new(true);
        (1..3_000_000).for_each(|number| hints.note(id(number), id(number)));
        assert!((2_900_000..3_000_000).all(|number| hints.parent(id(number)) == Some(id(number))));
        assert!((1..1000).all(|number| hints.parent(id(number)).is_none()));
    }
}
