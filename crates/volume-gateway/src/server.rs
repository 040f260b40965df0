//! The server half of the gateway protocol.
//!
//! A connection is authenticated by its certificate, and the node's role is checked for each request. The resources of a client are
//! limited: [pending connections](super::connection_limit), [memory](super::memory_budget) and [threads](super::long_poll_limit).
//! Requests for metadata go to the volume's store, those for contents to its object store, where only keys of packs and probes
//! are accessible.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use object_store::ObjectStore;
use object_store::path::Path as Key;
use shunt_volume_chunks::{Blobs, ContentError, fault};
use shunt_volume_store::history::seq_at;
use shunt_volume_store::lease_table::MAX_LEASES;
use shunt_volume_store::validate::is_too_long;
use shunt_volume_store::{GatewayId, MetaStore, StoreError};
use shunt_volume_types::id::VolumeName;
use shunt_volume_types::keepalive::end_when_silent;
use shunt_volume_types::runtime::runtime;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::blocking::blocking;
use super::bounded_decode::{self, DecodeError};
use super::connection_limit::{ConnectionLimiter, PendingConnection};
use super::long_poll_limit::LongPollLimiter;
use super::memory_budget::{
    ConnectionSlot, MAX_CONNECTIONS_OF_NODE, MemoryBudget, MemoryPermit, Pool, SMALL_MESSAGE_BYTES,
};
use super::paging::{self, all, each, latest};
use super::protocol::{
    BlobStat, ClientHello, Failure, GATEWAY_VERSION, HistoryRequest, HistoryResponse, MAX_FRAME_BYTES,
    MAX_HELLO_BYTES, MAX_ITEMS, MAX_OBJECT_BYTES, MIN_VERSION, Purpose, Request, Response, Role, ServerHello,
    VERSION, announced, denied, discard, frame, receive, receive_bytes, send, send_bytes,
};
use super::registry::{Node, NodeRegistry, RegistryError};
use super::route::GatewayPath;
use super::statistics::{self, GatewayStatistics};

/// Maximum number of connections of known nodes; further ones wait for a slot.
const MAX_CONNECTIONS: usize = 4096;
/// Timeout for the first bytes of a connection.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the TLS handshake and the hello messages.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to finish running requests on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle connections are closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum duration of a long poll.
const MAX_LONG_POLL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum duration of a wait while the limit of long polls is reached.
const MAX_UNNOTIFIED_WAIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum bytes of a frame from a read-only node, whose requests are short.
const MAX_READER_FRAME_BYTES: usize = 1 << 20;
/// Memory for a decoded frame: bytes per byte of the frame, bytes besides, and the maximum.
const DECODED_FRAME_MEMORY: (usize, usize, usize) = (16, 64 << 10, 4 * MAX_FRAME_BYTES);
/// Memory for a response while it is built: its values and its frame.
const RESPONSE_MEMORY_BYTES: usize = MAX_FRAME_BYTES;
/// Maximum bytes of a response to a gateway, for requests that can be answered in several responses.
const MAX_RELAYED_RESPONSE_BYTES: usize = 1 << 20;
/// Prefix of the keys of packs.
const PACKS_PREFIX: &str = "packs";
/// Prefix of the keys of probe objects, which test whether the store is writable.
const PROBE_PREFIX: &str = "probe";
/// Maximum number of stored objects in one response.
const MAX_LISTED_OBJECTS: usize = 1000;

type Stream = TlsStream<TcpStream>;

/// The volume that a gateway serves. Contents pass through it as they are stored: a gateway needs no key.
#[derive(Clone)]
pub struct ServedVolume {
    /// The volume name that clients send.
    pub name: VolumeName,
    /// Its descriptor in the stored form, which joining nodes receive.
    pub descriptor: Vec<u8>,
    /// Names are encrypted, and so may be longer.
    pub hides_names: bool,
    /// The metadata.
    pub meta: Arc<dyn MetaStore>,
    /// The contents.
    pub blobs: Blobs,
}

/// The gateway of one volume.
pub struct Gateway {
    volume: VolumeName,
    meta: Arc<dyn MetaStore>,
    blobs: Blobs,
    objects: Arc<dyn ObjectStore>,
    about: Vec<u8>,
    /// Names may have the length of encrypted ones.
    hides_names: bool,
    registry: Arc<NodeRegistry>,
    acceptor: TlsAcceptor,
    long_polls: Arc<LongPollLimiter>,
    pub(super) memory: Arc<MemoryBudget>,
    limiter: Arc<ConnectionLimiter>,
    /// Slots for connections that have completed the handshake.
    connection_slots: Arc<Semaphore>,
    path: Arc<GatewayPath>,
    statistics: Arc<GatewayStatistics>,
}

impl Gateway {
    /// Creates the gateway of a volume for the nodes of a registry.
    ///
    /// # Errors
    /// [`RegistryError`] if the certificate cannot be created.
    pub fn new(volume: impl Into<ServedVolume>, registry: Arc<NodeRegistry>) -> Result<Self, RegistryError> {
        let ServedVolume { name, descriptor, hides_names, meta, blobs } = volume.into();
        let acceptor = TlsAcceptor::from(Arc::new(registry.authority().server()?));
        let mut own = GatewayId::default();
        blake3::Hasher::new().update(&registry.authority().certificate).finalize_xof().fill(&mut own);
        Ok(Self {
            volume: name,
            meta,
            objects: blobs.objects(),
            blobs,
            about: descriptor,
            hides_names,
            registry,
            acceptor,
            long_polls: Arc::default(),
            memory: Arc::new(MemoryBudget::new()),
            limiter: Arc::default(),
            connection_slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            path: Arc::new(GatewayPath::new(own)),
            statistics: Arc::default(),
        })
    }

    /// Returns the counters of this gateway.
    pub fn statistics(&self) -> Arc<GatewayStatistics> {
        self.statistics.clone()
    }

    /// Serves at an address (host and port; port 0: a free one) until it is stopped.
    ///
    /// # Errors
    /// The [`io::Error`] of binding or listening.
    pub fn listen(self, address: &str) -> io::Result<Serving> {
        let listener = runtime().block_on(TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        self.path.refresh(&*self.meta);
        let task = runtime().spawn(Arc::new(self).serve(listener, async { drop(stopped.await) }));
        Ok(Serving { address, stop, task })
    }

    /// Serves connections until `stop` is ready; running requests are then finished.
    ///
    /// # Errors
    /// An [`io::Error`] if the gateway cannot go on accepting connections.
    async fn serve(self: Arc<Self>, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let (stopping, stopped) = watch::channel(false);
        let mut sessions = JoinSet::new();
        let mut following = JoinSet::new();
        following.spawn(self.path.clone().refresh_periodically(self.meta.clone()));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Usually for lack of descriptors, which closing connections release.
                    tracing::warn!(
                        "cannot accept a connection: {error}; retrying (if \
                        descriptors are exhausted, raise the limit of open files)"
                    );
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Some(waiting) = self.limiter.admit(peer.ip()) else {
                self.statistics.refused();
                tracing::debug!(
                    "connection from {peer} refused: too many connections wait for the handshake"
                );
                continue;
            };
            let (gateway, stopped) = (self.clone(), stopped.clone());
            sessions.spawn(async move {
                if let Err(error) = gateway.session(stream, peer, waiting, stopped).await {
                    tracing::debug!("connection from {peer} failed: {error}");
                }
            });
            while sessions.try_join_next().is_some() {}
        }
        let _ = stopping.send(true);
        let ended = timeout(SHUTDOWN_TIMEOUT, async { while sessions.join_next().await.is_some() {} });
        if ended.await.is_err() {
            tracing::warn!(
                "shutdown: closing {} connections with running requests after {} s",
                sessions.len(),
                SHUTDOWN_TIMEOUT.as_secs()
            );
        }
        Ok(())
    }

    async fn session(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        waiting: PendingConnection,
        mut stopped: watch::Receiver<bool>,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        end_when_silent(&stream)?;
        timeout(FIRST_BYTE_TIMEOUT, stream.peek(&mut [0])).await??;
        let greeted = timeout(HANDSHAKE_TIMEOUT, async {
            let mut stream = self.acceptor.accept(stream).await?;
            let greeting: Option<ClientHello> =
                receive(&mut stream, MAX_HELLO_BYTES, HANDSHAKE_TIMEOUT).await?;
            io::Result::Ok((stream, greeting))
        });
        let (mut stream, Some(greeting)) = greeted.await?? else { return Ok(()) };
        let certificate = {
            let (_, tls) = stream.get_ref();
            tls.peer_certificates().and_then(|chain| chain.first()).map(|first| first.to_vec())
        };
        let (version, response_version) = (greeting.version, greeting.response_version);
        let welcome = self.welcome(greeting, certificate.as_deref(), peer).await;
        send(&mut stream, &welcome).await?;
        let (ServerHello::Work(role), Some(certificate)) = (welcome, certificate) else {
            return stream.shutdown().await;
        };
        let _place = self.connection_slots.acquire().await.map_err(io::Error::other)?;
        drop(waiting);
        let _open = self.statistics.connected();
        let node = self.authenticate(&certificate, version).await?;
        let slot = node.and_then(|node| self.memory.register(&node));
        // An excess connection gets an error, and soon ends.
        let idle = if slot.is_some() { IDLE_TIMEOUT } else { HANDSHAKE_TIMEOUT };
        loop {
            let length = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                length = announced(&mut stream, MAX_FRAME_BYTES, idle) => length,
            };
            let Ok(Some(length)) = length else { break };
            // A node removed meanwhile is unknown. One whose role changed has to reconnect, and is informed then.
            let node = self.authenticate(&certificate, version).await?;
            let Some(node) = node.filter(|node| node.role == role) else { break };
            let Some(slot) = &slot else {
                let many = format!(
                    "{} has {MAX_CONNECTIONS_OF_NODE} connections to the gateway, which is the limit",
                    node.name
                );
                self.reject_undecoded(&mut stream, length, Failure::Unreachable(many)).await?;
                break;
            };
            if node.role == Role::Read && length > MAX_READER_FRAME_BYTES {
                let failure = denied(&node.name, node.role, Role::Write).for_client(response_version);
                self.reject_undecoded(&mut stream, length, failure).await?;
                continue;
            }
            let Some((request, permit)) = self.receive_request(&mut stream, slot, length).await? else {
                break;
            };
            self.answer(&mut stream, &node, slot, (request, permit), response_version).await?;
        }
        stream.shutdown().await
    }

    /// Rejects a request without decoding it.
    async fn reject_undecoded(&self, stream: &mut Stream, length: usize, failure: Failure) -> io::Result<()> {
        discard(stream, length as u64, MAX_FRAME_BYTES as u64).await?;
        send(stream, &Response::Failed(failure)).await.map(drop)
    }

    /// Receives and decodes a request; returns it with its memory permit. `None`: the connection has to be closed.
    async fn receive_request(
        &self,
        stream: &mut Stream,
        slot: &ConnectionSlot,
        length: usize,
    ) -> io::Result<Option<(Request, MemoryPermit)>> {
        let frame_permit = slot.take(Pool::Frames, length).await?;
        let frame = receive_bytes(stream, length as u64, MAX_FRAME_BYTES as u64).await?;
        let (of_each, besides, at_most) = DECODED_FRAME_MEMORY;
        let limit = (of_each * length + besides).min(at_most);
        // The memory of a short message is bounded by its length.
        let mut permit = if length > SMALL_MESSAGE_BYTES {
            slot.take(Pool::Work, limit).await?
        } else {
            MemoryPermit::default()
        };
        let decoded = bounded_decode::decode(&frame, limit);
        drop((frame, frame_permit));
        match decoded {
            Ok((request, used)) => {
                permit.shrink_to(length.max(used));
                Ok(Some((request, permit)))
            }
            Err(DecodeError::LimitExceeded) => {
                let failure = Failure::Other(
                    "the gateway rejects a message: decoded, it \
                    exceeds the memory limit of a request"
                        .to_owned(),
                );
                send(stream, &Response::Failed(failure)).await?;
                Ok(None)
            }
            Err(DecodeError::Malformed(error)) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Returns the node of a certificate, with the role limited to those that the protocol version has.
    async fn authenticate(&self, certificate: &[u8], version: u32) -> io::Result<Option<Node>> {
        let (registry, certificate) = (self.registry.clone(), certificate.to_vec());
        let mut node = blocking(move || registry.node(&certificate)).await?.map_err(io::Error::other)?;
        if let Some(node) = node.as_mut().filter(|_| version < GATEWAY_VERSION) {
            node.role = node.role.min(Role::Admin);
        }
        Ok(node)
    }

    async fn welcome(
        &self,
        greeting: ClientHello,
        certificate: Option<&[u8]>,
        peer: SocketAddr,
    ) -> ServerHello {
        if !(MIN_VERSION..=VERSION).contains(&greeting.version) {
            let version = greeting.version;
            return ServerHello::Refused(format!(
                "the gateway has protocol version {VERSION}, this node {version}: update the older one"
            ));
        }
        if greeting.volume != self.volume {
            return ServerHello::Refused(format!("this gateway serves volume {}", self.volume));
        }
        match greeting.purpose {
            Purpose::Work => {
                let node = match certificate {
                    Some(certificate) => self.authenticate(certificate, greeting.version).await,
                    None => Ok(None),
                };
                match node {
                    Ok(Some(node)) => ServerHello::Work(node.role),
                    Ok(None) => {
                        ServerHello::Refused("this node is not known here: join with a new token".to_owned())
                    }
                    Err(error) => ServerHello::Refused(error.to_string()),
                }
            }
            Purpose::Enrol { .. } if !self.limiter.may_enrol(peer.ip(), Instant::now()) => {
                ServerHello::Refused(
                    "too many refused attempts to join from this address: try again in a minute".to_owned(),
                )
            }
            Purpose::Enrol { secret, node, request } => {
                let (registry, name) = (self.registry.clone(), node.clone());
                let enrolled = blocking(move || registry.enrol(&secret, &name, &request)).await;
                match enrolled.map(|enrolled| enrolled.unwrap_or_else(|error| Err(error.to_string()))) {
                    Ok(Ok(certificate)) => {
                        tracing::info!("{node} joined from {peer}");
                        ServerHello::Enrolled { certificate, about: self.about.clone() }
                    }
                    Ok(Err(reason)) => {
                        self.limiter.refused(peer.ip(), Instant::now());
                        tracing::warn!("{peer} could not join as {node}: {reason}");
                        ServerHello::Refused(reason)
                    }
                    Err(error) => ServerHello::Refused(error.to_string()),
                }
            }
        }
    }

    /// Answers one request. An error closes the connection.
    async fn answer(
        &self,
        stream: &mut Stream,
        node: &Node,
        slot: &ConnectionSlot,
        (request, permit): (Request, MemoryPermit),
        response_version: u32,
    ) -> io::Result<()> {
        let (operation, started) = (statistics::index(&request), Instant::now());
        if let Err(failure) = self.authorize(node, &request).await? {
            let failure = failure.for_client(response_version);
            self.statistics.record(operation, started.elapsed(), true);
            // The announced bytes have to be read, or they would be taken for the next request.
            if let Request::PutBlob { length, .. } = &request {
                discard(stream, *length, MAX_OBJECT_BYTES).await?;
            }
            return send(stream, &Response::Failed(failure)).await.map(drop);
        }
        if let Request::PutBlob { length, .. } = &request
            && *length > MAX_OBJECT_BYTES
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // A connection that waits for a permit must hold none in the same pool.
        let mut permit = match response_pool(&request) {
            Some((of, bytes)) => {
                drop(permit);
                slot.take(of, bytes).await?
            }
            None => permit,
        };
        let body = match &request {
            Request::PutBlob { length, .. } => receive_bytes(stream, *length, MAX_OBJECT_BYTES).await?,
            _ => Vec::new(),
        };
        self.statistics.received(body.len());
        // The request is dropped if its client disconnects.
        let (response, body) = tokio::select! {
            done = self.perform(node, slot, &mut permit, request, body) => done?,
            () = wait_for_close(stream.get_ref().0) => return Ok(()),
        };
        self.statistics.record(operation, started.elapsed(), response.is_err());
        self.statistics.sent(body.as_ref().map_or(0, bytes::Bytes::len));
        let bytes_of_frame = match frame(
            &response.unwrap_or_else(|failure| Response::Failed(failure.for_client(response_version))),
        )? {
            Ok(bytes_of_frame) => bytes_of_frame,
            Err(length) => {
                let long = format!("the response has {length} bytes: the limit is {MAX_FRAME_BYTES}");
                let failed = frame(&Response::Failed(Failure::Other(long)))?;
                return send_bytes(stream, &failed.unwrap_or_default()).await;
            }
        };
        permit.shrink_to(bytes_of_frame.len() + body.as_ref().map_or(0, bytes::Bytes::len));
        send_bytes(stream, &bytes_of_frame).await?;
        match body {
            Some(bytes) => send_bytes(stream, &bytes).await,
            None => Ok(()),
        }
    }

    /// Performs a request; returns the response and the bytes that follow it.
    async fn perform(
        &self,
        node: &Node,
        slot: &ConnectionSlot,
        permit: &mut MemoryPermit,
        request: Request,
        body: Vec<u8>,
    ) -> io::Result<(Result<Response, Failure>, Option<bytes::Bytes>)> {
        Ok(match request {
            Request::PutBlob { key, .. } => (self.put(key, body).await, None),
            Request::GetBlob { key, range } => match self.read(key, range, slot, permit).await? {
                Ok((response, bytes)) => (Ok(response), Some(bytes)),
                Err(failure) => (Err(failure), None),
            },
            Request::StatBlob { key } => (self.stat(key).await, None),
            Request::DeleteBlob { key } => (self.delete(key).await, None),
            Request::ListBlobs { prefix, after } => (self.list(prefix, after).await, None),
            request => (self.metadata(node, request).await?, None),
        })
    }

    /// Checks the permission of a node for a request, and that requests can be forwarded.
    async fn authorize(&self, node: &Node, request: &Request) -> io::Result<Result<(), Failure>> {
        let needs = request.needs();
        if node.role < needs {
            return Ok(Err(denied(&node.name, node.role, needs)));
        }
        if !matches!(request, Request::Path) && !self.path.is_known() {
            let why = "the gateway does not know its path to the stores yet".to_owned();
            return Ok(Err(Failure::Unreachable(why)));
        }
        if let Request::CommitOf { node: name, .. } | Request::LeaseOf(name, _) = request {
            let (registry, asked) = (self.registry.clone(), name.clone());
            if blocking(move || registry.contains(&asked)).await?.map_err(io::Error::other)? {
                let denied = format!(
                    "node {name} exists both here and behind gateway {}: remove one of the two \
                        from the nodes of its gateway",
                    node.name
                );
                return Ok(Err(Failure::Denied(denied)));
            }
        }
        Ok(Ok(()))
    }

    async fn metadata(&self, node: &Node, request: Request) -> io::Result<Result<Response, Failure>> {
        if request.count() > MAX_ITEMS as usize {
            return Ok(Err(Failure::Other(format!(
                "the gateway rejects a request with more than \
                {MAX_ITEMS} items: this node is newer than the gateway; upgrade the gateway"
            ))));
        }
        if let Request::Lease(request) | Request::LeaseOf(_, request) = &request
            && request.acquire.len().max(request.release.len()) > MAX_LEASES
        {
            return Ok(Err(Failure::Denied(format!(
                "the gateway rejects a request with more than \
                {MAX_LEASES} leases"
            ))));
        }
        if matches!(request, Request::Path) {
            return Ok(Ok(Response::Path(self.path.full_path())));
        }
        let (mut request, other) = request.in_name();
        let mut waiting = None;
        if let Some(milliseconds) = request.long_poll_timeout_mut() {
            waiting = self.long_polls.begin(node);
            if waiting.is_none() {
                // Without a thread there are no wake-ups: the store is checked once, at the end.
                let at_most = Duration::from_millis((*milliseconds).into()).min(MAX_UNNOTIFIED_WAIT_TIMEOUT);
                tokio::time::sleep(at_most).await;
                *milliseconds = 0;
            }
        }
        let (meta, name) = (self.meta.clone(), other.unwrap_or_else(|| node.name.clone()));
        let hides_names = self.hides_names;
        // A gateway receives a response completely before it forwards any of it.
        let bytes = if node.role == Role::Gateway { MAX_RELAYED_RESPONSE_BYTES } else { MAX_FRAME_BYTES / 2 };
        let done = blocking(move || {
            // The thread may outlive its session.
            let _waiting = waiting;
            Ok(match request {
                Request::Head => Response::Head(meta.head()?),
                Request::Commit { items, .. }
                    if !hides_names && items.iter().flat_map(|item| &item.mutations).any(is_too_long) =>
                {
                    return Err(Failure::Denied(
                        "the gateway rejects a commit: a name or an \
                        attribute exceeds the limit of the store"
                            .to_owned(),
                    ));
                }
                Request::Commit { token, items } => Response::Committed(meta.commit(&name, token, &items)?),
                Request::Get(ids) => Response::Objects(each(&ids, |ids| meta.get(ids))?),
                Request::Scan { from, limit } => Response::Page(paging::scan(&*meta, from, limit, bytes)?),
                Request::LogSince { after, limit } => match paging::log(&*meta, after, limit, bytes)? {
                    (entries, true) => Response::Log(entries),
                    (entries, false) => Response::LogPart(entries),
                },
                Request::Places(chunks) => Response::Places(meta.locate_chunks(&chunks)?),
                Request::Known(chunks) => Response::Known(meta.has_chunks(&chunks)?),
                Request::Wait { after, milliseconds } => {
                    let at_most = Duration::from_millis(milliseconds.into()).min(MAX_LONG_POLL_TIMEOUT);
                    Response::Woken(meta.wait(after, at_most)?)
                }
                Request::Lease(request) => Response::Leases(meta.lease(&name, &request)?),
                Request::WaitLease { after, acks, milliseconds } => {
                    let at_most = Duration::from_millis(milliseconds.into()).min(MAX_LONG_POLL_TIMEOUT);
                    Response::Woken(meta.wait_lease(after, acks, at_most)?)
                }
                Request::History(request) => Response::History(query_history(&*meta, request)?),
                // Requests in other names were unwrapped before; the others are handled elsewhere.
                Request::CommitOf { .. }
                | Request::LeaseOf(..)
                | Request::Path
                | Request::PutBlob { .. }
                | Request::GetBlob { .. }
                | Request::StatBlob { .. }
                | Request::DeleteBlob { .. }
                | Request::ListBlobs { .. } => Response::Done,
            })
        });
        done.await
    }

    async fn put(&self, key: String, body: Vec<u8>) -> Result<Response, Failure> {
        self.blobs.put(parse_content_key(key, invalid_key)?.as_ref(), body).await.map_err(failure)?;
        Ok(Response::Done)
    }

    async fn read(
        &self,
        key: String,
        range: Option<(u64, u64)>,
        slot: &ConnectionSlot,
        permit: &mut MemoryPermit,
    ) -> io::Result<Result<(Response, bytes::Bytes), Failure>> {
        let found = async {
            let key = parse_content_key(key, || Failure::NotFound)?;
            let found = self.blobs.begin(key.as_ref(), range.map(|(start, end)| start..end)).await;
            let found = found.map_err(failure)?;
            if found.range.end.saturating_sub(found.range.start) > MAX_OBJECT_BYTES {
                return Err(Failure::Other(format!("more than {MAX_OBJECT_BYTES} bytes in one request")));
            }
            Ok((blob_stat(&key, &found.meta), found))
        };
        let (stat, found) = match found.await {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let range = found.range.clone();
        *permit = slot.take(Pool::Contents, (range.end - range.start) as usize).await?;
        Ok(self
            .blobs
            .end(found)
            .await
            .map_err(failure)
            .map(|bytes| (Response::Blob { stat, length: bytes.len() as u64, start: range.start }, bytes)))
    }

    async fn stat(&self, key: String) -> Result<Response, Failure> {
        let key = parse_content_key(key, || Failure::NotFound)?;
        let meta = self.blobs.stat(key.as_ref()).await.map_err(failure)?;
        Ok(Response::Stat(blob_stat(&key, &meta)))
    }

    async fn delete(&self, key: String) -> Result<Response, Failure> {
        self.blobs.delete(parse_content_key(key, invalid_key)?.as_ref()).await.map_err(failure)?;
        Ok(Response::Done)
    }

    async fn list(&self, prefix: Option<String>, after: Option<String>) -> Result<Response, Failure> {
        let prefix = prefix.map(parse).transpose()?;
        let top = prefix.as_ref().and_then(|prefix| prefix.parts().next());
        if !top.is_some_and(|top| [PACKS_PREFIX, PROBE_PREFIX].contains(&top.as_ref())) {
            return Err(Failure::Denied(format!(
                "the gateway denies the listing: only objects \
                below {PACKS_PREFIX} and {PROBE_PREFIX} can be listed"
            )));
        }
        let mut listed = match after {
            Some(after) => self.objects.list_with_offset(prefix.as_ref(), &parse(after)?),
            None => self.objects.list(prefix.as_ref()),
        };
        // Listings have no guaranteed order: keep the smallest keys of all.
        let mut found = std::collections::BTreeMap::new();
        let mut more = false;
        while let Some(meta) = listed.next().await {
            let meta = meta.map_err(|error| failure(fault(error)))?;
            let stat = blob_stat(&meta.location, &meta);
            found.insert(stat.key.clone(), stat);
            if found.len() > MAX_LISTED_OBJECTS {
                found.pop_last();
                more = true;
            }
        }
        Ok(Response::Blobs { found: found.into_values().collect(), more })
    }
}

/// Returns the memory for the response to a request, or for the bytes that follow the request; `None`: little, or not known
/// yet.
fn response_pool(request: &Request) -> Option<(Pool, usize)> {
    match request {
        Request::Get(_) | Request::Scan { .. } | Request::LogSince { .. } | Request::History(_) => {
            Some((Pool::Work, RESPONSE_MEMORY_BYTES))
        }
        Request::PutBlob { length, .. } => Some((Pool::Contents, *length as usize)),
        _ => None,
    }
}

/// Performs a query of history.
fn query_history(meta: &dyn MetaStore, request: HistoryRequest) -> Result<HistoryResponse, Failure> {
    if let HistoryRequest::SeqAt(time) = request {
        return Ok(HistoryResponse::Seq(seq_at(meta, time)?));
    }
    let history =
        meta.history().ok_or_else(|| StoreError::Denied("this store keeps no history".to_owned()))?;
    Ok(match request {
        HistoryRequest::SeqAt(_) | HistoryRequest::KeptSince => {
            HistoryResponse::Seq(history.complete_since()?)
        }
        HistoryRequest::Objects(ids, at) => {
            HistoryResponse::Objects(each(&ids, |ids| history.objects_at(ids, at))?)
        }
        HistoryRequest::Link(name, at) => HistoryResponse::Link(history.link_at(&name, at)?),
        HistoryRequest::Links { parent, at, after, limit } => {
            HistoryResponse::Links(history.links_at(parent, at, &after, limit.min(MAX_ITEMS) as usize)?)
        }
        HistoryRequest::Versions(id) => HistoryResponse::Versions(latest(history.versions(id)?)),
        HistoryRequest::OfName(name) => HistoryResponse::PastLinks(history.past_of_name(&name)?),
        HistoryRequest::Names(mut ids) => {
            ids.truncate(MAX_ITEMS as usize);
            ids.sort_unstable();
            ids.dedup();
            HistoryResponse::PastLinks(all(&ids, |ids| history.past_names(ids))?)
        }
    })
}

/// A running gateway.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Serving {
    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Finishes running requests, and stops.
    ///
    /// # Errors
    /// An [`io::Error`] if it had stopped by itself.
    pub fn stop(self) -> io::Result<()> {
        let _ = self.stop.send(());
        runtime().block_on(self.task).map_err(io::Error::other)?
    }
}

/// Returns once the peer has closed the connection.
async fn wait_for_close(stream: &TcpStream) {
    // Received bytes stay unread: they are the next request, which no client sends before the response.
    if let Ok(1..) = stream.peek(&mut [0]).await {
        std::future::pending().await
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unreachable(why) => Self::Unreachable(why),
            StoreError::Forgotten(seq) => Self::Forgotten(seq),
            StoreError::NoVolume(_) => Self::NoVolume,
            StoreError::Denied(why) | StoreError::NotGateway(why) => Self::Denied(why),
            error @ (StoreError::Damaged(_)
            | StoreError::Tampered(_)
            | StoreError::Format { .. }
            | StoreError::Exists(_)) => Self::Damaged(error.to_string()),
        }
    }
}

/// Parses a key of a volume's contents: clients can reach no other objects in the store.
fn parse_content_key(key: String, otherwise: impl FnOnce() -> Failure) -> Result<Key, Failure> {
    let is_hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_kept = match key.split('/').collect::<Vec<_>>()[..] {
        [PACKS_PREFIX, group, pack] => is_hex(group, 2) && is_hex(pack, 32),
        [PROBE_PREFIX, probe] => is_hex(probe, 32),
        _ => false,
    };
    if is_kept { parse(key) } else { Err(otherwise()) }
}

fn invalid_key() -> Failure {
    Failure::Denied(
        "the gateway denies access to an object: its key is not that of a pack or a \
        probe"
            .to_owned(),
    )
}

fn parse(key: String) -> Result<Key, Failure> {
    Key::parse(&key).map_err(|error| Failure::Other(error.to_string()))
}

fn blob_stat(key: &Key, meta: &object_store::ObjectMeta) -> BlobStat {
    BlobStat { key: key.to_string(), size: meta.size, modified: meta.last_modified.timestamp() }
}

fn failure(error: ContentError) -> Failure {
    match error {
        ContentError::Missing(_) => Failure::NotFound,
        ContentError::Damaged(why) => Failure::Damaged(why),
        ContentError::Denied(why) => Failure::Denied(why),
        ContentError::Unreachable(why) => Failure::Unreachable(why),
        error => Failure::Other(error.to_string()),
    }
}
