//! Volumes: trees of files that several machines share and that go on working off the network.
//!
//! Three parts, none of which knows of FUSE:
//!
//! - A [`store`] holds what all nodes agree on: the metadata of a volume, changed by conditional commits that are totally
//!   ordered, and contents as immutable chunks.
//! - A replica, one per node and volume, holds the tree as this node sees it: all of the metadata, and contents as far as
//!   they were wanted. It is read and written as if there was no network.
//! - Synchronisation carries changes between the two, by a plan that is a pure function of three trees: the replica's, the
//!   store's, and what both last agreed on.

pub mod address;
mod backoff;
pub mod content;
pub mod crypto;
#[doc(hidden)]
pub mod failpoint;
pub mod gateway;
pub mod history;
pub mod id;
mod keepalive;
pub mod lease;
pub mod maintenance;
pub mod merge;
pub mod object;
pub mod open;
pub mod private;
pub mod quota;
pub mod replica;
mod runtime;
pub mod store;
pub mod sync;
pub mod tree_config;
pub mod upgrade;
pub mod volume;
pub mod volume_settings;
