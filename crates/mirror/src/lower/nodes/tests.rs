use std::collections::HashMap;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::*;

fn node(ino: u64, generation: u32) -> Node {
    let handle: Vec<u8> = (ino as u32).to_ne_bytes().into_iter().chain(generation.to_ne_bytes()).collect();
    Node {
        ino,
        mount: 0,
        device: 0,
        kind: FileType::RegularFile,
        location: Location::Handle(FileHandle::new(1, &handle)),
    }
}

fn table() -> NodeTable {
    NodeTable::new(Node { kind: FileType::Directory, ..node(2, 0) })
}

/// A small generator of its own, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn agrees_with_a_model_over_random_lookups_and_forgets() {
    let table = table();
    let mut random = Random(0x5eed);
    let mut ids: HashMap<(u64, u32), (NodeId, u64)> = HashMap::new();
    let mut dead: Vec<NodeId> = Vec::new();
    for _ in 0..200_000 {
        let key = (random.below(500), random.below(3) as u32);
        match random.below(3) {
            0 | 1 => {
                let id = table.acquire(node(key.0, key.1)).unwrap();
                let entry = ids.entry(key).or_insert((id, 0));
                assert_eq!(entry.0, id, "one inode, one id");
                entry.1 += 1;
            }
            _ => {
                if let Some((id, lookups)) = ids.get_mut(&key) {
                    let part = 1 + random.below(*lookups);
                    let gone = table.forget(*id, part);
                    *lookups -= part;
                    assert_eq!(gone.is_some(), *lookups == 0);
                    if *lookups == 0 {
                        dead.push(*id);
                        ids.remove(&key);
                    }
                }
            }
        }
        assert_eq!(table.len(), ids.len() as u64);
    }
    for (key, (id, _)) in &ids {
        assert_eq!(table.get(*id).unwrap().ino, key.0);
    }
    for id in dead {
        assert_eq!(table.get(id).unwrap_err(), Errno::STALE, "an id is never used again");
    }
}

#[test]
fn ids_from_nowhere_are_stale() {
    let table = table();
    table.acquire(node(5, 0)).unwrap();
    let mut random = Random(77);
    for id in [0, 2, u64::MAX, u64::MAX - 1, 1 << 32, 1 << 63]
        .into_iter()
        .chain((0..1000).map(|_| random.below(u64::MAX)))
    {
        let id = NodeId(id);
        assert!(table.get(id).is_err());
        assert!(table.forget(id, u64::MAX).is_none());
    }
    assert_eq!(table.len(), 1);
}

#[test]
fn the_root_is_never_forgotten() {
    let table = table();
    assert!(table.forget(NodeId::ROOT, u64::MAX).is_none());
    assert_eq!(table.get(NodeId::ROOT).unwrap().ino, 2);
    // Not even an inode equal to it takes its id.
    assert_ne!(table.acquire(node(2, 0)).unwrap(), NodeId::ROOT);
}

#[test]
fn a_reused_inode_number_is_another_node() {
    let table = table();
    let first = table.acquire(node(9, 1)).unwrap();
    let second = table.acquire(node(9, 2)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn a_million_nodes_stay_within_the_memory_budget() {
    let table = table();
    let nodes = 1_000_000;
    for ino in 0..nodes {
        table.acquire(node(100 + ino, 7)).unwrap();
    }
    let per_node = table.memory() as u64 / nodes;
    assert!(per_node <= 110, "{per_node} bytes per node");
    println!("{per_node} bytes per node");
}

#[test]
fn cold_nodes_are_those_not_used() {
    let table = table();
    let ids: Vec<_> = (0..1000).map(|ino| table.acquire(node(100 + ino, 0)).unwrap()).collect();
    assert_eq!(table.cold(100_000).len(), 1000, "marks are cleared once around");
    let (hot, cold) = ids.split_at(500);
    for id in hot {
        table.get(*id).unwrap();
    }
    let mut chosen = table.cold(400);
    chosen.sort();
    chosen.dedup();
    assert!(chosen.len() >= 300);
    assert!(chosen.iter().all(|id| cold.contains(id)));
}
