//! How many names an inode has.

use crate::error::{Error, Result};
use crate::inode::{Inode, Kind};
use crate::layout::{Compat, InodeFlags, RoCompat};
use crate::superblock::Geometry;

/// Most names of an inode.
const MAX_LINKS: u32 = 65_000;

/// Directories with an index may have more directories in them than can be counted; they have one link then.
fn may_overflow(geometry: &Geometry, inode: &Inode) -> bool {
    inode.kind == Kind::Directory
        && geometry.compat.contains(Compat::DIR_INDEX)
        && inode.flags.contains(InodeFlags::INDEX)
}

/// Whether it can have one more.
pub(super) fn check_room(geometry: &Geometry, inode: &Inode) -> Result<()> {
    let overflows = geometry.ro_compat.contains(RoCompat::DIR_NLINK) && may_overflow(geometry, inode);
    if inode.links >= MAX_LINKS && !overflows { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// One more.
pub(super) fn add(geometry: &Geometry, inode: &mut Inode) {
    // A directory with one link is one that cannot be counted.
    let uncounted = inode.links == 1 || inode.links >= MAX_LINKS;
    inode.links = if uncounted && may_overflow(geometry, inode) { 1 } else { inode.links + 1 };
}

/// One less. A directory keeps its own two while it is there, and one that is not counted stays so.
pub(crate) fn drop(inode: &mut Inode) {
    if inode.kind != Kind::Directory || inode.links > 2 {
        inode.links = inode.links.saturating_sub(1);
    }
}

/// What a directory with so many directories in it has.
pub(crate) fn of_directory(geometry: &Geometry, inode: &Inode, directories: u64) -> u32 {
    match u32::try_from(directories + 2) {
        Ok(links) if links < MAX_LINKS || !may_overflow(geometry, inode) => links,
        _ => 1,
    }
}
