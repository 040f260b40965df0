//! Random operations of users.

use std::collections::BTreeSet;

use rand::RngExt as _;
use rand::rngs::SmallRng;
use shunt_volume::id::OwnerId;
use shunt_volume::merge::{DentryKey, Ino, ROOT, Side, Tree, Trees as _, resolve};
use shunt_volume::object::{Content, Kind, Layout, Object, Time};
use shunt_volume::sync::SyncReplica as _;

use crate::merge_simulation::memory_replica::{MemoryReplica, TreeState};

pub fn content(token: u64) -> Content {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&token.to_be_bytes());
    Content { size: 8, digest, layout: Layout::Inline(token.to_be_bytes().to_vec()) }
}

pub fn token(object: &Object) -> Option<u64> {
    match (&object.kind, &object.content.layout) {
        (Kind::Regular, Layout::Inline(bytes)) => Some(u64::from_be_bytes(bytes.as_slice().try_into().ok()?)),
        _ => None,
    }
}

/// Returns all objects that a user can reach: the tree, and this node's sides of conflicts with their contents.
pub fn visible(state: &TreeState) -> BTreeSet<Ino> {
    let mut found = BTreeSet::from([ROOT]);
    let mut queue = vec![ROOT];
    while let Some(num) = queue.pop() {
        let children = state.links.iter().filter(|(at, _)| at.parent == num).map(|(_, child)| *child);
        let beside =
            state.conflicts.iter().filter(|(at, _)| at.parent == num).filter_map(|(_, one)| one.local);
        for child in children.chain(beside) {
            if found.insert(child) {
                queue.push(child);
            }
        }
    }
    found
}

fn is_below(state: &TreeState, mut num: Ino, above: Ino) -> bool {
    loop {
        if num == above {
            return true;
        }
        if num == ROOT {
            return false;
        }
        let name = state.links.iter().find(|(_, child)| **child == num).map(|(at, _)| at.parent);
        let side = state.conflicts.iter().find(|(_, one)| one.local == Some(num)).map(|(at, _)| at.parent);
        match name.or(side) {
            Some(parent) => num = parent,
            None => return false,
        }
    }
}

pub struct User<'a> {
    pub memory: &'a MemoryReplica,
    pub rng: &'a mut SmallRng,
    pub next_token: &'a mut u64,
    /// Time of this node's clock.
    pub now: Time,
}

impl User<'_> {
    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.rng.random_range(0..of.len())].clone())
    }

    fn name(&mut self) -> Vec<u8> {
        vec![b'a' + self.rng.random_range(0..4u8)]
    }

    /// Executes one random operation; impossible ones are skipped.
    pub fn act(&mut self) {
        let mut state = std::mem::take(&mut *self.memory.current.borrow_mut());
        let all = visible(&state);
        let directories: Vec<Ino> =
            all.iter().copied().filter(|num| state.local[num].kind == Kind::Directory).collect();
        let files: Vec<Ino> =
            all.iter().copied().filter(|num| state.local[num].kind == Kind::Regular).collect();
        let names: Vec<DentryKey> = state
            .links
            .keys()
            .filter(|at| all.contains(&at.parent) && !state.conflicts.contains_key(at))
            .cloned()
            .collect();
        let parent = self.pick(&directories).unwrap_or(ROOT);
        let to = DentryKey { parent, name: self.name() };
        let free = !state.conflicts.contains_key(&to);
        let what = self.rng.random_range(0..100);
        crate::merge_simulation::log(|| format!("{} does {what}, perhaps at {to:?}", self.memory.name));
        match what {
            0..20 if free && !state.links.contains_key(&to) => {
                let content = self.new_content(&mut state);
                self.make(&mut state, to, Kind::Regular, content);
            }
            20..32 if free && !state.links.contains_key(&to) => {
                self.make(&mut state, to, Kind::Directory, Content::empty());
            }
            32..50 => {
                if let Some(num) = self.pick(&files) {
                    let content = self.new_content(&mut state);
                    crate::merge_simulation::log(|| format!("  write {num}: {}", self.next_token));
                    let object = state.local.get_mut(&num).unwrap();
                    state.ended.extend(token(object));
                    object.content = content;
                    object.modified = self.now;
                    *state.versions.entry(num).or_default() += 1;
                }
            }
            50..56 => {
                let mode = self.rng.random_range(0..4);
                if let Some(num) = self.pick(&all.iter().copied().collect::<Vec<_>>()) {
                    state.local.get_mut(&num).unwrap().mode = 0o700 | mode;
                }
            }
            56..60 => {
                if let Some(num) = self.pick(&files) {
                    let value = vec![self.rng.random_range(0..3)];
                    let xattrs = &mut state.local.get_mut(&num).unwrap().xattrs;
                    if value[0] == 0 {
                        drop(xattrs.remove(&b"x"[..]))
                    } else {
                        drop(xattrs.insert(b"x".to_vec(), value))
                    }
                }
            }
            60..78 if free => {
                if let Some(from) = self.pick(&names) {
                    crate::merge_simulation::log(|| format!("  rename {from:?} {to:?}"));
                    rename(&mut state, &from, &to);
                }
            }
            78..83 if free && !state.links.contains_key(&to) => {
                if let Some(num) = self.pick(&files) {
                    state.links.insert(to, num);
                }
            }
            83..94 => {
                if let Some(at) = self.pick(&names) {
                    crate::merge_simulation::log(|| format!("  remove {at:?}"));
                    remove(&mut state, &at);
                }
            }
            94..97 => {
                let conflicts: Vec<DentryKey> = state.conflicts.keys().cloned().collect();
                if let Some(at) = self.pick(&conflicts) {
                    let keep = if self.rng.random() { Side::Local } else { Side::Remote };
                    *self.memory.current.borrow_mut() = state;
                    self.resolve(&at, keep);
                    return;
                }
            }
            _ => {}
        }
        *self.memory.current.borrow_mut() = state;
    }

    fn new_content(&mut self, state: &mut TreeState) -> Content {
        // Occasionally the same content as another user's.
        if self.rng.random_range(0..12) == 0 {
            return content(1);
        }
        *self.next_token += 1;
        state.wrote.insert(*self.next_token);
        content(*self.next_token)
    }

    fn make(&mut self, state: &mut TreeState, at: DentryKey, kind: Kind, content: Content) {
        let id = self.memory.new_id();
        let object = Object {
            id,
            kind,
            mode: 0o700,
            owner: OwnerId(0),
            group: OwnerId(0),
            modified: self.now,
            target: Vec::new(),
            content,
            xattrs: Default::default(),
        };
        let num = state.next;
        crate::merge_simulation::log(|| format!("  make {num} {kind:?}: {}", self.next_token));
        state.next += 1;
        state.nums.insert(id, num);
        state.local.insert(num, object);
        state.links.insert(at, num);
    }

    fn resolve(&mut self, at: &DentryKey, keep: Side) {
        crate::merge_simulation::log(|| format!("  resolve {at:?} {keep:?}"));
        let before: BTreeSet<u64> = tokens(&self.memory.current.borrow());
        let was = self.memory.current.borrow().clone();
        let done = (&self.memory).change(None, &mut |trees, fresh| resolve(trees, fresh, at, keep));
        if done.is_err() {
            *self.memory.current.borrow_mut() = was;
            return;
        }
        let after = tokens(&self.memory.current.borrow());
        self.memory.current.borrow_mut().ended.extend(before.difference(&after));
        self.memory.lasts();
    }
}

fn tokens(state: &TreeState) -> BTreeSet<u64> {
    visible(state).iter().filter_map(|num| token(&state.local[num])).collect()
}

fn unlinked(state: &mut TreeState, num: Ino) {
    if !state.links.values().any(|child| *child == num)
        && !state.conflicts.values().any(|one| one.local == Some(num))
    {
        state.ended.extend(token(&state.local[&num]));
        if !state.base.contains_key(&num) {
            let object = state.local.remove(&num).unwrap();
            state.nums.remove(&object.id);
        }
    }
}

fn is_empty(state: &TreeState, num: Ino) -> bool {
    state.children(Tree::Local, num).unwrap().is_empty() && state.conflicts_in(num).unwrap().is_empty()
}

fn remove(state: &mut TreeState, at: &DentryKey) {
    let num = state.links[at];
    if state.local[&num].kind == Kind::Directory && !is_empty(state, num) {
        return;
    }
    state.links.remove(at);
    unlinked(state, num);
}

fn rename(state: &mut TreeState, from: &DentryKey, to: &DentryKey) {
    let moved = state.links[from];
    let is_directory = state.local[&moved].kind == Kind::Directory;
    if is_directory && is_below(state, to.parent, moved) {
        return;
    }
    if let Some(&there) = state.links.get(to) {
        let over_directory = state.local[&there].kind == Kind::Directory;
        if there == moved || over_directory != is_directory || (over_directory && !is_empty(state, there)) {
            return;
        }
        state.links.remove(from);
        state.links.insert(to.clone(), moved);
        unlinked(state, there);
        return;
    }
    state.links.remove(from);
    state.links.insert(to.clone(), moved);
}
