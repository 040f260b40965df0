//! Replay of fast commits, through the regular operations of the file system.
//!
//! Block bitmaps follow from block maps. Blocks to be mapped are marked as used first, so that no new tree node is allocated
//! there; blocks that no inode maps in the end are freed last. Records of inodes and names that no longer exist are skipped,
//! because fast commits do not record all steps of an object that was created and removed again.

mod blocks;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use super::ranges::Ranges;
use crate::buffer::Handle;
use crate::error::{Corruption, Error, Result};
use crate::filesystem::{Filesystem, ROOT};
use crate::inode::{Inode, Kind};
use crate::journal::fast_commit::Change;
use crate::{orphans, xattr};

/// Replays all changes on this file system, in memory or on its device.
///
/// # Errors
/// [`Error::Corrupt`] for changes that do not fit the state of the file system, and the errors of the file system. Some changes
/// have then been applied.
pub(super) fn apply(fs: &Filesystem, changes: &[Change]) -> Result<()> {
    let mut apply = Apply::new(fs, changes)?;
    for (position, change) in changes.iter().enumerate() {
        apply.change(position, change)?;
    }
    apply.free_unlinked()?;
    apply.count_directories()?;
    apply.free_loose_blocks()
}

struct Apply<'a> {
    fs: &'a Filesystem,
    changes: &'a [Change],
    /// Inodes that the changes concern.
    inodes: BTreeSet<u32>,
    /// Raw inodes, by inode number and position among the changes.
    images: BTreeMap<(u32, usize), &'a [u8]>,
    /// Directories whose number of subdirectories may have changed.
    directories: BTreeSet<u32>,
    /// Inodes that had no links before: they are orphans, which orphan processing handles.
    orphans: BTreeSet<u32>,
    /// Blocks that one of the inodes had before, or that were allocated for it.
    owned: Ranges,
    /// Known blocks that are freed after the replay unless an inode maps them.
    loose: Ranges,
}

fn wrong(what: impl std::fmt::Display, inode: u32) -> Error {
    Corruption::new(format!("fast commit: {what}")).inode(inode).into()
}

impl Change {
    /// Returns the inode that the change concerns.
    fn inode(&self) -> u32 {
        match self {
            Self::Add { inode, .. }
            | Self::Delete { inode, .. }
            | Self::Create { inode, .. }
            | Self::Link { inode, .. }
            | Self::Unlink { inode, .. }
            | Self::Inode { inode, .. } => *inode,
        }
    }
}

impl<'a> Apply<'a> {
    fn new(fs: &'a Filesystem, changes: &'a [Change]) -> Result<Self> {
        let inodes: BTreeSet<u32> = changes.iter().map(Change::inode).collect();
        let image = |(position, change): (usize, &'a Change)| match change {
            Change::Inode { inode, raw } => Some(((*inode, position), raw.as_slice())),
            _ => None,
        };
        let mut apply = Self {
            images: changes.iter().enumerate().filter_map(image).collect(),
            fs,
            changes,
            inodes,
            directories: BTreeSet::new(),
            orphans: BTreeSet::new(),
            owned: Ranges::default(),
            loose: Ranges::default(),
        };
        for &number in &apply.inodes.clone() {
            let reserved = number < fs.geometry.first_inode && number != ROOT;
            if reserved || number > fs.geometry.inodes {
                return Err(wrong("inode number is reserved or out of range", number));
            }
            let Some(inode) = apply.inode(number)? else { continue };
            if inode.links == 0 {
                apply.orphans.insert(number);
            }
            apply.pieces(&inode, |apply, start, end| {
                apply.owned.insert(start, end);
                Ok(())
            })?;
        }
        apply.claim()?;
        Ok(apply)
    }

    /// Returns an inode in use; `None` if the bitmap marks it as free, regardless of the content of the inode table.
    fn inode(&self, number: u32) -> Result<Option<Inode>> {
        match self.fs.allocator()?.is_taken(&self.fs.store, number)? {
            true => self.fs.inode(number).map(Some),
            false => Ok(None),
        }
    }

    /// Returns an inode in use, or one that a later change creates, in the state of that change.
    fn inode_by(&mut self, position: usize, number: u32) -> Result<Option<Inode>> {
        if let Some(inode) = self.inode(number)? {
            return Ok(Some(inode));
        }
        let later = self.images.range((number, position)..=(number, usize::MAX)).next();
        later.map(|(_, raw)| *raw).map(|raw| self.put_inode(number, raw)).transpose()
    }

    fn change(&mut self, position: usize, change: &Change) -> Result<()> {
        match change {
            Change::Add { inode, extent } => match self.inode_by(position, *inode)? {
                Some(inode) => self.add(inode, *extent),
                None => Ok(()),
            },
            Change::Delete { inode, logical, length } => match self.inode(*inode)? {
                Some(inode) => self.delete(inode, *logical, *length),
                None => Ok(()),
            },
            Change::Inode { inode, raw } => self.put_inode(*inode, raw).map(drop),
            Change::Create { parent, inode, name } => match self.inode_by(position, *inode)? {
                Some(inode) => self.create(*parent, inode, name),
                None => Ok(()),
            },
            Change::Link { parent, inode, name } => match self.inode_by(position, *inode)? {
                Some(inode) => self.link(*parent, inode, name),
                None => Ok(()),
            },
            Change::Unlink { parent, inode, name } => self.unlink(*parent, *inode, name),
        }
    }

    fn put_inode(&mut self, number: u32, raw: &[u8]) -> Result<Inode> {
        let mut before = self.inode(number)?;
        let generation = Inode::generation_of(raw);
        if let Some(old) = before.take_if(|old| Some(old.generation) != generation) {
            // The inode number is reused.
            if old.links > 0 || self.orphans.contains(&number) {
                return Err(wrong("an inode that is in use is created again", number));
            }
            self.discard(old)?;
        }
        let mut handle = self.fs.store.begin(1 + crate::allocate::TAKE_CREDITS)?;
        if before.is_none() {
            let directory = Inode::kind_of(raw) == Some(Kind::Directory);
            self.fs.allocator()?.claim_inode(&mut handle, number, directory)?;
        }
        let inode = Inode::put_image(&mut handle, number, raw, before.as_ref())?;
        handle.complete();
        Ok(inode)
    }

    /// Frees an inode; its blocks become loose.
    fn discard(&mut self, mut inode: Inode) -> Result<()> {
        if self.is_mapped(&inode) {
            self.remove(&mut inode, 0, u64::from(u32::MAX))?;
        }
        let mut handle = self.fs.store.begin(3 + xattr::CREDITS + orphans::CREDITS)?;
        xattr::release(self.fs, &mut handle, &mut inode)?;
        (inode.size, inode.links) = (0, 0);
        inode.save(&mut handle)?;
        Inode::set_deletion(&mut handle, inode.number, crate::time::now().seconds as u32)?;
        let directory = inode.kind == Kind::Directory;
        self.fs.allocator()?.free_inode(&mut handle, inode.number, directory)?;
        handle.complete();
        Ok(())
    }

    /// Frees inodes that have lost all links.
    fn free_unlinked(&mut self) -> Result<()> {
        for number in self.inodes.clone() {
            let is_nameless = |inode: &Inode| inode.links == 0 && !self.orphans.contains(&number);
            if let Some(inode) = self.inode(number)?.filter(is_nameless) {
                self.discard(inode)?;
            }
        }
        Ok(())
    }

    /// Saves an inode and completes the handle.
    fn save(&self, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        inode.save(handle).map_err(|error| error.of_inode(inode.number))?;
        handle.complete();
        Ok(())
    }
}
