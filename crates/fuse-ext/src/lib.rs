//! Answers FUSE requests in the kernel: tables shared with a BPF program that the module `shunt_fuse_ext` asks before
//! it wakes the daemon.
//!
//! [`Extended`] puts the builtin program before any [`FileSystem`](shunt_fuse::FileSystem): what the file system
//! answers with [`Expiry::FOREVER`](shunt_fuse::Expiry::FOREVER) is stored in the tables, and every change drops what
//! it makes stale. One who writes a program of his own shares [`Table`]s and [`Versions`] with it the same way.
//!
//! Programs are loaded with the feature `bpf`; without it everything else is here, so that file systems need no
//! condition of their own.

mod extended;
mod memory;
mod table;
mod versions;

pub mod builtin;
#[cfg(feature = "bpf")]
pub mod program;

pub use extended::{AccessTimes, Extended, Extension};
pub use memory::Memory;
pub use table::{Slot, Table};
pub use versions::{Version, Versions, mix};
