//! Gateways: serve a volume to nodes that have no credentials for its stores.
//!
//! A gateway (`server`) fronts the metadata and contents of one volume. Both sides authenticate with certificates (TLS 1.3 or
//! 1.2) signed by the gateway's own authority; a node gets its certificate for a single-use token with limited lifetime
//! (`enrollment`). A node's permissions are its [`Role`], which the gateway stores and can revoke at once.
//!
//! A gateway is stateless with respect to the volume: any number of them may front one store. Gateways can be chained: a node
//! with the role [`Role::Gateway`] makes requests in the names of its own nodes.

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
mod statistics;
#[cfg(test)]
mod tests;

pub use certificates::BadCertificate;
pub use client::Client;
pub use enrollment::{Credentials, JoinError, Token, join};
pub use object_client::GatewayObjects;
pub use protocol::Role;
pub use registry::{Node, NodeRegistry, RegistryError};
pub use server::{Gateway, ServedVolume, Serving};
pub use statistics::{GatewayOperation, GatewaySnapshot, GatewayStatistics, LATENCY_BOUNDS};

/// Name in the gateways' certificates. Nodes authenticate a gateway by its authority, not by its address.
const NAME: &str = "shunt-gateway";
