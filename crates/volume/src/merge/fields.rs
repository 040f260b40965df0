//! Three-way merge of the fields of an object. Fields changed on one side are taken over; fields changed to different values on
//! both sides are a conflict, except modification times and attributes of directories.

use std::collections::BTreeSet;

use crate::merge::staged_tree::{MergeResult, StagedTree};
use crate::merge::{ConflictKind, Ino, ROOT, Tree};
use crate::object::{Field, Kind, Object, VersionedObject};

/// Reports whether a field is equal in both objects.
pub(super) fn agrees(field: &Field, one: &Object, other: &Object) -> bool {
    match field {
        Field::Content => one.content.is_same(&other.content),
        Field::Mode => one.mode == other.mode,
        Field::Owner => one.owner == other.owner,
        Field::Group => one.group == other.group,
        Field::Modified => one.modified == other.modified,
        Field::Xattr(name) => one.xattrs.get(name) == other.xattrs.get(name),
    }
}

fn take(field: &Field, to: &mut Object, from: &Object) {
    match field {
        Field::Content => to.content = from.content.clone(),
        Field::Mode => to.mode = from.mode,
        Field::Owner => to.owner = from.owner,
        Field::Group => to.group = from.group,
        Field::Modified => to.modified = from.modified,
        Field::Xattr(name) => match from.xattrs.get(name) {
            Some(value) => drop(to.xattrs.insert(name.clone(), value.clone())),
            None => drop(to.xattrs.remove(name)),
        },
    }
}

/// Returns the fields in which two states of an object differ.
pub(super) fn differing(one: &Object, other: &Object) -> Vec<Field> {
    let plain = [Field::Content, Field::Mode, Field::Owner, Field::Group, Field::Modified];
    let xattrs: BTreeSet<&Vec<u8>> = one.xattrs.keys().chain(other.xattrs.keys()).collect();
    plain
        .into_iter()
        .chain(xattrs.into_iter().map(|name| Field::Xattr(name.clone())))
        .filter(|field| !agrees(field, one, other))
        .collect()
}

/// Reports whether two states differ in more than modification times, which are no reason for a conflict.
pub(super) fn differs(one: &Object, other: &Object) -> bool {
    differing(one, other).iter().any(|field| *field != Field::Modified)
}

/// Three-way merge into `local`; returns the fields that both sides changed to different values.
pub(super) fn merge(local: &mut Object, base: &Object, remote: &Object) -> Vec<Field> {
    let mut clash = Vec::new();
    for field in differing(base, remote) {
        if agrees(&field, local, remote) {
            continue;
        }
        if agrees(&field, local, base) || (field == Field::Modified && local.modified < remote.modified) {
            take(&field, local, remote);
        } else if field != Field::Modified {
            clash.push(field);
        }
    }
    clash
}

impl StagedTree<'_> {
    /// Merges changes by the store of an object whose base was `before`.
    pub(super) fn follow_fields(&mut self, num: Ino, before: &VersionedObject) -> MergeResult {
        let (Some(mut local), Some(remote)) = (self.local(num)?, self.base(num)?) else { return Ok(()) };
        if !self.has_local_name(num)? {
            if !differs(&before.object, &remote.object) {
                return Ok(());
            }
            let mut back = num;
            if self.is_reachable(num)? && local.kind != Kind::Directory {
                // It exists only as the local side of a conflict.
                back = self.split_versions(num, remote)?;
            } else {
                self.set_local(num, Some(remote.object));
            }
            return self.revive_changed(back);
        }
        let clash = merge(&mut local, &before.object, &remote.object);
        if clash.is_empty() || local.kind == Kind::Directory {
            for field in &clash {
                tracing::warn!(
                    "{field:?} of directory {} changed on this node and in the store: keeping the store's",
                    local.id
                );
                take(field, &mut local, &remote.object);
            }
            self.set_local(num, Some(local));
            return Ok(());
        }
        let kind = match clash.contains(&Field::Content) {
            true => ConflictKind::Modified,
            false => ConflictKind::Attributes,
        };
        let (id, names) = (local.id, self.names(Tree::Local, num)?);
        let homes = self.names(Tree::Base, num)?;
        self.split_versions(num, remote)?;
        match names.iter().find(|at| homes.contains(at)).or(names.first()) {
            Some(at) => self.record_conflict(at, kind, Some(num), Some(id)),
            None => Ok(()),
        }
    }

    /// Restores an object that was deleted locally and changed in the store; the deletion is the local side of the conflict.
    pub(super) fn revive_changed(&mut self, num: Ino) -> MergeResult {
        for at in self.names(Tree::Base, num)? {
            let fell_with_directory = !self.has_local_name(at.parent)?;
            let in_the_way = self.link(&at)?;
            self.place_remote(&at, num)?;
            if !fell_with_directory && in_the_way.is_none() {
                self.record_conflict(&at, ConflictKind::DeletedChanged, None, None)?;
            }
        }
        Ok(())
    }

    /// Splits an object into two versions. The inode number stays with the local one, since programs may have it open; all
    /// names now refer to the store's version, whose new number is returned.
    fn split_versions(&mut self, num: Ino, remote: VersionedObject) -> MergeResult<Ino> {
        let id = remote.object.id;
        let names = self.names(Tree::Local, num)?;
        let homes = self.names(Tree::Base, num)?;
        let remote_num = self.new_num();
        self.assign_new_id(num)?;
        self.set_local(remote_num, Some(remote.object.clone()));
        self.set_num(id, Some(remote_num));
        self.set_base(remote_num, Some(remote))?;
        for at in &homes {
            if let Some((_, seq)) = self.base_link(at)? {
                self.set_base_link(at, Some((remote_num, seq)))?;
            }
        }
        for at in &names {
            self.set_link(at, Some(remote_num));
        }
        Ok(remote_num)
    }

    /// Reports whether users changed more than modification times since `before`.
    pub(super) fn was_changed(&self, num: Ino, before: &VersionedObject) -> MergeResult<bool> {
        let Some(local) = self.local(num)? else { return Ok(false) };
        if num == ROOT || local.kind != Kind::Directory {
            return Ok(differs(&local, &before.object));
        }
        Ok(!self.children(Tree::Local, num)?.is_empty() || !self.conflicts_in(num)?.is_empty())
    }
}
