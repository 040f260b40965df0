//! The listening socket and its connections.
//!
//! Limits bound what a client without a session can consume: the connections at a time, the bytes of a request's head, and the
//! time that it may take.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};

use crate::error::{Code, Failure, Result, failed, usage};

use super::app::{App, MAX_DOWNLOADS, MAX_REQUESTS, Settings};
use super::router::router;

/// Limit of the connections at a time; further ones wait. A browser opens six.
const MAX_CONNECTIONS: usize = 64;
/// Limit of the bytes of a request's head: a path of 4 KiB fits, however it is encoded.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Limit of the header fields of a request.
const MAX_HEADERS: usize = 64;
/// Time for the head of a request, also while a connection is idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A server that listens, and does not answer yet.
pub struct Server {
    socket: std::net::TcpListener,
    app: Arc<App>,
}

impl Server {
    /// Listens at a loopback address. `print_link` receives a link for each further browser.
    ///
    /// # Errors
    /// The address is not a loopback address, cannot be resolved, or is in use.
    pub fn bind(
        listen: &str,
        settings: Settings,
        print_link: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let cannot = |error: std::io::Error| {
            let code = if error.kind() == std::io::ErrorKind::AddrInUse { Code::Busy } else { Code::Failed };
            Failure::new(
                code,
                format_args!("cannot listen on {listen}: {error}; choose another HOST:PORT by --listen"),
            )
        };
        let addresses: Vec<SocketAddr> = listen.to_socket_addrs().map_err(cannot)?.collect();
        if !addresses.iter().all(|address| address.ip().is_loopback()) {
            return Err(usage(format_args!(
                "cannot listen on {listen}: other machines could connect, without encryption; listen on 127.0.0.1, and \
                 forward the port by `ssh -L 9550:127.0.0.1:9550 HOST`"
            )));
        }
        let socket = std::net::TcpListener::bind(&addresses[..]).map_err(cannot)?;
        socket.set_nonblocking(true).map_err(cannot)?;
        let address = socket.local_addr().map_err(cannot)?.to_string();
        Ok(Server { socket, app: Arc::new(App::new(address, settings, print_link)) })
    }

    /// The link that opens the page, once.
    pub fn link(&self) -> String {
        self.app.link()
    }

    /// Answers requests until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// Threads or signal handlers cannot be created.
    pub fn run(self) -> Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))?;
        let (end, ended) = oneshot::channel();
        let wait = move || {
            signals.forever().next();
            let _ = end.send(());
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(wait)
            .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            // They end when they are idle.
            .max_blocking_threads(MAX_REQUESTS + MAX_DOWNLOADS)
            .build()
            .map_err(|error| failed(format_args!("cannot start an event loop: {error}")))?;
        let served = runtime.block_on(self.serve(ended));
        // A request that waits for a mount must not delay the end.
        runtime.shutdown_background();
        served.map_err(|error| failed(format_args!("cannot serve the page: {error}")))
    }

    async fn serve(self, ended: oneshot::Receiver<()>) -> std::io::Result<()> {
        let listener = TcpListener::from_std(self.socket)?;
        let router = router(&self.app);
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let accept_all = async {
            loop {
                let Ok(slot) = connections.clone().acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let router = router.clone();
                        tokio::spawn(async move {
                            connection(stream, router).await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_BACKOFF).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accept_all => {}
            _ = ended => {}
        }
        Ok(())
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection failed");
    }
}
