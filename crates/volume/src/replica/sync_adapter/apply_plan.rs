//! Writes the changes of a merge plan to the tables of the replica, including the directories that present conflicts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::OptionalExtension as _;
use rustix::io::Errno;

use super::tree_view::unknown;
use super::{ConflictDirs, ContentCache};
use crate::id::{OwnerId, Seq};
use crate::merge::{Changes, DentryKey, Ino};
use crate::object::{Content, Kind, Object, Time, VersionedObject};
use crate::replica::db::ReplicaDb;
use crate::replica::db::conflict_dirs::ConflictDir;
use crate::replica::db::inode::{Dirty, Inode};
use crate::replica::error::Result;
use crate::replica::sync_adapter::apply_transaction::{Invalidation, differences, unnamed};
use crate::replica::sync_adapter::conflicts::entries;
use crate::replica::{Applying, CacheState, Shared};

impl Applying<'_> {
    pub(super) fn write(
        &mut self,
        changes: Changes,
        mut shown: ConflictDirs,
        content_cache: &ContentCache,
    ) -> Result<(), Errno> {
        let mut stale = Vec::new();
        let done = self.work(|db, shared| {
            ChangeWriter {
                db,
                shared,
                content_cache,
                invalidations: &mut stale,
                unlinked: Vec::new(),
                orphan_candidates: BTreeSet::new(),
            }
            .all(changes, &mut shown)
        });
        self.invalidations.append(&mut stale);
        done
    }
}

struct ChangeWriter<'a> {
    db: &'a mut ReplicaDb,
    shared: &'a Shared,
    content_cache: &'a ContentCache,
    invalidations: &'a mut Vec<Invalidation>,
    /// Objects that lost a name, once per name. They may get another one, so unlinked objects are removed last.
    unlinked: Vec<Ino>,
    /// Objects that may no longer be referenced.
    orphan_candidates: BTreeSet<Ino>,
}

impl ChangeWriter<'_> {
    fn all(mut self, changes: Changes, shown: &mut ConflictDirs) -> Result<()> {
        self.db.begin()?;
        self.free_ids(&changes)?;
        for (num, (local, base)) in &changes.objects {
            self.object(*num, local.as_ref(), base.as_ref())?;
        }
        let mut touched: BTreeSet<DentryKey> = changes.conflicts.keys().cloned().collect();
        touched.extend(changes.links.keys().filter(|at| shown.at(at).is_some()).cloned());
        let mut links = changes.links;
        // For users, the target of a name with a conflict is decided by the conflict.
        let mut conflicts = BTreeMap::new();
        // Objects whose only name may have been in a conflict directory.
        let mut sides: BTreeSet<Ino> = BTreeSet::new();
        for at in touched {
            let old = shown.at(&at).cloned();
            sides.extend(old.iter().flat_map(|one| one.remote.into_iter().chain(one.conflict.local)));
            let now = match changes.conflicts.get(&at) {
                Some(conflict) => conflict.clone(),
                None => old.as_ref().map(|one| one.conflict.clone()),
            };
            let (local, base) = match links.get(&at) {
                Some(link) => *link,
                None => {
                    let physical = self.db.link_of(at.parent, &at.name)?;
                    let base = match self.db.link_differs(at.parent, &at.name)? {
                        true => self.db.base_link(at.parent, &at.name)?,
                        false if old.is_some() => None,
                        false => physical,
                    };
                    let local = match &old {
                        Some(one) => one.remote,
                        None => physical.map(|(child, _)| child),
                    };
                    (local, base)
                }
            };
            sides.extend(now.iter().flat_map(|conflict| local.into_iter().chain(conflict.local)));
            let target = match &now {
                Some(conflict) => {
                    let directory = match &old {
                        Some(one) => one.directory,
                        None => self.new_directory(at.parent)?,
                    };
                    let one = ConflictDir { conflict: conflict.clone(), remote: local, directory };
                    shown.set(self.db, &at, one)?;
                    Some(directory)
                }
                None => {
                    if let Some(one) = &old {
                        self.clear_directory(one.directory)?;
                        shown.remove(self.db, &at)?;
                        self.orphan_candidates.insert(one.directory);
                    }
                    local
                }
            };
            links.insert(at.clone(), (target, base));
            conflicts.insert(at, now.is_some());
        }
        let mut shown_conflicts: BTreeSet<DentryKey> =
            conflicts.into_iter().filter(|(_, is_shown)| *is_shown).map(|(at, _)| at).collect();
        for (at, (local, base)) in &links {
            let before = self.db.link_of(at.parent, &at.name)?.map(|(child, _)| child);
            self.link(at, *local, *base)?;
            if before != *local {
                sides.extend(before.into_iter().chain(*local));
            }
        }
        for &num in changes.objects.keys() {
            // A conflict may still present it, and decides where it is removed.
            if self.db.find(num)?.is_some_and(|inode| inode.links == 0) {
                sides.insert(num);
            }
        }
        // A directory has one name: one that was only in a conflict may have a name now, or the other way round.
        for num in sides {
            if self.db.find(num)?.is_some_and(|inode| inode.is_directory()) {
                shown_conflicts.extend(shown.sides(num));
                shown_conflicts.extend(shown.names_of(num));
            }
        }
        self.update_conflict_dirs(&shown_conflicts, shown)?;
        for num in std::mem::take(&mut self.unlinked) {
            if let Some(mut inode) = self.db.find(num)? {
                self.db.drop_link_count(&mut inode, self.shared.now(), self.shared)?;
            }
        }
        self.orphan_candidates.extend(changes.objects.keys());
        for num in std::mem::take(&mut self.orphan_candidates) {
            self.db.sweep_unknown(num)?;
        }
        Ok(())
    }

    /// Gives temporary ids to objects whose id changes, since an id may move from one object to another.
    fn free_ids(&mut self, changes: &Changes) -> Result<()> {
        for (num, (local, _)) in &changes.objects {
            if let Some(mut inode) = self.db.find(*num)?
                && local.as_ref().is_none_or(|object| object.id != inode.id)
            {
                inode.id = self.db.new_id();
                self.db.save(inode);
            }
        }
        self.db.flush()
    }

    fn object(&mut self, num: Ino, local: Option<&Object>, base: Option<&VersionedObject>) -> Result<()> {
        let Some(object) = local else {
            // The object is removed with its last name, if it still has one.
            if let Some(mut inode) = self.db.find(num)? {
                inode.created_seq = Seq(0);
                inode.dirty = Dirty::NEW;
                self.db.clear_base(num)?;
                self.db.save(inode);
            }
            return Ok(());
        };
        let mut inode = match self.db.find(num)? {
            Some(inode) => inode,
            None => {
                let inode = unnamed(num, object);
                self.db.save(inode.clone());
                self.db.flush()?;
                if inode.is_regular() {
                    self.db.set_content(num, &object.content)?;
                }
                inode
            }
        };
        let seen = visible(&inode);
        let was_written = inode.maybe_dirty || inode.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
        let keeps = inode.is_regular() && self.keeps_content(&inode, object)?;
        let differs = keeps && base.is_none_or(|base| !base.object.content.is_same(&object.content));
        if inode.is_regular() {
            // Data that is not cached is that of the base. It may have been pushed, and then removed here with its name.
            let content = base.map_or(&object.content, |base| &base.object.content);
            if !keeps && !self.db.can_keep_present(&inode, content)? {
                self.db.replace_content(&mut inode, content, self.shared)?;
                self.invalidations.push(Invalidation::Content(num));
            }
            if base.is_some() || !keeps {
                self.db.set_content(num, content)?;
            }
        }
        inode.id = object.id;
        inode.created_seq = base.map_or(Seq(0), |base| base.created);
        inode.mode = object.mode;
        inode.owner = object.owner;
        inode.group = object.group;
        inode.modified = object.modified;
        self.db.set_xattrs(&mut inode, object)?;
        inode.dirty = differences(base, object, differs);
        inode.maybe_dirty &= differs;
        if keeps && was_written && !differs {
            // Nobody may have fsynced it.
            self.db.record_unsynced(num)?;
        }
        match base {
            Some(base) => self.db.set_seqs(num, base)?,
            None => self.db.set_seqs(
                num,
                &VersionedObject {
                    object: object.clone(),
                    created: Seq(0),
                    field_versions: BTreeMap::new(),
                    links: 0,
                },
            )?,
        }
        match inode.dirty.is_empty() {
            true => self.db.clear_base(num)?,
            false => self.db.set_base(num, base)?,
        }
        if visible(&inode) != seen {
            self.invalidations.push(Invalidation::Object(num));
        }
        self.db.save(inode);
        Ok(())
    }

    /// Reports whether a file keeps its data, because the plan has no other content for it.
    fn keeps_content(&self, inode: &Inode, object: &Object) -> Result<bool> {
        if inode.state != CacheState::Complete {
            return Ok(false);
        }
        // The plan was given the content, or a placeholder if it is unknown: it returns the same one, or that of the store.
        let is_changed = inode.maybe_dirty || inode.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
        let cached = match is_changed {
            false => self.db.content(inode.ino)?,
            true => match self.content_cache.lock().get(&inode.ino) {
                _ if self.db.opens.get(&inode.ino).is_some_and(|open| open.writers > 0) => unknown(inode),
                Some(cached) if cached.is_valid_for(inode, None) => cached.content.clone(),
                _ => unknown(inode),
            },
        };
        Ok(cached.is_same(&object.content))
    }

    fn link(&mut self, at: &DentryKey, local: Option<Ino>, base: Option<(Ino, Seq)>) -> Result<()> {
        let now = self.shared.now();
        let before = self.db.link_of(at.parent, &at.name)?.map(|(child, _)| child);
        let before_base = match self.db.link_differs(at.parent, &at.name)? {
            true => self.db.base_link(at.parent, &at.name)?.map(|(child, _)| child),
            false => before,
        };
        if before != local {
            let mut was_directory = false;
            if let Some(child) = before {
                let mut directory = self.db.find(at.parent)?.ok_or(Errno::NOENT)?;
                let inode = self.db.find(child)?.ok_or(Errno::IO)?;
                was_directory = inode.is_directory();
                self.db.remove_dentry(&mut directory, &at.name, &inode)?;
                self.db.save(directory);
                self.unlinked.push(child);
                self.invalidations.push(Invalidation::Object(child));
            }
            if let Some(child) = local {
                let mut inode = self.db.find(child)?.ok_or(Errno::NOENT)?;
                inode.links += 1;
                inode.changed = now;
                // No cache can know an object that gets its first name here.
                if self.db.unmark_unlinked(child)? || inode.links > 1 {
                    self.invalidations.push(Invalidation::Object(child));
                }
                self.db.save(inode.clone());
                let mut directory = self.db.find(at.parent)?.ok_or(Errno::NOENT)?;
                self.db.add_link(&mut directory, &at.name, &inode, now, Some(Seq(0)))?;
                self.db.save(directory);
            }
            let (parent, name) = (at.parent, at.name.clone());
            self.invalidations.push(Invalidation::Link { parent, name, was_directory });
        }
        match base {
            Some((child, seq)) if local == Some(child) => {
                self.db.clear_base_link(at.parent, &at.name)?;
                self.db.set_link_seq(at.parent, &at.name, seq)?;
            }
            None if local.is_none() => self.db.clear_base_link(at.parent, &at.name)?,
            _ => {
                self.db.set_base_link(at.parent, &at.name, base)?;
                self.db.set_link_seq(at.parent, &at.name, Seq(0))?;
            }
        }
        self.orphan_candidates.extend(before.into_iter().chain(before_base));
        Ok(())
    }

    /// Adds a name to a conflict directory, which is never pushed.
    fn add_bare_link(&mut self, at: &DentryKey, child: Ino) -> Result<()> {
        self.link(at, Some(child), Some((child, Seq(0))))
    }

    fn create_bare(&mut self, parent: Ino, kind: Kind, mode: u16, target: Vec<u8>) -> Result<Ino> {
        let num = self.db.new_number()?;
        let above = self.db.find(parent)?.ok_or(Errno::NOENT)?;
        let now = self.shared.now();
        let object = Object {
            id: self.db.new_id(),
            kind,
            mode,
            owner: above.owner,
            group: above.group,
            modified: now,
            target,
            content: Content::empty(),
            xattrs: BTreeMap::new(),
        };
        let mut inode = unnamed(num, &object);
        inode.target = Arc::from(&object.target[..]);
        self.db.save(inode);
        self.db.flush()?;
        Ok(num)
    }

    fn new_directory(&mut self, parent: Ino) -> Result<Ino> {
        self.create_bare(parent, Kind::Directory, 0o755, Vec::new())
    }

    fn clear_directory(&mut self, directory: Ino) -> Result<()> {
        let mut query = self.db.db.prepare_cached("SELECT name FROM link WHERE parent = ?1")?;
        let names: Vec<Vec<u8>> =
            query.query_map([directory as i64], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        drop(query);
        for name in names {
            self.link(&DentryKey { parent: directory, name }, None, None)?;
        }
        Ok(())
    }

    /// Fills the directory of each conflict with one entry per side.
    fn update_conflict_dirs(&mut self, all: &BTreeSet<DentryKey>, shown: &ConflictDirs) -> Result<()> {
        let all: Vec<ConflictDir> = all.iter().filter_map(|at| shown.at(at).cloned()).collect();
        // Paths are computed only when no old entry can mislead them and all objects placed in conflicts are linked.
        for one in &all {
            self.clear_directory(one.directory)?;
        }
        let mut elsewhere = Vec::new();
        // A directory with a name stays there, and is placed in a conflict only without one: sides with a name come first.
        for by_name in [true, false] {
            for one in &all {
                let [local, remote] = entries(&self.shared.node, &one.conflict);
                let (name, side, other) = match by_name {
                    true => (&remote, one.remote, &local),
                    false => (&local, one.conflict.local, &remote),
                };
                let at = DentryKey { parent: one.directory, name: name.clone() };
                match side {
                    None => {
                        let link = self.create_bare(one.directory, Kind::Symlink, 0o777, other.clone())?;
                        self.add_bare_link(&at, link)?;
                    }
                    Some(num) if self.has_location(num)? => elsewhere.push((at, num)),
                    Some(num) => self.add_bare_link(&at, num)?,
                }
            }
        }
        for (at, num) in elsewhere {
            let child = match self.relative_path(num, at.parent, shown)? {
                Some(target) => self.create_bare(at.parent, Kind::Symlink, 0o777, target)?,
                None => num,
            };
            self.add_bare_link(&at, child)?;
        }
        Ok(())
    }

    /// Reports whether the object is a directory that already has a parent.
    fn has_location(&mut self, num: Ino) -> Result<bool> {
        let inode = self.db.find(num)?.ok_or(Errno::NOENT)?;
        Ok(inode.is_directory() && self.db.parent_of(num)?.is_some())
    }

    /// Returns the relative path to a directory that has its name elsewhere; `None` if there is none.
    fn relative_path(&mut self, num: Ino, from: Ino, shown: &ConflictDirs) -> Result<Option<Vec<u8>>> {
        let (mut path, mut passed) = (Vec::new(), BTreeSet::new());
        let mut at = num;
        while at != crate::replica::ROOT {
            if !passed.insert(at) {
                return Ok(None);
            }
            let mut query = self.db.db.prepare_cached("SELECT parent, name FROM link WHERE child = ?1")?;
            let link = query.query_row([at as i64], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)));
            let Some((parent, name)) = link.optional()? else { return Ok(None) };
            let name: Vec<u8> = name;
            path.push(name);
            at = parent as u64;
        }
        let (mut target, mut up) = (Vec::new(), from);
        passed.clear();
        while up != crate::replica::ROOT {
            if !passed.insert(up) {
                return Ok(None);
            }
            target.extend_from_slice(b"../");
            up = match shown.of_directory(up) {
                Some((at, _)) => at.parent,
                None => self.db.parent_of(up)?.unwrap_or(crate::replica::ROOT),
            };
        }
        path.reverse();
        target.extend_from_slice(&path.join(&b'/'));
        Ok(Some(target))
    }
}

/// Returns the attributes that caches in front of a replica hold, apart from the content.
fn visible(inode: &Inode) -> (u16, OwnerId, OwnerId, Time) {
    (inode.mode, inode.owner, inode.group, inode.modified)
}

impl ReplicaDb {
    /// Deletes an object that neither users nor the store have.
    fn sweep_unknown(&mut self, num: Ino) -> Result<()> {
        let Some(inode) = self.find(num)? else { return Ok(()) };
        let is_used = inode.links > 0 || self.unlinked_open.contains(&num) || num == crate::replica::ROOT;
        if !is_used && !self.is_in_base(num)? {
            if inode.is_regular() {
                self.schedule_unlink(num)?;
            }
            self.erase(num)?;
        }
        Ok(())
    }
}
