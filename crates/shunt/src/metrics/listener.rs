//! The listening socket of metrics.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Code, Failure, Result, failed};

use super::http;
use super::scrape::Source;

/// How long a daemon that takes over waits for its predecessor to release the address.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the attempts.
const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A listening socket that no thread serves yet. It is created before a daemon gives up the right to create it.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at `HOST:PORT`; with port 0 at a free one. Warns if other machines can connect.
    ///
    /// # Errors
    /// The address cannot be resolved or is in use.
    pub fn bind(address: &str) -> Result<Self> {
        let cannot = |error: std::io::Error| {
            let code = if error.kind() == std::io::ErrorKind::AddrInUse { Code::Busy } else { Code::Failed };
            Failure::new(
                code,
                format_args!("cannot listen on {address} for metrics: {error}; choose another HOST:PORT"),
            )
        };
        let socket = TcpListener::bind(address).map_err(cannot)?;
        let address = socket.local_addr().map_err(cannot)?;
        if !address.ip().is_loopback() {
            tracing::warn!(
                "metrics at {address} are readable by other machines, without encryption or password: use a loopback address, \
                 or protect the port by a firewall"
            );
        }
        Ok(Listener { socket, address })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers scrapes from a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(self, source: Arc<dyn Source>) -> Result<()> {
        tracing::info!("metrics at http://{}/metrics", self.address);
        let work = move || http::serve(&self.socket, &source);
        let started = thread::Builder::new().name("metrics".into()).spawn(work);
        started.map(drop).map_err(|error| failed(format_args!("cannot start a thread: {error}")))
    }

    /// Listens as soon as the daemon that this one takes over from has released the address, and answers scrapes. Failures are
    /// logged: the mount is served without metrics then.
    pub fn serve_when_free(address: &str, source: Arc<dyn Source>) {
        let address = address.to_owned();
        let work = move || {
            let end = Instant::now() + RELEASE_TIMEOUT;
            let bound = loop {
                match Self::bind(&address) {
                    Err(failure) if failure.code == Code::Busy && Instant::now() < end => {
                        thread::sleep(RELEASE_POLL_INTERVAL);
                    }
                    bound => break bound,
                }
            };
            match bound {
                Ok(listener) => http::serve(&listener.socket, &source),
                Err(failure) => tracing::warn!("no metrics of this daemon: {failure}"),
            }
        };
        if let Err(error) = thread::Builder::new().name("metrics".into()).spawn(work) {
            tracing::warn!("no metrics of this daemon: cannot start a thread: {error}");
        }
    }
}
