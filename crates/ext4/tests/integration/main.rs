//! Tests of the ext4 engine through its public interface, against models, e2fsck and the kernel.

mod common;
mod corrupted_content;
mod corrupted_names;
mod corrupted_reads;
mod crash;
mod debugfs_journals;
mod direct_write;
mod discard;
mod fast_commits;
mod file_content;
mod freed_inodes;
mod journal;
mod kernel_images;
mod memory_usage;
mod model;
mod namei;
mod read_errors;
mod recovery;
mod reservation_windows;
mod reserved_blocks;
mod small_journal;
mod system_zone;
mod xattrs;
