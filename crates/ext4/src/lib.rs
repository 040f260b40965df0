//! A user-space implementation of ext2, ext3 and ext4.
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
//! Images are untrusted. Every value is checked before use, checksums are verified where they exist, and damage is reported by
//! inode, block and field ([`Corruption`]). No image causes a panic, an infinite loop, or more memory use than the image's
//! largest directory block or attribute requires.
//!
//! Changes ([`Filesystem::open_writable`]) are journaled if the file system has a journal: after a power failure, the file system
//! is in the state after one of the changes, and at least in that of the last [`Filesystem::sync`].

#![forbid(unsafe_code)]

mod allocate;
mod attributes;
mod block_mapping;
mod buffer;
mod checksum;
pub mod device;
mod directory;
mod encrypted;
mod error;
mod file;
mod filesystem;
mod free_space;
mod group_desc;
mod inline;
mod inode;
pub mod journal;
pub mod layout;
mod locks;
mod map;
mod namei;
mod open;
mod orphan_slots;
mod orphans;
pub mod partitions;
mod probe;
mod superblock;
mod superblock_backup;
mod system_zone;
mod time;
mod usage;
mod xattr;
mod xattr_block_cache;

pub use allocate::ReservedAccess;
pub use attributes::Attributes;
pub use block_mapping::{MappedRange, Mapping};
pub use buffer::{MAX_OPERATIONS, Operation, Outcome, SHADOW_WORDS, SharedMemory, UNNAMED};
pub use device::{Device, FileDevice, MemoryDevice, Overlay, Window};
pub use directory::{Entry, MAX_NAME_BYTES};
pub use error::{Corruption, Error, Result};
pub use file::{Extent, Fallocate, ForeignData, WriteSource};
pub use filesystem::{Filesystem, ROOT};
pub use group_desc::GroupDesc;
pub use inode::{Inode, Kind};
pub use namei::{Move, NewInode, NewInodeKind, RenameMode};
pub use open::recover;
pub use superblock::Geometry;
pub use time::Time;
pub use usage::Usage;
pub use xattr::SetMode;

/// The examples of the README, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
