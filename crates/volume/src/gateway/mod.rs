//! A store for machines that hold no password of it: they speak to a gateway, which does.
//!
//! A gateway ([`server`]) stands before the metadata and the contents of one volume. Both sides show a certificate (TLS
//! 1.3 or 1.2) that the gateway's own authority signed; a node comes by its own with a token that is good for one use and
//! for a while ([`enrollment`]). What a node may do is its [`Role`], which the gateway keeps and can take back at once.
//!
//! The gateway keeps no state of a volume: any number of them may stand before one store. One may also stand before
//! another: a node with the role [`Role::Gateway`] asks in the names of its own nodes.

mod blocking;
mod bounded_decode;
mod certificates;
mod client;
mod connection_limit;
mod connections;
mod enrollment;
mod long_poll_limit;
mod memory_budget;
mod object_client;
mod paging;
mod protocol;
mod registry;
mod route;
mod server;
#[cfg(test)]
mod tests;

pub use certificates::BadCertificate;
pub use client::Client;
pub use enrollment::{Credentials, JoinError, Token, join};
pub use object_client::Blobs;
pub use protocol::{Role, is_for_want_of};
pub use registry::{BookError, Node, NodeRegistry};
pub use server::{Gateway, Serving};

/// The name in the gateways' certificates. Nodes know a gateway by who signed that, not by where it is.
const NAME: &str = "shunt-gateway";
