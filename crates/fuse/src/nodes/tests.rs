use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use super::node_id::{SlotId, id, parts};
use super::*;

/// An inode number that may be reused, padded to the size that just fits a cache line.
#[derive(Debug, Clone, PartialEq)]
struct Inode {
    number: u64,
    life: u32,
    ballast: [u32; 5],
    more: Box<[u8]>,
}

impl TableNode for Inode {
    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }

    fn is_same(&self, other: &Self) -> bool {
        self.life == other.life
    }

    fn heap(&self) -> usize {
        self.more.len()
    }
}

fn inode(number: u64, life: u32) -> Inode {
    Inode { number, life, ballast: [0; 5], more: Box::default() }
}

fn table() -> NodeTable<Inode> {
    NodeTable::new(inode(2, 0))
}

/// A small pseudo-random generator with a fixed seed, so that failures are reproducible.
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
        match random.below(4) {
            0 | 1 => {
                let id = table.acquire(inode(key.0, key.1)).unwrap();
                let entry = ids.entry(key).or_insert((id, 0));
                assert_eq!(entry.0, id, "an inode keeps its id");
                entry.1 += 1;
            }
            2 => {
                if let Some((id, lookups)) = ids.get_mut(&key) {
                    let part = 1 + random.below(*lookups);
                    let removed = table.forget(*id, part);
                    *lookups -= part;
                    assert_eq!(removed, (*lookups == 0).then(|| inode(key.0, key.1)));
                    if *lookups == 0 {
                        dead.push(*id);
                        ids.remove(&key);
                    }
                }
            }
            _ => {
                assert_eq!(table.find(&inode(key.0, key.1)), ids.get(&key).map(|held| held.0));
                assert_eq!(table.contains(&key.0), (0..3).any(|life| ids.contains_key(&(key.0, life))));
            }
        }
        assert_eq!(table.len(), ids.len() as u64);
    }
    for (key, (id, _)) in &ids {
        assert_eq!(table.get(*id), Ok(inode(key.0, key.1)));
    }
    for id in dead {
        assert_eq!(table.get(id), Err(Errno::STALE), "an id is never used again");
    }
}

#[test]
fn ids_from_nowhere_are_stale() {
    let table = table();
    // The node's id encodes a slot in a random shard, and may be one of these.
    let held = table.acquire(inode(5, 0)).unwrap();
    let mut random = Random(77);
    for id in [0, 2, u64::MAX, u64::MAX - 1, 1 << 32, 1 << 63]
        .into_iter()
        .chain((0..1000).map(|_| random.below(u64::MAX)))
    {
        let id = NodeId(id);
        if id == held {
            continue;
        }
        assert!(table.get(id).is_err());
        assert!(table.forget(id, u64::MAX).is_none());
    }
    assert_eq!(table.len(), 1);
}

#[test]
fn ids_say_where_a_node_is() {
    for (shard, local, generation) in [(0, 0, 1), (31, 0, 0), (7, 5, 9), (31, u32::MAX >> 5, (1 << 29) - 2)] {
        let slot = SlotId { local, generation };
        assert_eq!(parts(id(shard, slot)), Some((shard, slot)));
        assert!(node_id::is_own(id(shard, slot)));
    }
    assert_eq!(id(0, SlotId { local: 0, generation: 0 }), NodeId::ROOT);
}

#[test]
fn the_root_is_never_forgotten() {
    let table = table();
    assert!(table.forget(NodeId::ROOT, u64::MAX).is_none());
    assert_eq!(table.get(NodeId::ROOT).unwrap().number, 2);
    // Not even an inode equal to the root takes its id.
    assert_ne!(table.acquire(inode(2, 0)).unwrap(), NodeId::ROOT);
}

#[test]
fn a_reused_inode_number_is_another_node() {
    let table = table();
    let first = table.acquire(inode(9, 1)).unwrap();
    let second = table.acquire(inode(9, 2)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn more_forgets_than_lookups_end_a_node_once() {
    let table = table();
    let id = table.acquire(inode(9, 1)).unwrap();
    assert!(table.forget(id, 0).is_none());
    assert!(table.forget(id, u64::MAX).is_some());
    assert!(table.forget(id, 1).is_none());
    assert!(table.is_empty());
}

#[test]
fn a_slot_with_its_lives_used_up_retires() {
    for first in [0, 1, 12345] {
        let mut shard = Shard::new(3, first);
        let hash = |inode: &Inode| inode.number;
        let acquire = |shard: &mut Shard<Inode>| {
            parts(shard.acquire(7, &mut Some(inode(7, 0)), 1, hash).unwrap()).unwrap()
        };
        let (_, begin) = acquire(&mut shard);
        assert_eq!(begin.generation, first);
        assert!(shard.forget(begin.local, 1, hash).is_some());
        shard.age(begin.local);
        let (number, last) = acquire(&mut shard);
        assert_eq!((number, last.local, node_id::next_generation(last.generation)), (3, begin.local, first));
        assert!(shard.forget(last.local, 1, hash).is_some());
        assert!(shard.slot_of_id(last).is_none());
        let (_, next) = acquire(&mut shard);
        assert_ne!(next.local, begin.local);
        assert!(shard.slot_of_id(begin).is_none());
    }
}

#[test]
fn ids_of_an_earlier_table_are_stale() {
    let (one, two) =
        (NodeTable::beginning_with(inode(2, 0), 7), NodeTable::beginning_with(inode(2, 0), 1_000_000));
    let ids: Vec<_> = (0..100).map(|number| one.acquire(inode(100 + number, 0)).unwrap()).collect();
    for number in 0..100 {
        two.acquire(inode(100 + number, 0)).unwrap();
    }
    assert!(ids.into_iter().all(|id| two.get(id) == Err(Errno::STALE)));
}

#[test]
fn a_million_nodes_stay_within_the_memory_budget() {
    const { assert!(NodeTable::<Inode>::SLOT > 56 && NodeTable::<Inode>::SLOT <= 64) };
    let table = table();
    let nodes = 1_000_000;
    let ids: Vec<_> = (0..nodes).map(|number| table.acquire(inode(100 + number, 7)).unwrap()).collect();
    let full = table.memory();
    let per_node = full as u64 / nodes;
    assert!(per_node <= 110, "{per_node} bytes per node");
    println!("{per_node} bytes per node");
    // Other nodes reuse the memory.
    ids.into_iter().for_each(|id| drop(table.forget(id, 1)));
    assert!(table.is_empty());
    for number in 0..nodes {
        table.acquire(inode(number, 8)).unwrap();
    }
    assert!(table.memory() <= full + full / 8, "{} bytes after {full}", table.memory());
}

#[test]
fn heap_of_nodes_counts_as_memory() {
    let table = table();
    let empty = table.memory();
    let one = Inode { more: vec![0; 1 << 20].into(), ..inode(3, 0) };
    let id = table.acquire(one.clone()).unwrap();
    // The heap of an equal node is not counted twice.
    table.acquire(one).unwrap();
    let (full, more) = (table.memory(), 1 << 20);
    assert!(full > empty + more && full < empty + 2 * more);
    table.forget(id, 2).unwrap();
    assert_eq!(table.memory(), full - more);
}

/// Inode numbers are often sequential; each table's hash has its own keys.
#[test]
fn rows_of_numbers_spread_over_all_shards() {
    for step in [1, 2, 32, 4096, 1 << 32].repeat(50) {
        let table = table();
        let mut counts = [0; node_id::SHARDS];
        for number in 0..1000 {
            let id = table.acquire(inode(100 + number * step, 0)).unwrap();
            counts[(id.0 - 1) as usize % node_id::SHARDS] += 1;
        }
        let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        // The mean is 31: these are six standard deviations.
        assert!(*min > 0 && *max < 65, "{min} to {max} of steps of {step}");
    }
}

#[test]
fn cold_nodes_are_those_not_used() {
    let table = table();
    let ids: Vec<_> = (0..1000).map(|number| table.acquire(inode(100 + number, 0)).unwrap()).collect();
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

#[test]
fn threads_agree_on_ids_and_counts() {
    let table = table();
    std::thread::scope(|scope| {
        for seed in 1..5 {
            let table = &table;
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..50_000 {
                    let wanted = inode(random.below(64), 0);
                    let id = table.acquire(wanted.clone()).unwrap();
                    assert_eq!(table.get(id), Ok(wanted), "the id stays valid while it is referenced");
                    assert!(table.len() <= 64);
                    table.forget(id, 1);
                }
            });
        }
    });
    assert!(table.is_empty());
}

thread_local! {
    static TABLE: Cell<Option<&'static NodeTable<Arc<Child>>>> = const { Cell::new(None) };
}

/// Releases its parent when dropped.
struct Child {
    number: u64,
    parent: Option<NodeId>,
}

impl TableNode for Child {
    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let (Some(table), Some(parent)) = (TABLE.get(), self.parent) {
            table.forget(parent, 1);
        }
    }
}

#[test]
fn dropping_a_node_may_call_the_table() {
    let table = Box::leak(Box::new(NodeTable::new(Arc::new(Child { number: 0, parent: None }))));
    TABLE.set(Some(table));
    let child = |number, parent| Arc::new(Child { number, parent });
    let parent = table.acquire(child(1, None)).unwrap();
    let kept = table.acquire(child(2, Some(parent))).unwrap();
    // Again: a node that the table does not need is dropped, and its parent is in the same shard.
    table.acquire(child(1, None)).unwrap();
    assert_eq!(table.acquire(child(2, Some(kept))).unwrap(), kept);
    assert_eq!(table.len(), 2);
    drop(table.forget(kept, 1));
    assert_eq!(table.len(), 1);
    assert!(table.forget(parent, 1).is_some());
    assert!(table.is_empty());
}

/// An inode that defines its own id: number and generation.
#[derive(Debug, Clone, PartialEq)]
struct TrackedNode {
    number: u32,
    life: u32,
    /// The id does not distinguish generations.
    vague: bool,
}

impl TableNode for TrackedNode {
    type Key = u32;

    fn key(&self) -> u32 {
        self.number
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn id(&self) -> Option<NodeId> {
        // Number 0 violates the rule that one of the highest bits is set.
        let mark = if self.number == 0 { 0 } else { 1 << 62 };
        let life = if self.vague { 0 } else { self.life };
        Some(NodeId(mark | u64::from(life) << 32 | u64::from(self.number)))
    }

    fn key_of(id: NodeId) -> Option<u32> {
        Some(id.0 as u32)
    }
}

fn known(number: u32, life: u32) -> TrackedNode {
    TrackedNode { number, life, vague: false }
}

#[test]
fn a_node_that_brings_its_id_keeps_it_from_life_to_life() {
    let table = NodeTable::new(known(2, 0));
    let wanted = known(9, 1).id().unwrap();
    for _ in 0..3 {
        assert_eq!(table.get(wanted), Err(Errno::STALE));
        assert_eq!(table.acquire(known(9, 1)), Ok(wanted));
        assert_eq!(table.acquire(known(9, 1)), Ok(wanted));
        assert_eq!(table.find(&known(9, 1)), Some(wanted));
        assert_eq!(table.get(wanted), Ok(known(9, 1)));
        assert_eq!(table.cold(0), []);
        assert!(table.contains(&9));
        assert_eq!(table.forget(wanted, 1), None);
        assert_eq!(table.forget(wanted, 1), Some(known(9, 1)));
        assert!(table.is_empty());
    }
}

#[test]
fn another_life_of_a_number_never_answers_to_its_id() {
    let table = NodeTable::new(known(2, 0));
    let (old, new) = (table.acquire(known(9, 1)).unwrap(), table.acquire(known(9, 2)).unwrap());
    assert_ne!(old, new);
    assert_eq!(table.forget(old, 1), Some(known(9, 1)));
    assert_eq!(table.get(old), Err(Errno::STALE));
    assert_eq!(table.get(new), Ok(known(9, 2)));
}

#[test]
fn where_an_id_is_taken_or_against_the_rule_the_table_picks_one() {
    let table = NodeTable::new(known(2, 0));
    let vague = |life| TrackedNode { number: 9, life, vague: true };
    let first = table.acquire(vague(1)).unwrap();
    let second = table.acquire(vague(2)).unwrap();
    assert_eq!(Some(first), vague(1).id());
    assert!(node_id::is_own(second) && second != NodeId::ROOT);
    assert_eq!((table.get(first), table.get(second)), (Ok(vague(1)), Ok(vague(2))));
    table.forget(first, 1).unwrap();
    assert_eq!(table.acquire(vague(2)), Ok(second), "a referenced node keeps its id");
    assert_eq!(table.acquire(vague(1)), Ok(first));
    for id in [table.acquire(known(0, 0)).unwrap(), table.acquire(known(0, 7)).unwrap()] {
        assert!(node_id::is_own(id) && id != NodeId::ROOT && id.0 != 0);
        assert_eq!(table.get(id).unwrap().number, 0);
        assert!(table.forget(id, 1).is_some());
    }
}

#[test]
fn a_revived_node_goes_with_the_first_forget_and_comes_again() {
    let table = NodeTable::new(known(2, 0));
    let id = table.revive(known(9, 1)).unwrap();
    assert_eq!(table.revive(known(9, 1)), Ok(id));
    assert_eq!((table.get(id), table.len()), (Ok(known(9, 1)), 1));
    assert!(table.forget(id, 1).is_some());
    // A reply that is still in flight counts, regardless of earlier replies of another process.
    table.revive(known(9, 1)).unwrap();
    table.acquire(known(9, 1)).unwrap();
    table.acquire(known(9, 1)).unwrap();
    assert_eq!(table.forget(id, 1), None);
    assert!(table.forget(id, 1).is_some());
    assert!(table.is_empty());
}

#[test]
fn threads_that_forget_and_look_up_one_inode_agree() {
    let table = NodeTable::new(known(2, 0));
    std::thread::scope(|scope| {
        for seed in 1..5 {
            let table = &table;
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..50_000 {
                    let wanted = known(1 + random.below(8) as u32, 0);
                    let id = table.acquire(wanted.clone()).unwrap();
                    assert_eq!(Some(id), wanted.id());
                    assert_eq!(table.get(id), Ok(wanted), "the id stays valid while it is referenced");
                    table.forget(id, 1);
                }
            });
        }
    });
    assert!(table.is_empty());
}
