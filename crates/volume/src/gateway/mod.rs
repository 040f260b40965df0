//! A store for machines that hold no password of it: they speak to a gateway, which does.
//!
//! A gateway ([`server`]) stands before the metadata and the contents of one volume. Both sides show a certificate (TLS
//! 1.3 or 1.2) that the gateway's own authority signed; a node comes by its own with a token that is good for one use and
//! for a while ([`enrol`]). What a node may do is its [`Role`], which the gateway keeps and can take back at once.
//!
//! The gateway keeps no state of a volume: any number of them may stand before one store. One may also stand before
//! another: a node with the role [`Role::Gateway`] asks in the names of its own nodes.

mod blobs;
mod book;
mod bounded;
mod certificates;
mod client;
mod door;
mod enrol;
mod parts;
mod room;
mod server;
#[cfg(test)]
mod tests;
mod waits;
mod way;
mod wire;

pub use blobs::Blobs;
pub use book::{Book, BookError, Node};
pub use certificates::BadCertificate;
pub use client::Client;
pub use enrol::{Credentials, JoinError, Token, join};
pub use server::{Gateway, Serving};
pub use wire::{Role, is_for_want_of};

/// The name in the gateways' certificates. Nodes know a gateway by who signed that, not by where it is.
const NAME: &str = "shunt-gateway";
