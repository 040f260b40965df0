//! On-disk format: little-endian structures, unchecked.
//!
//! Offsets and meanings follow the kernel's documentation, `Documentation/filesystems/ext4/`. Values are checked once, when they
//! are converted into a type of the engine.

mod directory;
mod extent;
mod features;
mod group;
mod inode;
mod superblock;
mod xattr;

pub(crate) use directory::{DirEntry, DirTail, DxCountLimit, DxEntry, DxRootInfo, TAIL_TYPE};
pub(crate) use extent::{EXTENT_MAGIC, Extent, ExtentHeader, ExtentIndex, UNWRITTEN_ABOVE};
pub use features::{Compat, Incompat, RoCompat};
pub use group::{GroupDescriptor, GroupFlags};
pub use inode::{InodeFlags, RawInode};
pub use superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
pub(crate) use superblock::{SUPERBLOCK_MAGIC, superblock_state};
pub(crate) use xattr::{XATTR_MAGIC, XattrEntry, XattrHeader};
