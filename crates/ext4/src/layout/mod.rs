//! The format on the disk: little-endian structures as they lie there, with nothing checked.
//!
//! Offsets and meanings follow the kernel's documentation, `Documentation/filesystems/ext4/`. What is read into these
//! types is checked once, where it becomes a type of the engine.

mod directory;
mod extent;
mod features;
mod group;
mod inode;
mod superblock;
mod xattr;

pub use directory::{DirEntry, DirTail, DxCountLimit, DxEntry, DxRootInfo, TAIL_TYPE};
pub use extent::{EXTENT_MAGIC, Extent, ExtentHeader, ExtentIndex, UNWRITTEN_ABOVE};
pub use features::{Compat, Incompat, RoCompat};
pub use group::{GroupDescriptor, GroupFlags};
pub use inode::{InodeFlags, RawInode};
pub use superblock::{RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, superblock_state};
pub use xattr::{XATTR_MAGIC, XattrEntry, XattrHeader};
