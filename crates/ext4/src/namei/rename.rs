//! Rename and exchange.

use std::collections::HashSet;

use super::attributes::NewInode;
use super::create::{NewInodeKind, new_credits};
use super::{DirTransaction, LEAVE_CREDITS, check_fixed, check_leave, check_new, check_old, growth, nlink};
use crate::allocate::ReservedAccess;
use crate::buffer::Handle;
use crate::directory::{self, Found, Link};
use crate::error::{Corruption, Error, Result};
use crate::filesystem::{Filesystem, ROOT};
use crate::inode::{Inode, Kind};
use crate::locks::Exclusive;
use crate::{orphans, time};

/// Behaviour of a rename if the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replace it; only an empty directory can be replaced by a directory, and only a non-directory by a non-directory.
    #[default]
    Replace,
    /// Fail: `RENAME_NOREPLACE`.
    Keep,
    /// Exchange both names: `RENAME_EXCHANGE`.
    Exchange,
}

/// Options of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Move {
    /// Behaviour if the new name exists.
    pub mode: RenameMode,
    /// Leave a character device 0, 0 of this user and group under the old name: `RENAME_WHITEOUT`.
    pub whiteout: Option<(u32, u32)>,
}

/// A name involved in a rename, its directory entry, and its inode.
struct Side<'a> {
    name: &'a [u8],
    found: Found,
    inode: Inode,
}

/// The one or two parent directories of a rename.
struct Parents {
    old: Inode,
    /// `None` if both names are in the same directory.
    new: Option<Inode>,
}

impl Parents {
    fn target(&mut self) -> &mut Inode {
        self.new.as_mut().unwrap_or(&mut self.old)
    }
}

/// Number of blocks that a rename may change, apart from the new name: the old name, `..` of both, and the inodes.
const CREDITS: u32 = 2 * LEAVE_CREDITS + 2 + 2 + orphans::CREDITS;

impl Filesystem {
    /// Renames `from` to `to`, each a directory and a name. Returns the inode whose name was replaced; if it has no links left,
    /// it is freed by [`evict_inode`](Self::evict_inode).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`], [`Error::Exists`] with [`RenameMode::Keep`],
    /// [`Error::IsDirectory`] and [`Error::NotEmpty`] if the target cannot be replaced, [`Error::Invalid`] for moving a directory
    /// into itself, [`Error::TooManyLinks`], [`Error::NotPermitted`], [`Error::NoKey`] in encrypted directories,
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Corrupt`], [`Error::Io`].
    pub fn rename(&self, from: (u32, &[u8]), to: (u32, &[u8]), how: &Move) -> Result<Option<Inode>> {
        self.rename_as(from, to, how, ReservedAccess::Reserved)
    }

    /// Renames like [`rename`](Self::rename), with these [`rights`](Self::rights) to the blocks by which the directory may grow.
    ///
    /// # Errors
    /// The errors of [`rename`](Self::rename).
    pub fn rename_as(
        &self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        how: &Move,
        rights: ReservedAccess,
    ) -> Result<Option<Inode>> {
        if how.mode == RenameMode::Exchange && how.whiteout.is_some() {
            return Err(Error::Invalid);
        }
        check_old(from.1)?;
        check_new(to.1).map_err(|error| if to.1 == b".." { Error::NotEmpty } else { error })?;
        // The directory hierarchy changes only under this lock.
        let _rename_lock = (from.0 != to.0).then(|| self.rename_lock.lock());
        let above = |number| if from.0 == to.0 { Ok(HashSet::new()) } else { self.above(number) };
        let (above_old, above_new) = (above(from.0)?, above(to.0)?);
        let _locks = self.lock_parents(from.0, to.0, &above_old);
        self.with_space(|| self.rename_locked(from, to, (how, rights), (&above_old, &above_new)))
    }

    fn rename_locked(
        &self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        (how, rights): (&Move, ReservedAccess),
        (above_old, above_new): (&HashSet<u32>, &HashSet<u32>),
    ) -> Result<Option<Inode>> {
        let mut parents = Parents {
            old: self.parent(from.0)?,
            new: if from.0 == to.0 { None } else { Some(self.parent(to.0)?) },
        };
        check_leave(&parents.old)?;
        // Encrypted names cannot move: a name is encrypted for its directory.
        self.check_move(&parents.old, from.1)?;
        self.check_key(parents.target(), to.1).map_err(|error| match error {
            Error::Exists if how.mode != RenameMode::Keep => Error::NoKey,
            error => error,
        })?;
        let found = self.found(&parents.old, from.1)?.ok_or(Error::NotFound)?;
        let target = self.found(parents.target(), to.1)?;
        match (&target, how.mode) {
            (Some(_), RenameMode::Keep) => return Err(Error::Exists),
            (None, RenameMode::Exchange) => return Err(Error::NotFound),
            // Renaming one link of an inode to another does nothing (POSIX).
            (Some(target), _) if target.inode == found.inode => return Ok(None),
            _ => {}
        }
        let is_above = |number, own, above: &HashSet<u32>| number == own || above.contains(&number);
        if is_above(found.inode, to.0, above_new) {
            return Err(Error::Invalid);
        }
        if target.as_ref().is_some_and(|target| is_above(target.inode, from.0, above_old)) {
            return Err(if how.mode == RenameMode::Exchange { Error::Invalid } else { Error::NotEmpty });
        }
        let _locks = self.lock_two(found.inode, target.as_ref().map(|target| target.inode));
        let inode = self.child(&parents.old, from.1, found.inode)?;
        check_fixed(&inode)?;
        let old = Side { name: from.1, found, inode };
        let new = match target {
            Some(found) => {
                check_leave(parents.target())?;
                let inode = self.child(parents.target(), to.1, found.inode)?;
                check_fixed(&inode)?;
                Some(Side { name: to.1, found, inode })
            }
            None => None,
        };
        match (new, how.mode) {
            (Some(new), RenameMode::Exchange) => self.exchange(parents, old, new).map(|()| None),
            (new, _) => self.replace(parents, old, (to.1, rights), new, how.whiteout),
        }
    }

    fn replace(
        &self,
        mut parents: Parents,
        mut old: Side<'_>,
        (name, rights): (&[u8], ReservedAccess),
        new: Option<Side<'_>>,
        whiteout: Option<(u32, u32)>,
    ) -> Result<Option<Inode>> {
        let moves_directory = old.inode.kind == Kind::Directory;
        if let Some(new) = &new {
            match (moves_directory, new.inode.kind == Kind::Directory) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !directory::is_empty(&self.directory(&new.inode))? => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
        } else if moves_directory && parents.new.is_some() {
            nlink::check_room(&self.geometry, parents.target())?;
        }
        let enter = match new {
            Some(_) => 2,
            None => self.enter_credits(parents.target(), name)?,
        };
        self.allocator()?.check(growth(enter), rights)?;
        let left_credits = whiteout.map_or(0, |_| new_credits(&parents.old, NewInodeKind::CharDevice(0, 0)));
        let mut handle = self.store.begin(CREDITS + enter + left_credits)?;
        let handle = &mut handle;
        let left = match whiteout {
            Some((uid, gid)) => {
                let owner = NewInode { uid, gid, ..NewInode::default() };
                Some(self.make(handle, &parents.old, NewInodeKind::CharDevice(0, 0), &owner)?)
            }
            None => None,
        };
        let link = Link { name, inode: old.inode.number, kind: old.inode.kind };
        let mut writing = DirTransaction { fs: self, handle, inode: parents.target() };
        let entered = match &new {
            Some(new) => directory::repoint(&mut writing, &new.found, &link),
            None => directory::insert(&mut writing, &link),
        };
        if let Err(error) = entered {
            parents.target().save(handle)?;
            if let Some(left) = left {
                self.discard_new(handle, left)?;
            }
            handle.complete();
            return Err(error);
        }
        // In the same directory, inserting the new name may have moved the old one.
        if parents.new.is_none() && new.is_none() {
            old.found = self.directory(&parents.old).find(old.name)?;
        }
        let mut writing = DirTransaction { fs: self, handle, inode: &mut parents.old };
        match &left {
            Some(left) => {
                let link = Link { name: old.name, inode: left.number, kind: left.kind };
                directory::repoint(&mut writing, &old.found, &link)?;
            }
            None => directory::remove(&mut writing, &old.found, old.name)?,
        }
        let now = time::now();
        if let Some(mut left) = left {
            left.links = 1;
            left.save_new(handle)?;
        }
        if moves_directory {
            if parents.new.is_some() {
                self.set_parent(handle, &mut old.inode, parents.target().number)?;
            }
            nlink::drop(&mut parents.old);
            if new.is_none() {
                nlink::add(&self.geometry, parents.target());
            }
        }
        let mut replaced = new.map(|new| new.inode);
        if let Some(inode) = &mut replaced {
            inode.ctime = now;
            self.lose_name(handle, inode)?;
        }
        old.inode.ctime = now;
        old.inode.save(handle)?;
        save_parents(handle, parents, now)?;
        handle.record(replaced.as_ref().map_or(0, |inode| inode.number.into()));
        handle.complete();
        Ok(replaced)
    }

    fn exchange(&self, mut parents: Parents, mut old: Side<'_>, mut new: Side<'_>) -> Result<()> {
        let of = |side: &Side<'_>| side.inode.kind == Kind::Directory;
        let (old_moves, new_moves) = (of(&old) && parents.new.is_some(), of(&new) && parents.new.is_some());
        match (old_moves, new_moves) {
            (true, false) => nlink::check_room(&self.geometry, parents.target())?,
            (false, true) => nlink::check_room(&self.geometry, &parents.old)?,
            _ => {}
        }
        let mut handle = self.store.begin(CREDITS)?;
        let handle = &mut handle;
        let link = |name, to: &Side<'_>| Link { name, inode: to.inode.number, kind: to.inode.kind };
        let (to_new, to_old) = (link(old.name, &new), Link { name: new.name, ..link(new.name, &old) });
        directory::repoint(
            &mut DirTransaction { fs: self, handle, inode: &mut parents.old },
            &old.found,
            &to_new,
        )?;
        directory::repoint(
            &mut DirTransaction { fs: self, handle, inode: parents.target() },
            &new.found,
            &to_old,
        )?;
        if old_moves {
            self.set_parent(handle, &mut old.inode, parents.target().number)?;
        }
        if new_moves {
            self.set_parent(handle, &mut new.inode, parents.old.number)?;
        }
        if old_moves && !new_moves {
            nlink::drop(&mut parents.old);
            nlink::add(&self.geometry, parents.target());
        } else if new_moves && !old_moves {
            nlink::drop(parents.target());
            nlink::add(&self.geometry, &mut parents.old);
        }
        let now = time::now();
        for inode in [&mut old.inode, &mut new.inode] {
            inode.ctime = now;
            inode.save(handle)?;
        }
        save_parents(handle, parents, now)?;
        handle.record(0);
        handle.complete();
        Ok(())
    }

    /// Redirects the `..` of a directory.
    fn set_parent(&self, handle: &mut Handle<'_>, inode: &mut Inode, parent: u32) -> Result<()> {
        let link = Link { name: b"..", inode: parent, kind: Kind::Directory };
        let mut writing = DirTransaction { fs: self, handle, inode };
        let found = directory::find(&writing, b"..").map_err(|error| match error {
            Error::NotFound => Corruption::new("directory without `..`").inode(writing.inode.number).into(),
            error => error,
        })?;
        directory::repoint(&mut writing, &found, &link)
    }

    /// Returns all ancestors of a directory. The caller holds the lock for renames, so that they stay ancestors.
    fn above(&self, number: u32) -> Result<HashSet<u32>> {
        let mut above = HashSet::new();
        let mut now = number;
        while now != ROOT {
            let inode = {
                let _lock = self.locks.read(now);
                let inode = self.inode(now)?;
                directory::find(&self.directory(&inode), b"..")?.inode
            };
            if inode == number || !above.insert(inode) {
                return Err(Corruption::new("directory is its own ancestor").inode(number).into());
            }
            now = inode;
        }
        Ok(above)
    }

    /// Locks two directories, an ancestor first.
    fn lock_parents(
        &self,
        old: u32,
        new: u32,
        above_old: &HashSet<u32>,
    ) -> (Exclusive<'_>, Option<Exclusive<'_>>) {
        if old == new {
            return (self.locks.write(old), None);
        }
        // Unrelated directories are locked by number: only the holder of the lock for renames locks two of them.
        let new_first = above_old.contains(&new);
        let (first, second) = if new_first { (new, old) } else { (old, new) };
        let first = self.locks.write(first);
        (first, Some(self.locks.write(second)))
    }

    /// Locks one inode, or two by number; neither contains the other.
    fn lock_two(&self, one: u32, other: Option<u32>) -> (Exclusive<'_>, Option<Exclusive<'_>>) {
        let Some(other) = other else { return (self.locks.write(one), None) };
        let first = self.locks.write(one.min(other));
        (first, Some(self.locks.write(one.max(other))))
    }
}

fn save_parents(handle: &mut Handle<'_>, parents: Parents, now: crate::Time) -> Result<()> {
    for mut parent in [Some(parents.old), parents.new].into_iter().flatten() {
        (parent.mtime, parent.ctime) = (now, now);
        parent.save(handle)?;
    }
    Ok(())
}
