//! Tests of replies from the kernel, on a real mount. They need the module: `lab/extension` runs them in the lab, where it is
//! loaded.
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
