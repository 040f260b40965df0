//! The control socket of a mount, through which `list`, `stat` and `umount` reach its daemon without touching the mount.

mod client;
mod credentials;
mod dir;
mod proto;
mod query_all;
mod server;
mod stream;
mod volume;

pub use client::{Peer, find, request};
pub use dir::{SocketDir, SocketName};
pub use proto::Hello;
pub use query_all::{Mount, QueryResult, inspect_all, inspect_all_stats, query_all, query_all_stats};
pub use server::{Control, Provider, serve};
pub use volume::VolumeAsk;
