//! The types that all crates of shared volumes use: identifiers, objects, keys, the tree's configuration, and what runs and
//! retries. Only [`private`] (files), [`keepalive`] (socket options) and [`runtime`] (the tokio threads) touch the system.

pub mod backoff;
pub mod crypto;
#[doc(hidden)]
pub mod failpoint;
pub mod id;
pub mod keepalive;
pub mod object;
pub mod private;
pub mod runtime;
pub mod tree_config;
