//! Trees of any depth: no algorithm recurses for each level, and none walks the whole path again for each object on it.
//!
//! The tests run on a small stack. `DEPTH=n` sets the depth.

use std::time::Instant;

use shunt_volume::address::MetaAddress;
use shunt_volume::id::{ObjectId, Seq};
use shunt_volume::merge::{
    ConflictKind, DentryKey, DirtySet, ROOT, Side, Snapshot, Tree, Trees as _, UploadSet, push, resolve,
};
use shunt_volume::object::LinkName;
use shunt_volume::open::{Options, create};
use shunt_volume::store::{MetaStore as _, Mutation, SqliteStore, Transaction};

use crate::indexed_tree;
use crate::indexed_tree::{FIRST, IndexedTree, chain, directory, file, name};

/// Stack size too small for recursion over many levels.
const STACK: usize = 1 << 20;

fn depth() -> u64 {
    std::env::var("DEPTH").map_or(10_000, |depth| depth.parse().unwrap())
}

fn with_little_stack(test: fn(u64)) {
    let began = Instant::now();
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || test(depth()));
    thread.unwrap().join().unwrap();
    println!("{:?}", began.elapsed());
}

/// Returns the dentries of a chain, from the top.
fn links(deep: u64) -> Vec<Mutation> {
    (0..deep).map(|n| Mutation::Link(name(n), chain(n))).collect()
}

fn unlinks(deep: u64) -> Vec<Mutation> {
    (0..deep).rev().map(|n| Mutation::Unlink(name(n))).collect()
}

fn makes(deep: u64) -> Vec<Mutation> {
    (0..deep).map(|n| Mutation::Make(directory(chain(n)))).collect()
}

/// Returns a name in the last directory of a chain.
fn below(deep: u64, called: &str) -> LinkName {
    LinkName { parent: chain(deep - 1), name: called.into() }
}

fn follows_step_by_step(deep: u64) {
    let mut tree = IndexedTree::new();
    for n in 0..deep {
        let change = vec![Mutation::Make(directory(chain(n))), Mutation::Link(name(n), chain(n))];
        tree.follow(change);
    }
    assert_eq!(tree.depth(Tree::Local), deep);
    for change in unlinks(deep) {
        tree.follow(vec![change]);
    }
    assert_eq!((tree.depth(Tree::Local), tree.objects()), (0, 1));
}

#[test]
fn a_chain_of_others_comes_and_goes_step_by_step() {
    with_little_stack(follows_step_by_step);
}

fn follows_at_once(deep: u64) {
    let mut tree = IndexedTree::new();
    tree.follow([makes(deep), links(deep)].concat());
    assert_eq!(tree.depth(Tree::Local), deep);
    // The chain moves away and back.
    let other = ObjectId(9);
    let to = LinkName { parent: other, name: b"d".to_vec() };
    let at = LinkName { parent: ObjectId::ROOT, name: b"other".to_vec() };
    tree.follow(vec![Mutation::Make(directory(other)), Mutation::Link(at, other)]);
    tree.follow(vec![Mutation::Unlink(name(0)), Mutation::Link(to.clone(), chain(0))]);
    tree.follow(vec![Mutation::Unlink(to), Mutation::Link(name(0), chain(0))]);
    assert_eq!(tree.depth(Tree::Local), deep);
    tree.follow(unlinks(deep));
    assert_eq!((tree.depth(Tree::Local), tree.objects()), (1, 2));
}

#[test]
fn a_chain_of_others_comes_moves_and_goes_at_once() {
    with_little_stack(follows_at_once);
}

fn meets_the_whole_tree(deep: u64) {
    let mut tree = IndexedTree::new();
    let mut snapshot = Snapshot::default();
    for n in 0..deep {
        snapshot.objects.insert(chain(n), indexed_tree::stored(directory(chain(n))));
        snapshot.links.insert(name(n), Some((chain(n), Seq(1))));
    }
    tree.resync(&snapshot);
    assert_eq!((tree.depth(Tree::Local), tree.depth(Tree::Base)), (deep, deep));
    // A new object at the bottom is kept, with all its ancestors.
    tree.make_here(tree.num(chain(deep - 1)).unwrap().unwrap(), "new", file(ObjectId(7)));
    tree.resync(&Snapshot { links: [(name(0), None)].into(), ..Snapshot::default() });
    let at = DentryKey { parent: ROOT, name: b"d".to_vec() };
    assert_eq!(tree.in_conflict().collect::<Vec<_>>(), [&at]);
    assert_eq!((tree.depth(Tree::Local), tree.depth(Tree::Base)), (0, 0));
    assert_eq!(tree.objects() as u64, deep + 2);
    let mut other = tree.clone();
    other.plan(|trees, fresh| resolve(trees, fresh, &at, Side::Remote));
    assert_eq!(other.objects(), 1);
    tree.plan(|trees, fresh| resolve(trees, fresh, &at, Side::Local));
    assert_eq!(tree.depth(Tree::Local), deep + 1);
}

#[test]
fn a_whole_tree_with_a_chain_is_met_and_one_without_it() {
    with_little_stack(meets_the_whole_tree);
}

fn keeps_what_is_removed(deep: u64) {
    let mut tree = IndexedTree::new();
    tree.follow([makes(deep), links(deep)].concat());
    tree.make_here(tree.num(chain(deep - 1)).unwrap().unwrap(), "new", file(ObjectId(7)));
    let mut other = tree.clone();
    tree.follow(unlinks(deep));
    for change in unlinks(deep) {
        other.follow(vec![change]);
    }
    for tree in [tree, other] {
        let conflicts: Vec<&DentryKey> = tree.in_conflict().collect();
        assert_eq!(conflicts, [&DentryKey { parent: ROOT, name: b"d".to_vec() }]);
        assert_eq!(tree.objects() as u64, deep + 2);
    }
}

#[test]
fn a_chain_that_others_remove_is_kept_for_what_is_new_in_it() {
    with_little_stack(keeps_what_is_removed);
}

fn comes_back(deep: u64) {
    let mut tree = IndexedTree::new();
    tree.follow([makes(deep), links(deep)].concat());
    tree.unlink_here_all();
    let mut other = tree.clone();
    tree.follow(vec![Mutation::SetMode(chain(deep - 1), 0o700)]);
    let new = ObjectId(7);
    other.follow(vec![Mutation::Make(file(new)), Mutation::Link(below(deep, "new"), new)]);
    let at = DentryKey { parent: ROOT, name: b"d".to_vec() };
    assert_eq!((tree.depth(Tree::Local), other.depth(Tree::Local)), (deep, deep + 1));
    assert_eq!(tree.conflict(&at).unwrap().unwrap().kind, ConflictKind::DeletedChanged);
    tree.plan(|trees, fresh| resolve(trees, fresh, &at, Side::Local));
    assert_eq!(tree.depth(Tree::Local), 0);
}

#[test]
fn a_chain_that_was_removed_here_comes_back_for_what_others_change_in_it() {
    with_little_stack(comes_back);
}

fn takes_back_a_move(deep: u64) {
    let mut tree = IndexedTree::new();
    tree.follow([makes(deep), links(deep)].concat());
    let other = ObjectId(9);
    let at = LinkName { parent: ObjectId::ROOT, name: b"other".to_vec() };
    tree.follow(vec![Mutation::Make(directory(other)), Mutation::Link(at, other)]);
    // Locally the other directory moves below the chain, remotely the chain moves into it.
    let (moved, bottom) = (tree.num(other).unwrap().unwrap(), tree.num(chain(deep - 1)).unwrap().unwrap());
    tree.set_here(DentryKey { parent: ROOT, name: b"other".to_vec() }, None);
    tree.set_here(DentryKey { parent: bottom, name: b"other".to_vec() }, Some(moved));
    let to = LinkName { parent: other, name: b"d".to_vec() };
    tree.follow(vec![Mutation::Unlink(name(0)), Mutation::Link(to, chain(0))]);
    let conflicts: Vec<&DentryKey> = tree.in_conflict().collect();
    assert_eq!(conflicts, [&DentryKey { parent: bottom, name: b"other".to_vec() }]);
    assert_eq!(
        tree.link(Tree::Local, &DentryKey { parent: ROOT, name: b"other".to_vec() }).unwrap().unwrap().0,
        moved
    );
}

#[test]
fn a_move_below_a_chain_is_taken_back() {
    with_little_stack(takes_back_a_move);
}

fn holds_a_new_chain(deep: u64) {
    let mut tree = IndexedTree::new();
    let agreed = ObjectId(9);
    let at = LinkName { parent: ObjectId::ROOT, name: b"agreed".to_vec() };
    tree.follow(vec![Mutation::Make(file(agreed)), Mutation::Link(at, agreed)]);
    tree.make_chain_here(deep);
    let (moved, bottom) = (tree.num(agreed).unwrap().unwrap(), tree.num(chain(deep - 1)).unwrap().unwrap());
    tree.set_here(DentryKey { parent: ROOT, name: b"agreed".to_vec() }, None);
    tree.set_here(DentryKey { parent: bottom, name: b"agreed".to_vec() }, Some(moved));
    let theirs = ObjectId(8);
    tree.follow(vec![Mutation::Make(file(theirs)), Mutation::Link(name(0), theirs)]);
    let conflicts: Vec<&DentryKey> = tree.in_conflict().collect();
    assert_eq!(conflicts, [&DentryKey { parent: ROOT, name: b"d".to_vec() }]);
    assert_eq!(tree.names(Tree::Local, moved).unwrap().len(), 1);
    // Nothing of the chain can be pushed.
    let planned = tree.push(&tree.todo());
    assert_eq!(planned.items, []);
    assert_eq!(planned.blocked as u64, deep - 1);
}

#[test]
fn a_new_chain_is_kept_beside_what_others_have_at_its_place() {
    with_little_stack(holds_a_new_chain);
}

/// Each restored name is taken locally by a directory that contains the next restored one.
fn goes_home_in_turn(deep: u64) {
    let mut tree = IndexedTree::new();
    let at = |n: u64| LinkName { parent: ObjectId::ROOT, name: format!("n{n}").into() };
    let id = |n: u64| ObjectId(u128::from(FIRST + n));
    let change = (0..deep).flat_map(|n| [Mutation::Make(file(id(n))), Mutation::Link(at(n), id(n))]);
    tree.follow(change.collect());
    let place = |n: u64| DentryKey { parent: ROOT, name: at(n).name };
    for n in 0..deep {
        tree.set_here(place(n), None);
    }
    for n in 0..deep {
        let moved = tree.num(id(n)).unwrap().unwrap();
        let new = tree.make_here(
            ROOT,
            &format!("n{}", (n + deep - 1) % deep),
            directory(ObjectId(u128::from(n) + 10)),
        );
        tree.set_here(DentryKey { parent: new, name: b"moved".to_vec() }, Some(moved));
    }
    // A remote change moves the first.
    let to = LinkName { parent: ObjectId::ROOT, name: b"n-".to_vec() };
    tree.follow(vec![Mutation::Unlink(at(0)), Mutation::Link(to, id(0))]);
    let new = ObjectId(8);
    tree.follow(vec![Mutation::Make(file(new)), Mutation::Link(at(0), new)]);
    assert_eq!(tree.in_conflict().count() as u64, deep);
}

#[test]
fn many_come_back_by_each_other() {
    with_little_stack(goes_home_in_turn);
}

fn is_pushed(deep: u64) {
    let mut tree = IndexedTree::new();
    tree.make_chain_here(deep);
    // Worst case: last one first.
    for backwards in [false, true] {
        let mut tree = tree.clone();
        assert_eq!(tree.push_all(backwards), deep);
        assert_eq!((tree.depth(Tree::Local), tree.depth(Tree::Base)), (deep, deep));
        tree.unlink_here_all();
        assert_eq!(tree.push_all(backwards), deep);
        assert_eq!((tree.depth(Tree::Base), tree.objects()), (0, 1));
    }
    // All in one pass, as after everything was rejected.
    let planned = push(&tree, &tree.todo(), usize::MAX, &mut UploadSet::default()).unwrap();
    assert!(planned.items.len() as u64 >= deep.min(10_000), "{}", planned.items.len());
}

#[test]
fn a_new_chain_is_sent_and_then_its_removal() {
    with_little_stack(is_pushed);
}

fn is_pushed_with_a_move(deep: u64) {
    let mut tree = IndexedTree::new();
    tree.follow([makes(deep), links(deep)].concat());
    // The bottom directory moves to the top, and all its ancestors are deleted.
    let bottom = tree.num(chain(deep - 1)).unwrap().unwrap();
    tree.unlink_here_all();
    tree.set_here(DentryKey { parent: ROOT, name: b"d".to_vec() }, Some(bottom));
    while !tree.todo().names.is_empty() {
        let DirtySet { names, .. } = tree.todo();
        let planned = tree.push(&DirtySet { names, objects: Vec::new() });
        assert_ne!(planned.items, []);
        planned.items.into_iter().for_each(|item| tree.follow_own(item.mutations));
    }
    assert_eq!((tree.depth(Tree::Local), tree.depth(Tree::Base)), (1, 1));
}

#[test]
fn the_bottom_of_a_chain_takes_the_place_of_all_of_it() {
    with_little_stack(is_pushed_with_a_move);
}

fn is_stored(deep: u64) {
    let store = SqliteStore::in_memory(&"deep".parse().unwrap(), &directory(ObjectId::ROOT), b"").unwrap();
    let node = "n".parse().unwrap();
    let item = Transaction { mutations: [makes(deep), links(deep)].concat(), ..Transaction::default() };
    store.commit(&node, 1, &[item]).unwrap().remove(0).unwrap();
    // The top moves below the bottom: a cycle.
    let change = vec![Mutation::Unlink(name(0)), Mutation::Link(below(deep, "d"), chain(0))];
    store
        .commit(&node, 2, &[Transaction { mutations: change, ..Transaction::default() }])
        .unwrap()
        .remove(0)
        .unwrap_err();
    let item = Transaction { mutations: unlinks(deep), ..Transaction::default() };
    store.commit(&node, 3, &[item]).unwrap().remove(0).unwrap();
}

#[test]
fn a_store_takes_a_chain_at_once() {
    with_little_stack(is_stored);
}

fn is_checked(deep: u64) {
    let dir = tempfile::tempdir().unwrap();
    let at = MetaAddress::Sqlite(dir.path().to_owned());
    let volume = create(&at, &"v".parse().unwrap(), &Options::default()).unwrap();
    let item = Transaction { mutations: [makes(deep), links(deep)].concat(), ..Transaction::default() };
    volume.meta.commit(&"n".parse().unwrap(), 1, &[item]).unwrap().remove(0).unwrap();
    let checked =
        shunt_volume::maintenance::fsck(&volume, shunt_volume::maintenance::Depth::Locations, &|_, _| ())
            .unwrap();
    assert_eq!((checked.problems, checked.names), (vec![], deep));
}

#[test]
fn a_volume_with_a_chain_is_checked() {
    with_little_stack(is_checked);
}
