//! Volumes: trees of files that several machines share and that stay usable offline.
//!
//! Three parts, none of which depends on FUSE:
//!
//! - A [`store`] contains the state that all nodes agree on: the metadata of a volume, changed by conditional commits that are
//!   totally ordered, and contents as immutable chunks.
//! - A replica, one per node and volume, contains the tree as this node sees it: all of the metadata, and cached contents. It
//!   is read and written without the network.
//! - Synchronisation transfers changes between the two, by a merge that is a pure function of three trees: the replica's, the
//!   store's, and the last one both agreed on.

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
