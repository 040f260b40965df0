//! ext2, ext3 and ext4 images, without the kernel.
//!
//! ```no_run
//! use std::sync::Arc;
//! use shunt_ext4::{FileDevice, Filesystem};
//!
//! let image = std::fs::File::open("disk.img")?;
//! let filesystem = Filesystem::open(Arc::new(FileDevice::new(image, true)?))?;
//! let file = filesystem.walk(b"/etc/hostname")?;
//! let mut content = vec![0; file.size as usize];
//! filesystem.read(&file, 0, &mut content)?;
//! # Ok::<(), shunt_ext4::Error>(())
//! ```
//!
//! An image is not trusted. Every value is checked before it is used, sums are verified where there are any, and what is
//! wrong is told by inode, block and field ([`Corruption`]): never a panic, never a loop, never more memory than the
//! image's largest directory block or attribute asks for.
//!
//! What is changed ([`Filesystem::open_writable`]) goes through the journal where there is one: after a power cut the file
//! system is as it was after one of the changes, and not before the last [`Filesystem::sync`].

#![forbid(unsafe_code)]

mod allocate;
mod attributes;
mod buffer;
mod cache_padded;
mod checksum;
pub mod device;
mod directory;
mod encrypted;
mod error;
mod extents;
mod file;
mod filesystem;
mod group_desc;
mod group_locations;
mod inline;
mod inode;
pub mod journal;
pub mod layout;
mod locks;
mod map;
mod mapped_range;
mod namei;
mod open;
mod orphan_lists;
mod orphans;
pub mod partitions;
mod probe;
mod read;
mod rights;
mod seek;
mod shared_xattrs;
mod superblock;
mod superblock_backup;
mod system_zone;
mod time;
mod usage;
mod xattr;

pub use allocate::ReservedAccess;
pub use attributes::Attributes;
pub use device::{Device, FileDevice, MemoryDevice, Overlay, Window};
pub use directory::{Entry, MAX_NAME_BYTES};
pub use error::{Corruption, Error, Result};
pub use extents::Extent;
pub use file::Fallocate;
pub use filesystem::{Filesystem, ROOT};
pub use group_desc::GroupDesc;
pub use inode::{Inode, Kind};
pub use mapped_range::{MappedRange, Mapping};
pub use namei::{Move, MoveMode, New, NewInodeKind};
pub use open::recover;
pub use superblock::Geometry;
pub use time::Time;
pub use usage::Usage;
pub use xattr::SetMode;
