//! Connects to a plugin, for tests.

use std::path::Path;

use tonic::transport::{Channel, Endpoint, Error};

pub use crate::proto::service::controller_client::ControllerClient;
pub use crate::proto::service::identity_client::IdentityClient;
pub use crate::proto::service::node_client::NodeClient;

/// Connects to the socket of a plugin.
///
/// # Errors
/// No plugin listens there.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    Endpoint::try_from(format!("unix:{}", socket.display()))?.connect().await
}
