//! Insertion, removal and redirection of directory entries.

use super::find::Found;
use super::htree_split;
use super::leaf::{self, Link};
use super::leaf_insert::insert_in;
use super::source::{Source, Target};
use super::{MAX_NAME_BYTES, index};
use crate::error::{Error, Result};
use crate::layout::Compat;

/// Maximum number of blocks of the directory that [`insert`] changes or adds: the leaf and the one split off from it, the same
/// for each level of the index, and a new level below the root.
pub(crate) const INSERT_BLOCKS: u32 = 2 + 2 * 3 + 1;

/// Reports whether a name can be inserted by changing one block and without adding any.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn has_room(directory: &impl Source, name: &[u8]) -> Result<bool> {
    let has_room_in = |logical| {
        let Some((number, block)) = directory.block(logical)? else { return Ok(false) };
        let room = leaf::find_room(&block, directory.geometry(), name)
            .map_err(|corruption| corruption.inode(directory.number()).block(number))?;
        Ok(room.is_some())
    };
    if directory.is_indexed() {
        return match index::hasher(directory)? {
            Some(hasher) => has_room_in(index::descend(directory, hasher.hash(name))?.1),
            None => Ok(false),
        };
    }
    for logical in 0..directory.length()? {
        if has_room_in(logical)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Inserts a name, which must not exist yet.
///
/// # Errors
/// [`Error::NameTooLong`]; [`Error::NoSpace`], without losing any name; [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn insert(directory: &mut impl Target, link: &Link<'_>) -> Result<()> {
    if link.name.len() > MAX_NAME_BYTES {
        return Err(Error::NameTooLong);
    }
    let can_index = directory.geometry().compat.contains(Compat::DIR_INDEX);
    if directory.is_indexed() {
        if can_index {
            return htree_split::insert(directory, link);
        }
        if directory.is_summed() {
            return Err(directory.wrong("directory index: the file system lacks the feature dir_index"));
        }
        // The index of the root block becomes free space for entries.
        directory.set_indexed(false);
    }
    let length = directory.length()?;
    for logical in 0..length {
        if insert_in(directory, logical, link)? {
            return Ok(());
        }
    }
    if can_index && length == 1 {
        htree_split::make_indexed(directory)?;
        return htree_split::insert(directory, link);
    }
    directory.append(|block, geometry| {
        leaf::make_empty(block, geometry);
        leaf::insert(block, geometry, 0, link)
    })?;
    Ok(())
}

/// Removes an entry.
pub(crate) fn remove(directory: &mut impl Target, found: &Found, name: &[u8]) -> Result<()> {
    directory.change(found.logical, |block, geometry| leaf::remove(block, geometry, found.start, name))
}

/// Redirects an entry to another inode.
pub(crate) fn repoint(directory: &mut impl Target, found: &Found, link: &Link<'_>) -> Result<()> {
    directory.change(found.logical, |block, geometry| leaf::repoint(block, geometry, found.start, link))
}
