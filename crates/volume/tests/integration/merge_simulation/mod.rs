//! Simulation of the merge: nodes, a store and an unreliable network, in one thread and from one seed.
//!
//! Users of some nodes change a tree at random while replies are lost and nodes crash. Once the network works again and all
//! nodes have synchronised, all nodes have the store's tree, and every content that a user wrote and no user who saw it deleted
//! or overwrote is in the tree or shown in a conflict.
//!
//! `SEED=n` runs one seed, and `LOG=1` logs its events; `SEEDS=n` sets the number of seeds; with `TIME=s` the run continues for
//! that many seconds from `SEED` on, or from the seed in the file `STATE`, which is updated.

mod memory_replica;
mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::faulty_metadata_store::FaultyMetaStore;
pub use crate::common::seed_loop::{self, log};
use memory_replica::{MemoryReplica, TreeState};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use shunt_volume::id::{ObjectId, OwnerId};
use shunt_volume::merge::{ATTRIBUTE, KEEP_BOTH_VALUE, ROOT, Tree, Trees as _};
use shunt_volume::object::{Content, Kind, Object, Time};
use shunt_volume::store::MetaStore;
use shunt_volume::store::SqliteStore;
use shunt_volume::store::admin::StoreAdmin as _;
use shunt_volume::sync::{Step, SyncError, SyncReplica as _, Synchroniser};

struct Node<'a> {
    memory: &'a MemoryReplica,
    net: Arc<FaultyMetaStore>,
    sync: Synchroniser<&'a MemoryReplica>,
    skew: i64,
}

fn root() -> Object {
    Object {
        id: ObjectId::ROOT,
        kind: Kind::Directory,
        mode: 0o755,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: BTreeMap::new(),
    }
}

/// Contents that were written, and those that were deleted or overwritten. The difference must still exist.
#[derive(Default)]
struct LiveContents {
    wrote: BTreeSet<u64>,
    ended: BTreeSet<u64>,
}

impl LiveContents {
    fn commit(&mut self, memory: &MemoryReplica) {
        let (wrote, ended) = memory.commit();
        self.wrote.extend(wrote);
        self.ended.extend(ended);
    }
}

fn run(seed: u64) -> Result<(), String> {
    run_by(seed, root(), None)
}

/// Runs a seed plain, and again in a variant: nodes lose and regain write permission (even seeds), or conflicts are resolved as
/// they arise (odd seeds).
fn run_all(seed: u64) -> Result<(), String> {
    run(seed)?;
    match seed % 2 {
        0 => run_by(seed, root(), Some(SmallRng::seed_from_u64(seed.rotate_left(32))))
            .map_err(|error| format!("with roles: {error}")),
        _ => run_by(
            seed,
            Object { xattrs: [(ATTRIBUTE.to_vec(), KEEP_BOTH_VALUE.to_vec())].into(), ..root() },
            None,
        )
        .map_err(|error| format!("beside: {error}")),
    }
}

fn run_by(seed: u64, root: Object, mut roles: Option<SmallRng>) -> Result<(), String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let decides = !root.xattrs.is_empty();
    let kept = Arc::new(SqliteStore::in_memory(&"sim".parse().unwrap(), &root, b"").unwrap());
    let store: Arc<dyn MetaStore> = kept.clone();
    let mut forget_rng = SmallRng::seed_from_u64(!seed);
    let base = store.get(&[ObjectId::ROOT]).unwrap().remove(0).unwrap();
    let count = rng.random_range(2..=4usize);
    let memories: Vec<MemoryReplica> = (0..count)
        .map(|n| MemoryReplica::new(&format!("node{n}"), (n as u128 + 1) << 64, base.clone()))
        .collect();
    let mut nodes: Vec<Node<'_>> = Vec::new();
    for (n, memory) in memories.iter().enumerate() {
        let net = Arc::new(FaultyMetaStore::new(store.clone(), seed ^ (n as u64 + 1) << 32));
        let sync = synchroniser(memory, &net, &mut rng);
        nodes.push(Node { memory, net, sync, skew: rng.random_range(-1000..1000) });
    }
    let mut alive = LiveContents::default();
    let mut next_token = 1;
    let (mut time, rounds) = (0, rng.random_range(5..60));
    for _ in 0..rounds {
        if forget_rng.random_range(0..8) == 0 {
            let up_to = kept.truncate_log(Time(i64::MAX), forget_rng.random_range(0..8)).unwrap();
            log(|| format!("the store forgets what was up to {up_to}"));
        }
        let n = rng.random_range(0..count);
        let node = &mut nodes[n];
        {
            let mut faults = node.net.state.lock();
            faults.cut = rng.random_range(0..4) == 0;
            faults.bad = rng.random_range(0..40);
            faults.denied = roles.as_mut().is_some_and(|roles| roles.random_range(0..3) == 0);
        }
        for _ in 0..rng.random_range(0..8) {
            time += 1;
            let now = Time(time + node.skew);
            user::User { memory: node.memory, rng: &mut rng, next_token: &mut next_token, now }.act();
            if rng.random_range(0..3) == 0 {
                alive.commit(node.memory);
            }
        }
        if rng.random_range(0..6) == 0 {
            node.memory.crash_in.set(Some(rng.random_range(0..8)));
        }
        for _ in 0..rng.random_range(0..4) {
            alive.commit(node.memory);
            let outcome = node.sync.step();
            log(|| format!("{} step: {outcome:?}", node.memory.name));
            match outcome {
                Ok(_) | Err(SyncError::Store(_)) => {}
                Err(_) if node.memory.crash_in.get() == Some(0) => {
                    log(|| format!("{} crashes at a step", node.memory.name));
                    node.memory.crash();
                    node.memory.crash_in.set(None);
                    node.sync = synchroniser(node.memory, &node.net, &mut rng);
                }
                Err(error) => return Err(format!("{} cannot go on: {error}", node.memory.name)),
            }
            check_tree(&node.memory.current.borrow())
                .map_err(|error| format!("{}: {error}", node.memory.name))?;
        }
        if rng.random_range(0..10) == 0 {
            // Without a chance to save anything.
            log(|| format!("{} crashes", node.memory.name));
            node.memory.crash();
        }
        node.memory.crash_in.set(None);
    }
    heal(&mut nodes, &mut alive)?;
    if let Some(node) =
        nodes.iter().find(|node| decides && !node.memory.current.borrow().conflicts.is_empty())
    {
        return Err(format!("{}: conflicts are left", node.memory.name));
    }
    compare(&nodes, &alive)
}

fn synchroniser<'a>(
    memory: &'a MemoryReplica,
    net: &Arc<FaultyMetaStore>,
    rng: &mut SmallRng,
) -> Synchroniser<&'a MemoryReplica> {
    let mut tokens = SmallRng::seed_from_u64(rng.random());
    Synchroniser::new(memory, net.clone(), memory.name.clone(), move || tokens.random())
}

fn heal(nodes: &mut [Node<'_>], alive: &mut LiveContents) -> Result<(), String> {
    for node in nodes.iter_mut() {
        let mut faults = node.net.state.lock();
        (faults.cut, faults.denied, faults.bad) = (false, false, 0);
    }
    for _ in 0..400 {
        let mut quiet = true;
        for node in nodes.iter_mut() {
            alive.commit(node.memory);
            let step = node.sync.step().map_err(|error| format!("{}: {error}", node.memory.name))?;
            log(|| format!("{} heals: {step:?}", node.memory.name));
            check_tree(&node.memory.current.borrow())
                .map_err(|error| format!("{}: {error}", node.memory.name))?;
            quiet &= Step { blocked: 0, ..step } == Step::default();
        }
        if quiet {
            return Ok(());
        }
    }
    let todo: Vec<_> = nodes.iter().map(|node| (&node.memory).dirty_set(0, 100).unwrap().0).collect();
    Err(format!("there is no end: {todo:?}"))
}

/// Checks the invariants of a node.
fn check_tree(state: &TreeState) -> Result<(), String> {
    for (at, num) in &state.links {
        if !state.local.contains_key(num) || !state.local.contains_key(&at.parent) {
            return Err(format!("{at:?} leads to {num}, and one of them is not there"));
        }
        if state.local[num].kind == Kind::Directory && state.names(Tree::Local, *num).unwrap().len() > 1 {
            return Err(format!("directory {num} has two names"));
        }
    }
    for (at, one) in &state.conflicts {
        if one.local.is_some_and(|local| !state.local.contains_key(&local)) {
            return Err(format!("{at:?}: {one:?} is not there"));
        }
    }
    for (at, (num, _)) in &state.base_links {
        if !state.base.contains_key(num) || !state.base.contains_key(&at.parent) {
            return Err(format!("{at:?} was agreed to lead to {num}, and one of them was not"));
        }
    }
    let visible = user::visible(state);
    let conflicts: Vec<_> = state.conflicts.keys().filter(|at| !visible.contains(&at.parent)).collect();
    if !conflicts.is_empty() {
        return Err(format!("nobody sees the conflicts {conflicts:?}"));
    }
    for at in state.links.keys() {
        if !visible.contains(&at.parent) {
            return Err(format!("nobody can get at {at:?}"));
        }
    }
    Ok(())
}

fn compare(nodes: &[Node<'_>], alive: &LiveContents) -> Result<(), String> {
    let mut first: Option<String> = None;
    let mut seen = BTreeSet::new();
    for node in nodes {
        let state = node.memory.current.borrow();
        let visible = user::visible(&state);
        seen.extend(visible.iter().filter_map(|num| user::token(&state.local[num])));
        for (num, base) in &state.base {
            // Deleted locally; the deletion waits with a side of a conflict that it must be committed with.
            let waits = *num != ROOT && state.names(Tree::Local, *num).unwrap().is_empty();
            if !waits && state.local.get(num).is_none_or(|here| *here != base.object) {
                return Err(format!(
                    "{}: {num} is not as agreed: {:?}",
                    node.memory.name,
                    state.local.get(num)
                ));
            }
        }
        let beside: BTreeSet<_> = state.conflicts.values().filter_map(|one| one.local).collect();
        for num in state.local.keys() {
            let waits = !(&node.memory).dirty_set(0, 100).unwrap().0.names.is_empty();
            if !waits && !visible.contains(num) && !beside.contains(num) {
                let todo = node.memory.dirty_set(0, 100).unwrap();
                return Err(format!(
                    "{}: {num} is there for nothing: {todo:?} {:?}",
                    node.memory.name, state.conflicts
                ));
            }
        }
        let tree = describe(&state);
        match &first {
            None => first = Some(tree),
            Some(other) if *other != tree => {
                return Err(format!("{} has another tree:\n{tree}\nthan\n{other}", node.memory.name));
            }
            Some(_) => {}
        }
    }
    let lost: Vec<_> =
        alive.wrote.iter().filter(|one| !alive.ended.contains(one) && !seen.contains(one)).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("contents {lost:?} are lost")) }
}

fn describe(state: &TreeState) -> String {
    let mut lines: Vec<String> = state
        .base_links
        .iter()
        .map(|(at, (num, _))| {
            let parent = state.base[&at.parent].object.id;
            format!("{parent}/{} {:?}", at.name.escape_ascii(), state.base[num].object)
        })
        .collect();
    lines.push(format!("{:?}", state.base[&ROOT].object));
    lines.sort();
    lines.join("\n")
}

#[test]
fn random_schedules_lose_no_data() {
    seed_loop::each("seeds", 150, run_all);
}

/// Bugs that these seeds found: A directory was restored into one that was itself to be kept below it (7655, 9078), or that had
/// no place at that moment (14349). Base names stayed in a directory of which this node had pushed the deletion (8455). Of
/// changes that form an atomic group one was left out (15083). Directories that are sides of conflicts in each other were lost
/// together (28714). One was moved into another that was to leave it and could not (35390). One that lost its name to the store
/// was taken to be below itself by a conflict (58487). Commits that had been applied were applied again with the whole tree
/// (103243). An object that returns to its remote parent was asked for its path while it was still in a side below itself
/// (124046). A directory that this node had moved, and moved back since, also appeared at the other place with the whole tree
/// (226518). Two local files were the one that others created with several names: a further name of the first led to nothing
/// (295105). An object that this node had put in the place of another's, and that others had moved since, also stayed there
/// with the whole tree (357787).
#[test]
fn regressions_stay_fixed() {
    for seed in [7655, 8455, 9078, 14349, 15083, 28714, 35390, 58487, 103_243, 124_046, 295_105] {
        run(seed).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
    }
    for seed in [226_518, 357_787] {
        run_all(seed).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
    }
}
