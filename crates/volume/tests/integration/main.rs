//! The engine of volumes, through its public interface: stores, contents, replicas, synchronisation, gateways.

mod common;
// A release build has no failpoints.
#[cfg(any(debug_assertions, feature = "fail"))]
mod compaction;
mod content;
mod deep_trees;
mod fsck_and_gc;
mod gateway;
mod indexed_tree;
mod merge_simulation;
mod replica_simulation;
mod s3;
mod sealed_log;
mod store;
mod store_failures;
mod store_owner;
mod sync;
