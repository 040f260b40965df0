//! A plugin of the Container Storage Interface (CSI): container orchestrators such as Kubernetes call it over gRPC on a Unix socket to
//! create, mount, bind and remove mirrors and volumes.
//!
//! The plugin starts mounts by the ordinary command (`shunt mirror --daemon`, `shunt volume mount --daemon`), outside of its own
//! container ([`Detach`]) and from a copy of the binary on the host ([`program`]). It holds no descriptor and no thread that a mount needs, so
//! that its end, restart or upgrade is not noticed by the users of a mount. After a restart it knows its mounts from the kernel's mount table
//! and from small files in its state directory, which are written atomically.

mod catalog;
mod commands;
mod config;
mod controller;
mod identity;
mod inflight;
mod launch;
mod mount_table;
mod node;
mod parameters;
pub mod program;
pub mod proto;
mod record_file;
mod request;
mod secrets;
mod server;
mod stages;
mod status;

#[cfg(feature = "client")]
pub mod client;

pub use config::{Config, Provision};
pub use launch::Detach;
pub use server::serve;
