//! Real workloads on `shunt ext4 IMAGE MOUNTPOINT`: programs, databases, large trees, little free space. After each, `e2fsck
//! -fn` finds nothing to repair, and the kernel's own ext4 shows the same.
//!
//! Tests that take minutes are ignored by default: `make soak` runs them.

mod databases;
mod enospc;
mod large_images;
mod large_trees;
mod postgres;
mod programs;
mod sqlite;
