//! Tests of the framework on real mounts.

mod blocking_handlers;
mod common;
mod data;
mod enosys;
mod interrupt;
mod killpriv;
mod lifecycle;
mod lookup_races;
mod notification_storm;
mod notify;
mod ops;
mod passthrough;
mod uring;
mod zero_copy;
