//! Names that are to be different, found by what they lead to and by what they are in: a plan may have very many.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Seq;
use crate::plan::{At, Conflict, Num};

/// What is kept at a name.
pub(super) trait Leads {
    /// The object by which the name is found.
    fn object(&self) -> Option<Num>;
}

impl Leads for Num {
    fn object(&self) -> Option<Num> {
        Some(*self)
    }
}

impl Leads for (Num, Seq) {
    fn object(&self) -> Option<Num> {
        Some(self.0)
    }
}

impl Leads for Conflict {
    fn object(&self) -> Option<Num> {
        self.mine
    }
}

/// Names over those that are there, each with what it is to have, if anything.
pub(super) struct Overlay<T> {
    all: BTreeMap<At, Option<T>>,
    by_object: BTreeMap<Num, BTreeSet<At>>,
}

impl<T> Default for Overlay<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_object: BTreeMap::new() }
    }
}

impl<T: Leads> Overlay<T> {
    pub fn all(&self) -> &BTreeMap<At, Option<T>> {
        &self.all
    }

    pub fn get(&self, at: &At) -> Option<&Option<T>> {
        self.all.get(at)
    }

    pub fn set(&mut self, at: At, now: Option<T>) {
        let object = now.as_ref().and_then(T::object);
        let before = self.all.insert(at.clone(), now).flatten().and_then(|before| before.object());
        if before == object {
            return;
        }
        if let Some(before) = before
            && let Some(names) = self.by_object.get_mut(&before)
        {
            names.remove(&at);
        }
        if let Some(object) = object {
            self.by_object.entry(object).or_default().insert(at);
        }
    }

    /// Names in a directory.
    pub fn within(&self, parent: Num) -> impl Iterator<Item = (&At, &Option<T>)> {
        let first = At { parent, name: Vec::new() };
        self.all.range(first..).take_while(move |(at, _)| at.parent == parent)
    }

    /// The names of an object, which are these without it.
    pub fn of(&self, num: Num, before: Vec<At>) -> BTreeSet<At> {
        let mut names: BTreeSet<At> = before.into_iter().filter(|at| !self.all.contains_key(at)).collect();
        names.extend(self.by_object.get(&num).into_iter().flatten().cloned());
        names
    }
}
