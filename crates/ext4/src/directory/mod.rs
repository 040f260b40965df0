//! Directories.

mod entries;
mod hash;
mod index;
#[allow(dead_code, reason = "called where blocks are written")]
mod node;
mod sums;

use std::sync::Arc;

pub(crate) use entries::Entries;
use node::Node;
use sums::Shape;
#[allow(unused_imports, reason = "called where blocks are written")]
pub(crate) use sums::fill_sum;

use crate::store::{Seal, Store};
use crate::error::{Corruption, Error, Result};
use crate::inode::{Inode, Kind};
use crate::layout::{Compat, InodeFlags};
use crate::map::{self, Place};
use crate::superblock::Geometry;

/// Bytes of the longest name.
pub const LONGEST_NAME: usize = 255;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name: any bytes but 0 and `/`.
    pub name: Vec<u8>,
    /// The inode.
    pub inode: u32,
    /// What the directory says that it is; the inode has the last word.
    pub kind: Option<Kind>,
    /// Where to go on after it, for [`list`].
    pub next: u64,
}

/// What is needed to read a directory.
#[derive(Clone, Copy)]
pub(crate) struct Directory<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) store: &'a Store,
    pub(crate) inode: &'a Inode,
}

impl Directory<'_> {
    /// Blocks of the directory.
    fn length(&self) -> Result<u32> {
        let blocks = self.inode.size.div_ceil(self.geometry.block_size.into());
        u32::try_from(blocks).map_err(|_| self.wrong(format!("a directory of {} bytes", self.inode.size)))
    }

    fn wrong(&self, what: String) -> Error {
        Corruption::new(what).inode(self.inode.number).into()
    }

    /// A block by its place in the directory; `None` for a hole, which holds no names.
    fn block(&self, logical: u32) -> Result<Option<(u64, Arc<[u8]>)>> {
        let run = map::map(self.geometry, self.store, self.inode, logical, 1)?;
        let number = match run.place {
            Place::Written(number) => number,
            Place::Hole => return Ok(None),
            Place::Unwritten(_) => return Err(self.wrong(format!("block {logical} was never written"))),
        };
        let Inode { number: owner, generation, .. } = *self.inode;
        let verify = |bytes: &[u8]| {
            self.verify(logical, bytes).map_err(|corruption| corruption.inode(owner).block(number).into())
        };
        Ok(Some((number, self.store.get(number, Seal::Directory(owner, generation), verify)?)))
    }

    /// All blocks are lists of entries to who lists them; those of the index, with few or none, have their sum elsewhere.
    fn verify(&self, logical: u32, bytes: &[u8]) -> std::result::Result<(), Corruption> {
        Entries::new(bytes, self.geometry).try_for_each(|entry| entry.map(|_| ()))?;
        let seed = self.inode.seed(self.geometry);
        let indexed = self.inode.flags.contains(InodeFlags::INDEX);
        let root = indexed && logical == 0;
        let index = root || indexed && Shape::of(bytes) == Shape::Node;
        if !index {
            return seed.map_or(Ok(()), |seed| sums::verify_leaf(seed, bytes));
        }
        match (Node::parse(bytes, root), seed) {
            (Ok(node), Some(seed)) => {
                sums::verify_index(seed, &node, bytes)?;
                node.check_order()
            }
            // A leaf without names can look like a node.
            (_, None) if !root => Ok(()),
            (node, _) => node?.check_order(),
        }
    }

    /// Finds a name.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Entry> {
        if name.len() > LONGEST_NAME {
            return Err(Error::NameTooLong);
        }
        if self.inode.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let indexed = self.inode.flags.contains(InodeFlags::INDEX)
            && self.geometry.compat.contains(Compat::DIR_INDEX)
            && !matches!(name, b"." | b"..");
        if indexed && let Some(leaves) = index::leaves(self, name)? {
            for leaf in leaves {
                if let Some(entry) = self.find_in(leaf?, name)? {
                    return Ok(entry);
                }
            }
            return Err(Error::NotFound);
        }
        for logical in 0..self.length()? {
            if let Some(entry) = self.find_in(logical, name)? {
                return Ok(entry);
            }
        }
        Err(Error::NotFound)
    }

    fn find_in(&self, logical: u32, name: &[u8]) -> Result<Option<Entry>> {
        let Some((number, bytes)) = self.block(logical)? else { return Ok(None) };
        for entry in Entries::new(&bytes, self.geometry) {
            let entry = entry.map_err(|corruption| corruption.inode(self.inode.number).block(number))?;
            if entry.inode != 0 && entry.name == name {
                return Ok(Some(Entry {
                    name: name.to_vec(),
                    inode: entry.inode,
                    kind: entry.kind,
                    next: 0,
                }));
            }
        }
        Ok(None)
    }

    /// Tells names in the order in which they lie, from `offset` on (0 at first, then an entry's `next`), until `take`
    /// has enough and returns false.
    pub(crate) fn list(&self, offset: u64, mut take: impl FnMut(Entry) -> bool) -> Result<()> {
        if self.inode.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let size = u64::from(self.geometry.block_size);
        let first = u32::try_from(offset / size).unwrap_or(u32::MAX);
        for logical in first..self.length()? {
            let Some((number, bytes)) = self.block(logical)? else { continue };
            let entries = Entries::new(&bytes, self.geometry);
            let told = entries.tell(u64::from(logical) * size, offset, &mut take);
            if !told.map_err(|corruption| corruption.inode(self.inode.number).block(number))? {
                return Ok(());
            }
        }
        Ok(())
    }
}
