//! Directory lookup by name, through the index where there is one.

use super::entries::Entries;
use super::index::Hasher;
use super::nokey::Shown;
use super::source::Source;
use super::{MAX_NAME_BYTES, index};
use crate::error::{Error, Result};
use crate::layout::Compat;

/// A directory entry found by lookup, with its location.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) inode: u32,
    /// Block of the directory.
    pub(super) logical: u32,
    /// Offset of the entry in the block.
    pub(super) start: usize,
}

/// Looks up a name.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn find(directory: &impl Source, name: &[u8]) -> Result<Found> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::NameTooLong);
    }
    let dots = matches!(name, b"." | b"..");
    let hash = |hasher: Hasher| if dots { None } else { Some(hasher.hash(name)) };
    find_by(directory, hash, |stored| stored == name, |_, found| found)
}

/// Returns the stored name of an entry, given its no-key form.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn stored(directory: &impl Source, shown: &Shown) -> Result<Vec<u8>> {
    find_by(directory, |_| Some(shown.hash), |stored| shown.is(stored), |stored, _| stored.to_vec())
}

/// Returns the result of `result_of` for the first entry whose name satisfies `is`. With an index, searches only the leaves for its
/// hash.
fn find_by<T>(
    directory: &impl Source,
    hash: impl FnOnce(Hasher) -> Option<u32>,
    is: impl Fn(&[u8]) -> bool,
    result_of: impl Fn(&[u8], Found) -> T,
) -> Result<T> {
    let has_index = directory.is_indexed() && directory.geometry().compat.contains(Compat::DIR_INDEX);
    let hasher = if has_index { index::hasher(directory)? } else { None };
    if let Some(hash) = hasher.and_then(hash) {
        for leaf in index::leaves(directory, hash)? {
            if let Some(found) = find_in(directory, leaf?, &is, &result_of)? {
                return Ok(found);
            }
        }
        return Err(Error::NotFound);
    }
    for logical in 0..directory.length()? {
        if let Some(found) = find_in(directory, logical, &is, &result_of)? {
            return Ok(found);
        }
    }
    Err(Error::NotFound)
}

fn find_in<T>(
    directory: &impl Source,
    logical: u32,
    is: impl Fn(&[u8]) -> bool,
    result_of: impl Fn(&[u8], Found) -> T,
) -> Result<Option<T>> {
    let Some((number, block)) = directory.block(logical)? else { return Ok(None) };
    for entry in Entries::of_verified(&block, 0, directory.geometry()) {
        let entry = entry.map_err(|corruption| corruption.inode(directory.number()).block(number))?;
        if entry.inode != 0 && is(entry.name) {
            let found = Found { inode: entry.inode, logical, start: entry.start as usize };
            return Ok(Some(result_of(entry.name, found)));
        }
    }
    Ok(None)
}

/// Reports whether a directory has no names but `.` and `..`.
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
