//! The journal (JBD2): changes are in it before they are in their places, so that a crash leaves all or nothing of each.
//!
//! It is a ring of blocks behind a superblock of its own. A transaction is a number of descriptors, each with copies of
//! blocks behind it, and of revocations; it counts once its commit record is there.

mod area;
mod checksum;
pub(crate) mod fast_commit;
pub mod layout;
pub(crate) mod recovery;
mod superblock;
mod tags;
mod writer;

pub use area::JournalArea;
pub use checksum::{Sums, crc32_be, superblock_sum};
pub use recovery::Recovered;
pub use superblock::JournalSuperblock;
pub use tags::{Tag, TagForm};
pub(crate) use writer::JournalWriter;

/// Whether transaction `a` came after `b`. Numbers of transactions wrap around.
pub fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
