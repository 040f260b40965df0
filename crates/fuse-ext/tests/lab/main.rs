//! Answers from the kernel, on a real mount. Needs the module: `lab/extension` runs these in the lab, where it is loaded.
#![cfg(feature = "bpf")]

mod answers;
mod changes;
mod common;
mod compile;
mod ext4;
mod handing;
mod lifetimes;
mod memory;
mod mirror;
mod mirrored;
mod replacing;
mod speed;
mod volume;
