//! Replies to FUSE requests in the kernel: tables shared with a BPF program, which the module `shunt_fuse_ext` calls before it
//! wakes the daemon.
//!
//! [`Extended`] puts the builtin program in front of any [`FileSystem`](shunt_fuse::FileSystem): replies with
//! [`Expiry::FOREVER`](shunt_fuse::Expiry::FOREVER) are stored in the tables, and every change invalidates the entries that it
//! makes stale. Authors of other programs share [`Table`]s and [`Versions`] with them in the same way.
//!
//! Loading programs requires the feature `bpf`; without it everything else is available, so that file systems need no conditional
//! code.

mod extended;
mod memory;
mod table;
mod versions;

pub mod builtin;
#[cfg(feature = "bpf")]
pub mod program;

#[cfg(feature = "bpf")]
pub use extended::EarlierProgram;
pub use extended::{AccessTimes, Extended, Extension};
pub use memory::Memory;
pub use table::{Slot, Table};
pub use versions::{Version, Versions, mix};
