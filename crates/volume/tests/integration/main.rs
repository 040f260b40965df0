//! The engine of volumes, through its public interface: stores, contents, replicas, synchronisation, gateways.

mod common;
mod content;
mod deep;
mod deep_tree;
mod gateway;
mod keep;
mod keep_place;
mod keep_rewrite;
mod replicas;
mod s3;
mod sealed;
mod sim;
mod store;
mod sync;
mod sync_store;
