//! Insertion of a link into one leaf block of a directory.

use super::leaf::{self, Link};
use super::source::Target;
use crate::error::Result;

/// Inserts a name into a leaf; returns `false` if it does not fit. A hole has no room.
pub(super) fn insert_in(directory: &mut impl Target, logical: u32, link: &Link<'_>) -> Result<bool> {
    let Some((number, block)) = directory.block(logical)? else { return Ok(false) };
    let owner = directory.number();
    // Search first, so that a full block is not changed needlessly.
    let room = leaf::find_room(&block, directory.geometry(), link.name)
        .map_err(|corruption| corruption.inode(owner).block(number))?;
    let Some(start) = room else { return Ok(false) };
    // A remaining reference would make the change copy the block.
    drop(block);
    directory.change(logical, |block, geometry| leaf::insert(block, geometry, start, link))?;
    Ok(true)
}
