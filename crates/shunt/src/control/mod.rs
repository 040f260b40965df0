//! The control socket of a mount: how `list`, `stat` and `umount` reach its daemon without touching the mount.

mod client;
mod credentials;
mod dir;
mod proto;
mod server;

pub use client::{Peer, find, survey};
pub use dir::{SocketDir, SocketName};
pub use proto::Hello;
pub use server::{Provider, serve};
