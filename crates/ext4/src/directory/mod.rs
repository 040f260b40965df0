//! Directories: linear and indexed (HTree), with lookup, listing and changes.

mod change;
mod entries;
mod find;
mod hash;
mod htree_split;
mod index;
mod leaf;
mod leaf_insert;
mod node;
mod nokey;
mod source;
mod sums;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use change::{INSERT_BLOCKS, has_room, insert, remove, repoint};
pub(crate) use entries::Entries;
pub(crate) use find::{Found, find, is_empty, stored};
use index::Hasher;
pub(crate) use leaf::{Link, make_first};
use node::Node;
pub(crate) use nokey::{Shown, show};
pub(crate) use source::Source;
pub(crate) use source::Target;
use sums::Shape;
pub(crate) use sums::fill_sum;

use crate::block_mapping::Mapping;
use crate::buffer::{BlockKind, MetadataCache};
use crate::error::{Corruption, Error, Result};
use crate::inode::{Inode, Kind};
use crate::layout::{Compat, InodeFlags};
use crate::map;
use crate::superblock::Geometry;

/// Maximum length of a name in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name: any bytes but 0 and `/`.
    pub name: Vec<u8>,
    /// Inode number.
    pub inode: u32,
    /// File type according to the directory; that of the inode is authoritative.
    pub kind: Option<Kind>,
    /// Offset at which [`Filesystem::list`](crate::Filesystem::list) continues after this entry.
    pub next: u64,
}

/// A directory on the device, for reading.
#[derive(Clone, Copy)]
pub(crate) struct Directory<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) store: &'a MetadataCache,
    pub(crate) inode: &'a Inode,
}

impl Source for Directory<'_> {
    fn geometry(&self) -> &Geometry {
        self.geometry
    }

    fn number(&self) -> u32 {
        self.inode.number
    }

    fn is_indexed(&self) -> bool {
        self.inode.flags.contains(InodeFlags::INDEX)
    }

    fn length(&self) -> Result<u32> {
        let blocks = self.inode.size.div_ceil(self.geometry.block_size.into());
        // A larger directory would have holes or duplicate blocks, and take hours to scan.
        match u32::try_from(blocks) {
            Ok(length) if blocks <= self.geometry.blocks => Ok(length),
            _ => Err(self.wrong(format!("invalid directory size {}", self.inode.size))),
        }
    }

    fn block(&self, logical: u32) -> Result<Option<(u64, Arc<[u8]>)>> {
        let Some(number) = self.device_block(logical)? else { return Ok(None) };
        let Inode { number: owner, generation, .. } = *self.inode;
        let verify = |bytes: &[u8]| {
            verify(self.geometry, self.inode, logical, bytes)
                .map_err(|corruption| corruption.inode(owner).block(number).into())
        };
        Ok(Some((number, self.store.get(number, BlockKind::Directory(owner, generation), verify)?)))
    }
}

/// Verifies a block of a directory. Every block parses as a list of entries; index blocks contain few or none, and have their
/// checksum behind the index entries.
pub(crate) fn verify(
    geometry: &Geometry,
    directory: &Inode,
    logical: u32,
    bytes: &[u8],
) -> std::result::Result<(), Corruption> {
    entries(bytes, geometry, directory).try_for_each(|entry| entry.map(|_| ()))?;
    let indexed = directory.flags.contains(InodeFlags::INDEX);
    verify_sum(directory.seed(geometry), indexed, logical, bytes)
}

/// Verifies the checksum of a directory block and the order of index entries. `seed` is the directory's checksum seed.
fn verify_sum(
    seed: Option<u32>,
    indexed: bool,
    logical: u32,
    bytes: &[u8],
) -> std::result::Result<(), Corruption> {
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
        // A leaf without names can look like an index node.
        (_, None) if !root => Ok(()),
        (node, _) => node?.check_order(),
    }
}

/// Iterates over the entries of a block of this directory.
pub(crate) fn entries<'a>(bytes: &'a [u8], geometry: &Geometry, directory: &Inode) -> Entries<'a> {
    match directory.flags.contains(InodeFlags::ENCRYPT) {
        true => Entries::of_encrypted(bytes, geometry),
        false => Entries::new(bytes, geometry),
    }
}

impl Directory<'_> {
    /// Returns the block number of a block of the directory; `None` for a hole.
    pub(crate) fn device_block(&self, logical: u32) -> Result<Option<u64>> {
        match map::map(self.geometry, self.store, self.inode, logical, 1)?.mapping {
            Mapping::Written(number) => Ok(Some(number)),
            Mapping::Hole => Ok(None),
            Mapping::Unwritten(_) => {
                Err(self.wrong(format!("block {logical} of the directory is an unwritten extent")))
            }
        }
    }

    /// Looks up a name.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Found> {
        if self.inode.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        find::find(self, name)
    }

    /// Returns the hash function for the no-key names of an encrypted directory: the hashes by which the kernel orders its
    /// listing, or zeros if it lists the directory in stored order.
    pub(crate) fn hashes(&self) -> Result<impl Fn(&[u8]) -> [u32; 2] + use<>> {
        let hasher = match (self.geometry.compat.contains(Compat::DIR_INDEX), self.is_indexed()) {
            (true, true) => index::hasher(self)?,
            (true, false) if self.length()? <= 1 => Hasher::new(self.geometry.hash_version, self.geometry),
            _ => None,
        };
        Ok(move |stored: &[u8]| hasher.map_or([0; 2], |hasher| hasher.hashes(stored)))
    }

    /// Lists names in stored order from `offset` on (0 at first, then the `next` of an entry), until `take` returns `false`.
    pub(crate) fn list(&self, offset: u64, mut take: impl FnMut(Entry) -> bool) -> Result<()> {
        if self.inode.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let size = u64::from(self.geometry.block_size);
        let first = u32::try_from(offset / size).unwrap_or(u32::MAX);
        for logical in first..self.length()? {
            let Some((number, bytes)) = self.block(logical)? else { continue };
            let completed = entries(&bytes, self.geometry, self.inode).for_each_used(
                u64::from(logical) * size,
                offset,
                &mut take,
            );
            if !completed.map_err(|corruption| corruption.inode(self.inode.number).block(number))? {
                return Ok(());
            }
        }
        Ok(())
    }
}
