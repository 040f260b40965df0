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
    Failure, MAX_FRAME_BYTES, MAX_OBJECT_BYTES, OF_GATEWAYS, OF_NODES, Purpose, Request, Response, Role,
    ServerHello, receive, receive_bytes, send, send_bytes,
};

/// That a connection ended while it was idle is found out by then.
const STALE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections kept for the next request.
const MAX_IDLE_CONNECTIONS: usize = 16;

type Stream = TlsStream<TcpStream>;

/// A node's connections to its gateway.
pub(super) struct Connections {
    pub(super) credentials: Credentials,
    config: Arc<ClientConfig>,
    idle: Mutex<Vec<Stream>>,
    /// As the gateway told it last.
    pub(super) role: Mutex<Option<Role>>,
    /// Where it is noted.
    file: Option<PathBuf>,
    /// This node is a gateway itself.
    pub(super) is_gateway: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Whether the request was done is not known.
    Io(io::Error),
    /// The gateway's word.
    Failed(Failure),
}

impl From<io::Error> for NoAnswer {
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

    /// A gateway ends the connections of a node whose role changes: each change is told by the next welcome.
    fn told(&self, role: Role) {
        let before = self.role.lock().replace(role);
        if before == Some(role) {
            return;
        }
        tracing::info!("{} may {role}", self.credentials.node);
        let noted = self.file.as_deref().map_or(Ok(()), |file| Credentials::note_role(file, role));
        if let Err(error) = noted {
            tracing::warn!("what this node may do is not noted: {error}");
        }
    }

    async fn connect(&self) -> Result<Stream, NoAnswer> {
        let Credentials { address, volume, .. } = &self.credentials;
        let version = if self.is_gateway { OF_GATEWAYS } else { OF_NODES };
        match greet(address, self.config.clone(), volume, version, Purpose::Work).await? {
            (stream, ServerHello::Work(role)) => {
                self.told(role);
                Ok(stream)
            }
            (_, ServerHello::Refused(reason)) => Err(NoAnswer::Failed(Failure::Denied(reason))),
            (_, ServerHello::Enrolled { .. }) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
    }

    /// One request, and its answer with the bytes that belong to it.
    ///
    /// A connection that the gateway ended while it was idle is found out by using it, and the request is made once more
    /// on a new one. That changes nothing of what was done the first time: commits have their token, and what is stored
    /// stays.
    pub(super) async fn ask(&self, ask: &Request, body: &[u8]) -> Result<(Response, Vec<u8>), NoAnswer> {
        let idle = self.idle.lock().pop();
        if let Some(stream) = idle {
            let begun = Instant::now();
            match self.ask_on(stream, ask, body).await {
                Ok(answer) => return answer,
                // It did not end while it was idle: who waits is told, and so much the less would the others answer.
                Err(error) if begun.elapsed() > STALE_CONNECTION_TIMEOUT => {
                    self.idle.lock().clear();
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
        let stream = self.connect().await?;
        self.ask_on(stream, ask, body).await?
    }

    /// `Err` of the outer: the connection is of no use.
    async fn ask_on(
        &self,
        mut stream: Stream,
        ask: &Request,
        body: &[u8],
    ) -> io::Result<Result<(Response, Vec<u8>), NoAnswer>> {
        let length = send(&mut stream, ask).await?;
        if !body.is_empty() {
            send_bytes(&mut stream, body).await?;
        }
        let tell: Response = receive(&mut stream, 2 * MAX_FRAME_BYTES, ask.time(length + body.len()))
            .await?
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let body = match &tell {
            Response::Blob { length, .. } => receive_bytes(&mut stream, *length, MAX_OBJECT_BYTES).await?,
            _ => Vec::new(),
        };
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(stream);
        }
        drop(idle);
        Ok(match tell {
            Response::Failed(failure) => Err(NoAnswer::Failed(failure)),
            tell => Ok((tell, body)),
        })
    }
}
