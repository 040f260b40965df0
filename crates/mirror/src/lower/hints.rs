//! Where inodes were seen last, also those forgotten since.

use parking_lot::Mutex;
use shunt_fuse::NodeId;

use super::node_id::Ident;

const SHARDS: usize = 64;

/// Places of one shard: all together remember a million inodes, in 16 bytes each.
const PLACES: usize = 1 << 14;

/// Places that an inode may have, the one noted last first. With half of all places in use fewer than one inode in a hundred
/// finds none of its own.
const WAYS: usize = 8;

const BUCKETS: usize = SHARDS * PLACES / WAYS;

/// Of each inode the directory in which it was seen last, by mount and inode number. It may forget, and may be out of date,
/// never invent.
///
/// Memory is taken as inodes are seen, up to 16 MiB; then each new one takes the place of the one of its bucket that was
/// noted longest ago.
pub struct Hints(Box<[Mutex<Vec<[u64; 2]>>]>);

/// Mount and number. 0 is none.
fn key(node: NodeId) -> Option<u64> {
    Ident::of(node).map(|Ident { mount, ino, .. }| u64::from(mount) << 48 | ino)
}

impl Hints {
    /// An empty memory. Where no hints are `wanted` it stays so.
    pub fn new(wanted: bool) -> Self {
        // All zero: the pages come from the kernel one by one, as they are written.
        let shard = |_| Mutex::new(vec![[0; 2]; PLACES]);
        Self((0..if wanted { SHARDS } else { 0 }).map(shard).collect())
    }

    /// Whether anything is remembered.
    pub fn are_kept(&self) -> bool {
        !self.0.is_empty()
    }

    fn bucket(&self, key: u64) -> Option<(&Mutex<Vec<[u64; 2]>>, usize)> {
        // Fibonacci hashing, whose highest bits spread runs of numbers evenly, as inodes come in.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2());
        let hash = hash as usize;
        Some((self.0.get(hash % SHARDS)?, hash / SHARDS * WAYS))
    }

    /// Takes note of where an inode was seen.
    pub fn note(&self, node: NodeId, parent: NodeId) {
        let Some(key) = key(node) else { return };
        let Some((shard, first)) = self.bucket(key) else { return };
        let mut places = shard.lock();
        let bucket = &mut places[first..first + WAYS];
        let place = bucket.iter().position(|[known, _]| *known == key).unwrap_or(WAYS - 1);
        bucket[..=place].rotate_right(1);
        bucket[0] = [key, parent.0];
    }

    /// Where an inode was seen last.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        let key = key(node)?;
        let (shard, first) = self.bucket(key)?;
        let places = shard.lock();
        let found = places[first..first + WAYS].iter().find(|[known, _]| *known == key)?;
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
    fn the_last_place_of_an_inode_is_known_and_no_other() {
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
    fn what_was_noted_longest_ago_goes_first() {
        let hints = Hints::new(true);
        (1..3_000_000).for_each(|number| hints.note(id(number), id(number)));
        assert!((2_900_000..3_000_000).all(|number| hints.parent(id(number)) == Some(id(number))));
        assert!((1..1000).all(|number| hints.parent(id(number)).is_none()));
    }
}
