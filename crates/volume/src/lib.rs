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
pub mod history;
pub mod lease;
pub mod maintenance;
pub mod merge;
pub mod open;
pub mod quota;
pub mod replica;
pub mod sync;
pub mod upgrade;
pub mod volume;

#[doc(hidden)]
pub use shunt_volume_types::failpoint;
pub(crate) use shunt_volume_types::runtime;
pub use shunt_volume_types::{backoff, crypto, id, object, private, tree_config};
pub use {shunt_volume_chunks as chunks, shunt_volume_gateway as gateway, shunt_volume_store as store};
