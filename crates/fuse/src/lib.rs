//! A framework for FUSE file systems at kernel speed.
//!
//! Implement [`FileSystem`], and [`mount()`] it:
//!
//! ```no_run
//! use shunt_fuse::{Attributes, Entry, Errno, Expiry, FileSystem, Name, NodeId, Request};
//!
//! struct Empty;
//!
//! impl FileSystem for Empty {
//!     async fn getattr(
//!         &self,
//!         _request: &Request<'_>,
//!         node: NodeId,
//!         _handle: Option<shunt_fuse::FileHandle>,
//!     ) -> Result<(Attributes, Expiry), Errno> {
//!         Ok((Attributes { ino: node.0, mode: 0o040_555, nlink: 2, ..Attributes::default() }, Expiry::FOREVER))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use shunt_fuse::{Config, Profile, mount::MountOptions};
//! let mounted =
//!     shunt_fuse::mount(Empty, Config::new(Profile::Passthrough), "/mnt".as_ref(), &MountOptions::new())?;
//! mounted.wait()?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guardian;
pub mod mount;
pub mod takeover;
#[cfg(feature = "virtiofs")]
#[cfg_attr(docsrs, doc(cfg(feature = "virtiofs")))]
pub mod virtiofs;

mod api;
mod cache;
mod id;
mod lease;
mod mounted;
mod negotiate;
mod nodes;
mod passthrough;
mod privilege;
mod scheduling;
mod session;
mod transport;

pub use api::*;
pub use cache::{Completion, Invalidated};
pub use id::{FileHandle, LockOwner, NodeId, PollHandle, RequestId};
pub use mounted::{Connected, MountSessionError, Mounted, connect, mount, mount_guarded, reconnect, resume};
pub use negotiate::{
    Config, Negotiated, NegotiationError, PROTOCOL, Profile, Refusal, RingBuffers, Transport,
};
pub use nodes::{NodeTable, TableNode};
pub use passthrough::{Backing, Passthrough};
pub use privilege::drop_fsetid;
pub use rustix::io::Errno;
pub use session::{
    Answer, Caches, Caching, CallerStatistics, FileSystem, Handle, OperationStatistics, Request, Session,
    Snapshot, TransportInUse, append_once, latency_bounds,
};
pub use shunt_fuse_abi::consts::MINOR_EXPIRE_ALL;
pub use shunt_fuse_abi::{InitFlags as Capabilities, Opcode};
pub use transport::channel::FileRange;
pub use transport::device::Device;
pub use transport::payload::{Data, KernelPages, WriteData};

/// The examples of the README, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
