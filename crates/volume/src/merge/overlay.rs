//! An overlay of changed names over stored ones. It is indexed by object and ordered by directory, since a merge may change very
//! many names.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Seq;
use crate::merge::{Conflict, DentryKey, Ino};

/// The value of a name.
pub(super) trait HasTarget {
    /// Returns the object by which the name is indexed.
    fn object(&self) -> Option<Ino>;
}

impl HasTarget for Ino {
    fn object(&self) -> Option<Ino> {
        Some(*self)
    }
}

impl HasTarget for (Ino, Seq) {
    fn object(&self) -> Option<Ino> {
        Some(self.0)
    }
}

impl HasTarget for Conflict {
    fn object(&self) -> Option<Ino> {
        self.local
    }
}

/// Names with new values on top of the stored ones; `None` hides a name.
pub(super) struct Overlay<T> {
    all: BTreeMap<DentryKey, Option<T>>,
    by_object: BTreeMap<Ino, BTreeSet<DentryKey>>,
}

impl<T> Default for Overlay<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_object: BTreeMap::new() }
    }
}

impl<T: HasTarget> Overlay<T> {
    pub fn all(&self) -> &BTreeMap<DentryKey, Option<T>> {
        &self.all
    }

    pub fn get(&self, at: &DentryKey) -> Option<&Option<T>> {
        self.all.get(at)
    }

    pub fn set(&mut self, at: DentryKey, now: Option<T>) {
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

    /// Returns the changed names in a directory.
    pub fn within(&self, parent: Ino) -> impl Iterator<Item = (&DentryKey, &Option<T>)> {
        let first = DentryKey { parent, name: Vec::new() };
        self.all.range(first..).take_while(move |(at, _)| at.parent == parent)
    }

    /// Returns the names of an object, given its stored ones.
    pub fn of(&self, num: Ino, before: Vec<DentryKey>) -> BTreeSet<DentryKey> {
        let mut names: BTreeSet<DentryKey> =
            before.into_iter().filter(|at| !self.all.contains_key(at)).collect();
        names.extend(self.by_object.get(&num).into_iter().flatten().cloned());
        names
    }
}
