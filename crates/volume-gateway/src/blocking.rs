//! Blocking calls of a gateway's server.

use std::io;

/// Runs a call that blocks on tokio's blocking pool, off the threads that serve connections.
///
/// # Errors
/// The error if the call panicked.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
