//! Where inodes were seen last, also those forgotten since.

use parking_lot::Mutex;
use shunt_fuse::NodeId;

const SHARDS: usize = 64;

/// Places of one shard: all together remember a million inodes, in 16 bytes each.
const PLACES: usize = 1 << 14;

/// Of each inode the directory in which it was seen last. It may forget, and may be out of date, never invent.
///
/// Memory is taken as inodes are seen, up to 16 MiB; then each new one takes the place of another.
pub struct Hints(Box<[Mutex<Vec<[u64; 2]>>]>);

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

    fn place(&self, node: NodeId) -> Option<(&Mutex<Vec<[u64; 2]>>, usize)> {
        // Fibonacci hashing: numbers of inodes come in runs.
        let hash = (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        Some((self.0.get(hash % SHARDS)?, hash / SHARDS % PLACES))
    }

    /// Takes note of where an inode was seen.
    pub fn note(&self, node: NodeId, parent: NodeId) {
        if let Some((shard, place)) = self.place(node) {
            shard.lock()[place] = [node.0, parent.0];
        }
    }

    /// Where an inode was seen last.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        let (shard, place) = self.place(node)?;
        let [known, parent] = shard.lock()[place];
        (known == node.0).then_some(NodeId(parent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_of_an_inode_is_known_and_no_other() {
        let hints = Hints::new(true);
        let id = |number: u64| NodeId(1 << 63 | number);
        for number in 1..100_000 {
            hints.note(id(number), id(1));
            hints.note(id(number), id(number / 10));
        }
        let right = (1..100_000).filter(|&number| hints.parent(id(number)) == Some(id(number / 10))).count();
        assert!(right > 80_000, "{right}");
        assert!((1..100_000).all(|number| hints.parent(id(number)) != Some(id(1)) || number / 10 == 1));
        assert_eq!(hints.parent(id(200_000)), None);
        let none = Hints::new(false);
        none.note(id(1), id(2));
        assert_eq!(none.parent(id(1)), None);
    }
}
