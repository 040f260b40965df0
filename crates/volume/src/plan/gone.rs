//! Objects that the store does not have any more.

use std::collections::BTreeMap;

use crate::object::{Kind, Stored};
use crate::plan::draft::{Draft, Planning};
use crate::plan::{At, ConflictKind, Num, Tree, is_same};

/// An object that is gone: as it was, and the names that it lost here by that.
pub(super) struct Gone {
    pub before: Stored,
    pub lost: Vec<At>,
}

impl Draft<'_> {
    /// By another node: what is in a directory before the directory.
    pub(super) fn follow_gone(&mut self, mut gone: BTreeMap<Num, Gone>) -> Planning {
        let fallen = gone.iter().filter_map(|(num, gone)| Some((*num, Some(gone.lost.first()?.clone()))));
        self.fallen = fallen.collect();
        while let Some(&first) = gone.keys().next() {
            let mut deepest = first;
            let mut steps = gone.len();
            while let Some((&inner, _)) =
                gone.iter().find(|(_, inner)| inner.lost.iter().any(|at| at.parent == deepest))
                && steps > 0
            {
                deepest = inner;
                steps -= 1;
            }
            if let Some(one) = gone.remove(&deepest) {
                self.follow_one_gone(deepest, one)?;
                self.fallen.remove(&deepest);
            }
        }
        Ok(())
    }

    fn follow_one_gone(&mut self, num: Num, gone: Gone) -> Planning {
        let names = self.names(Tree::Local, num)?;
        let replaced = self.doomed.remove(&num).unwrap_or_default();
        let deleted_here = names.is_empty() && gone.lost.is_empty() && replaced.is_empty();
        let changed = self.was_changed(num, &gone.before)?;
        if deleted_here || (names.is_empty() && replaced.is_empty() && !changed) {
            return if self.is_wanted(num)? { self.rekey(num) } else { self.forget(num) };
        }
        self.rekey(num)?;
        if !changed && !gone.lost.is_empty() && !names.is_empty() {
            // It got more names here, and the store knew nothing of those: they stay.
            return Ok(());
        }
        let lost = gone.lost.first().filter(|_| changed);
        let Some(place) = lost.or(replaced.first()).or(names.first()).cloned() else { return Ok(()) };
        if self.link(&place)? == Some(num) {
            self.vacate(&place)?;
        }
        if let Some(instead) = self.link(&place)?
            && let (Some(ours), Some(theirs)) = (self.local(num)?, self.local(instead)?)
            && ours.kind != Kind::Directory
            && is_same(&ours, &theirs)
        {
            return if self.is_alive(num)? { Ok(()) } else { self.forget(num) };
        }
        let replaced = self.link(&place)?.is_some();
        let kind = if replaced { ConflictKind::Modified } else { ConflictKind::ChangedDeleted };
        self.keep(&place, kind, Some(num), None)?;
        // With its place known: what comes back into it is not to be above it.
        if self.is_directory(num)? { self.hold_directory(num) } else { Ok(()) }
    }

    /// A directory that is kept beside the tree: what the store has elsewhere goes back there, and conflicts inside are part
    /// of the one at the directory.
    pub(super) fn hold_directory(&mut self, num: Num) -> Planning {
        // What goes back may be above the place of this one: nobody asks for a way up before it has.
        self.send_home(num)?;
        self.join_sides(num)
    }

    fn send_home(&mut self, num: Num) -> Planning {
        for (name, child) in self.children(Tree::Local, num)? {
            if self.base(child)?.is_some() {
                self.set_link(&At { parent: num, name }, None);
                self.bring_home(child)?;
            } else if self.is_directory(child)? {
                self.send_home(child)?;
            }
        }
        Ok(())
    }

    /// To where the store has it, unless it is somewhere.
    fn bring_home(&mut self, num: Num) -> Planning {
        if !self.is_alive(num)? {
            for home in self.names(Tree::Base, num)? {
                self.put(&home, num)?;
            }
        }
        Ok(())
    }

    fn join_sides(&mut self, num: Num) -> Planning {
        for at in self.conflicts_in(num)? {
            if self.link(&at)?.is_none()
                && let Some(conflict) = self.conflict(&at)?
            {
                self.set_conflict(&at, None);
                match conflict.mine {
                    Some(mine) if self.base(mine)?.is_some() => self.bring_home(mine)?,
                    Some(mine) if self.fits(&at, mine)? => self.set_link(&at, Some(mine)),
                    _ => {}
                }
            }
        }
        for child in self.children(Tree::Local, num)?.into_values() {
            if self.base(child)?.is_none() && self.is_directory(child)? {
                self.join_sides(child)?;
            }
        }
        Ok(())
    }

    /// Whether a side of a conflict can be what its name leads to: a directory has one name, and is not below itself.
    fn fits(&self, at: &At, mine: Num) -> Planning<bool> {
        Ok(!self.is_directory(mine)? || !(self.is_alive(mine)? || self.is_below(at.parent, mine)?))
    }
}
