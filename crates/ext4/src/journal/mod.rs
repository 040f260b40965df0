//! The journal (JBD2): changes are in it before they are in their places, so that a crash leaves all or nothing of each.
//!
//! It is a ring of blocks behind a superblock of its own. A transaction is a number of descriptors, each with copies of
//! blocks behind it, and of revocations; it counts once its commit record is there.

pub(crate) mod fast;
pub mod layout;
mod log;
pub(crate) mod open;
pub(crate) mod replay;
mod ring;
mod sums;
mod superblock;
mod tags;

pub use log::Log;
pub use open::recover;
pub use replay::Recovered;
pub(crate) use ring::Ring;
pub use sums::{Sums, crc32_be, superblock_sum};
pub use superblock::JournalSuperblock;
pub use tags::{Tag, TagForm};

/// Whether transaction `a` came after `b`. Numbers of transactions wrap around.
pub fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
