//! The node's side: the metadata.

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
    Failure, HistoryRequest, HistoryResponse, MAX_FRAME_BYTES, MAX_OBJECT_BYTES, OF_GATEWAYS, OF_NODES,
    Purpose, Request, Response, Role, ServerHello, receive, receive_bytes, send, send_bytes,
};
use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{ChunkId, LinkName, StoredLink, Time, VersionedObject};
use crate::runtime::runtime;
use crate::store::history::{History, PastLink, Version};
use crate::store::{
    ChunkLocation, GatewayId, LeaseRequest, LeaseResponse, LogEntry, MetaStore, Page, Rejected, StoreError,
    Transaction,
};

/// That a connection ended while it was idle is found out by then.
const STALE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections kept for the next request.
const MAX_IDLE_CONNECTIONS: usize = 16;

type Stream = TlsStream<TcpStream>;

/// A node's connections to its gateway.
pub(super) struct Connections {
    credentials: Credentials,
    config: Arc<ClientConfig>,
    idle: Mutex<Vec<Stream>>,
    /// As the gateway told it last.
    role: Mutex<Option<Role>>,
    /// Where it is noted.
    file: Option<PathBuf>,
    /// This node is a gateway itself.
    is_gateway: bool,
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
    fn new(credentials: Credentials, file: Option<&Path>, is_gateway: bool) -> Result<Self, BadCertificate> {
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

/// The metadata of a volume behind a gateway.
pub struct Client {
    connections: Arc<Connections>,
}

impl Client {
    /// Connects at the first call. Calls block.
    ///
    /// # Errors
    /// The credentials make no sense.
    pub fn new(credentials: Credentials) -> Result<Self, BadCertificate> {
        Ok(Self { connections: Arc::new(Connections::new(credentials, None, false)?) })
    }

    /// The same with credentials that were read from a file, in which is noted what this node may do.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(credentials: Credentials, file: &Path) -> Result<Self, BadCertificate> {
        Ok(Self { connections: Arc::new(Connections::new(credentials, Some(file), false)?) })
    }

    /// The same for a gateway: it asks in the names of its own nodes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_gateway(credentials: Credentials, file: &Path) -> Result<Self, BadCertificate> {
        Ok(Self { connections: Arc::new(Connections::new(credentials, Some(file), true)?) })
    }

    /// The contents of the same volume.
    pub fn blobs(&self) -> super::Blobs {
        super::Blobs::new(self.connections.clone())
    }

    fn ask(&self, ask: &Request) -> Result<Response, StoreError> {
        match runtime().block_on(self.connections.ask(ask, &[])) {
            Ok((tell, _)) => Ok(tell),
            Err(NoAnswer::Io(error)) => {
                let address = &self.connections.credentials.address;
                Err(StoreError::Unreachable(format!("gateway {address}: {error}")))
            }
            Err(NoAnswer::Failed(failure)) => Err(match failure {
                Failure::Unreachable(why) => StoreError::Unreachable(why),
                Failure::Forgotten(seq) => StoreError::Forgotten(seq),
                Failure::NoVolume => StoreError::NoVolume(self.connections.credentials.volume.clone()),
                Failure::Denied(why) => StoreError::Denied(why),
                Failure::Damaged(why) | Failure::Other(why) => StoreError::Damaged(why),
                Failure::NotFound => astray(),
            }),
        }
    }
}

impl Client {
    /// In whose name a node's request is to be; `None`: that of this one, which the gateway knows.
    fn in_name(&self, node: &NodeName) -> Result<Option<NodeName>, StoreError> {
        let Connections { is_gateway, credentials, .. } = &*self.connections;
        match is_gateway {
            true => Ok(Some(node.clone())),
            false if *node == credentials.node => Ok(None),
            false => Err(StoreError::Denied(format!("this node is {}, and not {node}", credentials.node))),
        }
    }
}

/// An answer to another question.
fn astray() -> StoreError {
    StoreError::Damaged("the gateway's answer makes no sense".to_owned())
}

impl Client {
    fn past(&self, ask: HistoryRequest) -> Result<HistoryResponse, StoreError> {
        match self.ask(&Request::Past(ask))? {
            Response::Past(past) => Ok(past),
            _ => Err(astray()),
        }
    }
}

macro_rules! past {
    ($self:ident, $ask:expr, $tell:ident) => {
        match $self.past($ask)? {
            HistoryResponse::$tell(told) => Ok(told),
            _ => Err(astray()),
        }
    };
}

impl History for Client {
    fn kept_since(&self) -> Result<Seq, StoreError> {
        past!(self, HistoryRequest::KeptSince, Seq)
    }

    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError> {
        self.objects_at(&[id], at).map(|mut objects| objects.pop().flatten())
    }

    fn objects_at(&self, ids: &[ObjectId], at: Seq) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        let objects: Result<Vec<_>, _> = past!(self, HistoryRequest::Objects(ids.to_vec(), at), Objects);
        objects.and_then(|objects| if objects.len() == ids.len() { Ok(objects) } else { Err(astray()) })
    }

    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError> {
        past!(self, HistoryRequest::Link(name.clone(), at), Link)
    }

    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        most: usize,
    ) -> Result<Vec<StoredLink>, StoreError> {
        let most = most.try_into().unwrap_or(u32::MAX);
        past!(self, HistoryRequest::Links { parent, at, after: after.to_vec(), most }, Links)
    }

    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError> {
        past!(self, HistoryRequest::Versions(id), Versions)
    }

    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError> {
        past!(self, HistoryRequest::OfName(name.clone()), Past)
    }

    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError> {
        past!(self, HistoryRequest::Names(ids.to_vec()), Past)
    }

    fn seq_at(&self, time: Time) -> Option<Result<Seq, StoreError>> {
        let asked = || past!(self, HistoryRequest::SeqAt(time), Seq);
        Some(asked())
    }
}

impl MetaStore for Client {
    fn only_reads(&self) -> Option<String> {
        let role = (*self.connections.role.lock())?;
        let node = &self.connections.credentials.node;
        (role < Role::Write).then(|| format!("{node} may {role}, and not {}", Role::Write))
    }

    fn head(&self) -> Result<Seq, StoreError> {
        match self.ask(&Request::Head)? {
            Response::Head(seq) => Ok(seq),
            _ => Err(astray()),
        }
    }

    fn way(&self) -> Result<Option<Vec<GatewayId>>, StoreError> {
        match self.ask(&Request::Way)? {
            Response::Way(way) => Ok(way),
            _ => Err(astray()),
        }
    }

    /// In the names of other nodes only where this one is a gateway itself.
    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError> {
        let (count, items) = (items.len(), items.to_vec());
        let ask = match self.in_name(node)? {
            Some(node) => Request::CommitOf { node, token, items },
            None => Request::Commit { token, items },
        };
        match self.ask(&ask)? {
            Response::Committed(answers) if answers.len() == count => Ok(answers),
            _ => Err(astray()),
        }
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        match self.ask(&Request::Get(ids.to_vec()))? {
            Response::Objects(objects) if objects.len() == ids.len() => Ok(objects),
            _ => Err(astray()),
        }
    }

    fn scan(&self, from: ObjectId, most: usize) -> Result<Page, StoreError> {
        match self.ask(&Request::Scan { from, most: most.try_into().unwrap_or(u32::MAX) })? {
            Response::Page(page) => Ok(page),
            _ => Err(astray()),
        }
    }

    fn log_since(&self, after: Seq, most: usize) -> Result<Vec<LogEntry>, StoreError> {
        let mut all: Vec<LogEntry> = Vec::new();
        loop {
            let after = all.last().map_or(after, |entry| entry.seq);
            let (entries, is_whole) = self.log_part(after, most - all.len())?;
            let is_end = is_whole || entries.is_empty();
            all.extend(entries);
            if is_end || all.len() >= most {
                return Ok(all);
            }
        }
    }

    fn log_part(&self, after: Seq, most: usize) -> Result<(Vec<LogEntry>, bool), StoreError> {
        match self.ask(&Request::LogSince { after, most: most.try_into().unwrap_or(u32::MAX) })? {
            Response::Log(entries) => Ok((entries, true)),
            Response::LogPart(entries) => Ok((entries, false)),
            _ => Err(astray()),
        }
    }

    fn places(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        match self.ask(&Request::Places(chunks.to_vec()))? {
            Response::Places(places) if places.len() == chunks.len() => Ok(places),
            _ => Err(astray()),
        }
    }

    fn known(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        match self.ask(&Request::Known(chunks.to_vec()))? {
            Response::Known(known) if known.len() == chunks.len() => Ok(known),
            _ => Err(astray()),
        }
    }

    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        let milliseconds = at_most.as_millis().try_into().unwrap_or(u32::MAX);
        match self.ask(&Request::Wait { after, milliseconds })? {
            Response::Woken(woken) => Ok(woken),
            _ => Err(astray()),
        }
    }

    fn lease(&self, node: &NodeName, ask: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        let ask = match self.in_name(node)? {
            Some(node) => Request::LeaseOf(node, ask.clone()),
            None => Request::Lease(ask.clone()),
        };
        match self.ask(&ask)? {
            Response::Leases(told) => Ok(told),
            _ => Err(astray()),
        }
    }

    fn wait_lease(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        let milliseconds = at_most.as_millis().try_into().unwrap_or(u32::MAX);
        match self.ask(&Request::WaitLease { after, acks, milliseconds })? {
            Response::Woken(woken) => Ok(woken),
            _ => Err(astray()),
        }
    }
}
