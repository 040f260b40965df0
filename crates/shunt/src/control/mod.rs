//! The control socket of a mount: how `list`, `stat` and `umount` reach its daemon without touching the mount.

mod client;
mod credentials;
mod dir;
mod proto;
mod server;
mod stream;
mod survey;
mod volume;

pub use client::{Peer, ask, find};
pub use dir::{SocketDir, SocketName};
pub use proto::Hello;
pub use server::{Control, Provider, serve};
pub use survey::{Answer, Mount, survey};
pub use volume::VolumeAsk;
