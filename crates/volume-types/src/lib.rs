//! The vocabulary of shared volumes, which all their crates use: identifiers, objects, keys, the tree's configuration, and what runs
//! and retries. Nothing here does input or output but [`private`] files and TCP keepalive.

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
