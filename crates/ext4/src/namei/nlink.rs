//! Link counts (`i_nlink`) and their limits.

use crate::error::{Error, Result};
use crate::inode::{Inode, Kind};
use crate::layout::{Compat, InodeFlags, RoCompat};
use crate::superblock::Geometry;

/// Maximum number of links of an inode.
const MAX_LINKS: u32 = 65_000;

/// Indexed directories may have more subdirectories than can be counted; their link count is then 1.
fn may_overflow(geometry: &Geometry, inode: &Inode) -> bool {
    inode.kind == Kind::Directory
        && geometry.compat.contains(Compat::DIR_INDEX)
        && inode.flags.contains(InodeFlags::INDEX)
}

/// Checks that the inode can have another link.
pub(super) fn check_room(geometry: &Geometry, inode: &Inode) -> Result<()> {
    let overflows = geometry.ro_compat.contains(RoCompat::DIR_NLINK) && may_overflow(geometry, inode);
    if inode.links >= MAX_LINKS && !overflows { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// Adds a link.
pub(super) fn add(geometry: &Geometry, inode: &mut Inode) {
    // A link count of 1 means that subdirectories are not counted.
    let uncounted = inode.links == 1 || inode.links >= MAX_LINKS;
    inode.links = if uncounted && may_overflow(geometry, inode) { 1 } else { inode.links + 1 };
}

/// Drops a link. A directory keeps its own two links until it is removed, and an uncounted one stays uncounted.
pub(crate) fn drop(inode: &mut Inode) {
    if inode.kind != Kind::Directory || inode.links > 2 {
        inode.links = inode.links.saturating_sub(1);
    }
}

/// Returns the link count of a directory with this number of subdirectories.
pub(crate) fn of_directory(geometry: &Geometry, inode: &Inode, directories: u64) -> u32 {
    match u32::try_from(directories + 2) {
        Ok(links) if links < MAX_LINKS || !may_overflow(geometry, inode) => links,
        _ => 1,
    }
}
