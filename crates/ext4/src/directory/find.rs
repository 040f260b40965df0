//! Names found in a directory.

use super::entries::Entries;
use super::source::Source;
use super::{LONGEST_NAME, index};
use crate::error::{Error, Result};
use crate::layout::Compat;

/// An entry, and where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) inode: u32,
    /// The block of the directory.
    pub(super) logical: u32,
    /// Where it begins in the block.
    pub(super) start: usize,
}

/// Finds a name.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn find(directory: &impl Source, name: &[u8]) -> Result<Found> {
    if name.len() > LONGEST_NAME {
        return Err(Error::NameTooLong);
    }
    let has_index = directory.is_indexed() && directory.geometry().compat.contains(Compat::DIR_INDEX);
    if has_index
        && !matches!(name, b"." | b"..")
        && let Some(hasher) = index::hasher(directory)?
    {
        for leaf in index::leaves(directory, hasher.hash(name))? {
            if let Some(found) = find_in(directory, leaf?, name)? {
                return Ok(found);
            }
        }
        return Err(Error::NotFound);
    }
    for logical in 0..directory.length()? {
        if let Some(found) = find_in(directory, logical, name)? {
            return Ok(found);
        }
    }
    Err(Error::NotFound)
}

fn find_in(directory: &impl Source, logical: u32, name: &[u8]) -> Result<Option<Found>> {
    let Some((number, block)) = directory.block(logical)? else { return Ok(None) };
    for entry in Entries::of_verified(&block, 0, directory.geometry()) {
        let entry = entry.map_err(|corruption| corruption.inode(directory.number()).block(number))?;
        if entry.inode != 0 && entry.name == name {
            let start = entry.start as usize;
            return Ok(Some(Found { inode: entry.inode, logical, start }));
        }
    }
    Ok(None)
}

/// Whether a directory has no names but `.` and `..`.
pub(crate) fn is_empty(directory: &impl Source) -> Result<bool> {
    for logical in 0..directory.length()? {
        let Some((number, block)) = directory.block(logical)? else { continue };
        for entry in Entries::of_verified(&block, 0, directory.geometry()) {
            let entry = entry.map_err(|corruption| corruption.inode(directory.number()).block(number))?;
            if entry.inode != 0 && !matches!(entry.name, b"." | b"..") {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
