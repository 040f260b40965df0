//! Real work on `shunt ext4 IMAGE MOUNTPOINT`: programs, data bases, large trees, little room. After each, `e2fsck -fn` finds
//! nothing to mend, and the kernel's own ext4 shows the same.
//!
//! What takes minutes is ignored unless asked for: `make soak` does that.

mod databases;
mod full;
mod postgres;
mod programs;
mod room;
mod sqlite;
mod trees;
