//! Tests of the framework on real mounts.

mod common;
mod data;
mod enosys;
mod interrupt;
mod killpriv;
mod lifecycle;
mod notify;
mod ops;
mod passthrough;
mod rings;
mod storm;
mod told;
mod waiting;
