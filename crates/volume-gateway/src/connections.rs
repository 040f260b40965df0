//! A node's pool of TLS connections to its gateway, and one request on one of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;

use super::certificates::BadCertificate;
use super::enrollment::{Credentials, greet};
use super::protocol::{
    Failure, GATEWAY_VERSION, MAX_FRAME_BYTES, MAX_OBJECT_BYTES, NODE_VERSION, Purpose, Request, Response,
    Role, ServerHello, receive, receive_bytes, send, send_bytes,
};

/// Maximum time in which a connection that was closed while idle fails on use.
const STALE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 16;

type Stream = TlsStream<TcpStream>;

/// A node's connections to its gateway.
pub(super) struct Connections {
    pub(super) credentials: Credentials,
    config: Arc<ClientConfig>,
    idle: Mutex<Vec<Stream>>,
    /// The role that the gateway reported last.
    pub(super) role: Mutex<Option<Role>>,
    /// The file that records the role.
    file: Option<PathBuf>,
    /// This node is a gateway itself.
    pub(super) is_gateway: bool,
}

/// The reason why a request got no response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// Transport error: the request may have been performed.
    Io(io::Error),
    /// Error reported by the gateway.
    Failed(Failure),
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Connections {
    pub(super) fn new(
        credentials: Credentials,
        file: Option<&Path>,
        is_gateway: bool,
    ) -> Result<Self, BadCertificate> {
        let config = credentials.tls()?;
        let role = Mutex::new(credentials.role);
        let file = file.map(Path::to_owned);
        Ok(Self { credentials, config, idle: Mutex::default(), role, file, is_gateway })
    }

    /// Records the role of this node. A gateway closes the connections of a node whose role changes: the next handshake reports
    /// it.
    fn record_role(&self, role: Role) {
        let before = self.role.lock().replace(role);
        if before == Some(role) {
            return;
        }
        tracing::info!("node {} has role {role}", self.credentials.node);
        let noted = self.file.as_deref().map_or(Ok(()), |file| Credentials::record_role(file, role));
        if let Err(error) = noted {
            tracing::warn!(
                "cannot record the role of node {} in its credentials: {error}; \
                while the gateway is unreachable, the previous role is assumed",
                self.credentials.node
            );
        }
    }

    async fn connect(&self) -> Result<Stream, RequestError> {
        let Credentials { address, volume, .. } = &self.credentials;
        let version = if self.is_gateway { GATEWAY_VERSION } else { NODE_VERSION };
        match greet(address, self.config.clone(), volume, version, Purpose::Work).await? {
            (stream, ServerHello::Work(role)) => {
                self.record_role(role);
                Ok(stream)
            }
            (_, ServerHello::Refused(reason)) => Err(RequestError::Failed(Failure::Denied(reason))),
            (_, ServerHello::Enrolled { .. }) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
    }

    /// Performs one request; returns the response with its body.
    ///
    /// If an idle connection turns out to have been closed by the gateway, the request is repeated on a new one. That is safe:
    /// commits have their token, and objects that exist are not overwritten.
    pub(super) async fn request(
        &self,
        request: &Request,
        body: &[u8],
    ) -> Result<(Response, Vec<u8>), RequestError> {
        let idle = self.idle.lock().pop();
        if let Some(stream) = idle {
            let begun = Instant::now();
            match self.request_on(stream, request, body).await {
                Ok(answer) => return answer,
                // It was not closed while idle: the error is reported, and other idle connections are unlikely to work either.
                Err(error) if begun.elapsed() > STALE_CONNECTION_TIMEOUT => {
                    self.idle.lock().clear();
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
        let stream = self.connect().await?;
        self.request_on(stream, request, body).await?
    }

    /// Performs a request on a connection. The outer `Err` means that the connection is unusable.
    async fn request_on(
        &self,
        mut stream: Stream,
        request: &Request,
        body: &[u8],
    ) -> io::Result<Result<(Response, Vec<u8>), RequestError>> {
        let length = send(&mut stream, request).await?;
        if !body.is_empty() {
            send_bytes(&mut stream, body).await?;
        }
        let response: Response = receive(&mut stream, 2 * MAX_FRAME_BYTES, request.time(length + body.len()))
            .await?
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let body = match &response {
            Response::Blob { length, .. } => receive_bytes(&mut stream, *length, MAX_OBJECT_BYTES).await?,
            _ => Vec::new(),
        };
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(stream);
        }
        drop(idle);
        Ok(match response {
            Response::Failed(failure) => Err(RequestError::Failed(failure)),
            response => Ok((response, body)),
        })
    }
}
