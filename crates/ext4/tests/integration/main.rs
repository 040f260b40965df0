//! Tests of the ext4 engine through its public interface, against models, e2fsck and the kernel.

mod common;
mod content;
mod crash;
mod debugfs;
mod discard;
mod failing_reads;
mod fast_commits;
mod freed;
mod given;
mod growing;
mod hostile;
mod hostile_content;
mod hostile_names;
mod hostile_zone;
mod journal;
mod kernel;
mod memory;
mod model;
mod names;
mod recovery;
mod reserved;
mod small_journal;
mod xattrs;
