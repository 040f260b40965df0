//! Tests of replies from the kernel, on a real mount. They need the module: `lab/extension` runs them in the lab, where it is
//! loaded.
#![cfg(feature = "bpf")]

mod common;
mod compile;
mod ext4;
mod invalidation;
mod kernel_replies;
mod latency;
mod lifetimes;
mod memory_usage;
mod mirror;
mod mirror_cli;
mod open_count_handover;
mod program_replacement;
mod rings;
mod takeover;
mod volume;
