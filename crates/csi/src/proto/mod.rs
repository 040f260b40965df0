//! The messages of the Container Storage Interface, package `csi.v1`, as far as they are used: names, field numbers and types are those
//! of the specification, version 1.13, and of 1.12 for the condition of a volume. Unknown fields are skipped.

#![allow(missing_docs, reason = "the specification documents them")]

mod controller;
mod identity;
mod node;
mod volume;

pub use controller::*;
pub use identity::*;
pub use node::*;
pub use volume::*;

/// The traits that services implement and the servers that dispatch calls to them; with the feature `client`, clients.
#[allow(clippy::all, clippy::pedantic, rust_2018_idioms, unreachable_pub, reason = "generated")]
pub mod service {
    include!(concat!(env!("OUT_DIR"), "/csi.v1.Identity.rs"));
    include!(concat!(env!("OUT_DIR"), "/csi.v1.Controller.rs"));
    include!(concat!(env!("OUT_DIR"), "/csi.v1.Node.rs"));
}
