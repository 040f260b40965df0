//! The journal (jbd2): write-ahead logging of metadata blocks, so that a crash leaves all or nothing of each transaction.
//!
//! The journal is a ring of blocks behind a superblock of its own. A transaction consists of descriptors, each followed by logged
//! blocks, and of revoke blocks; it is valid once its commit record is written.

mod area;
mod checksum;
pub(crate) mod fast_commit;
pub mod layout;
pub(crate) mod recovery;
mod superblock;
mod tags;
mod writer;

pub(crate) use area::JournalArea;
pub use checksum::{Sums, crc32_be, superblock_sum};
pub use recovery::Recovered;
pub use superblock::JournalSuperblock;
pub use tags::{Tag, TagForm};
pub(crate) use writer::JournalWriter;

/// Reports whether transaction `a` is later than `b`. Transaction numbers wrap around.
pub(crate) fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
