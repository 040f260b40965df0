//! The protocol between nodes and gateways.
//!
//! A connection carries one request at a time: a frame (its length in four bytes, big-endian, then `postcard`), and the
//! response. Contents follow their frame as raw bytes.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use shunt_volume_store::history::{PastLink, Version};
use shunt_volume_store::{
    ChunkLocation, GatewayId, LeaseRequest, LeaseResponse, LogEntry, Page, Rejected, Transaction,
};
use shunt_volume_types::id::{NodeName, ObjectId, Seq, VolumeName};
use shunt_volume_types::keepalive::USER_TIMEOUT;
use shunt_volume_types::object::{ChunkId, LinkName, StoredLink, Time, VersionedObject};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// The protocol version of this program. Version 1 lacks requests for history, and is served as well.
pub(super) const VERSION: u32 = 3;
/// The version that nodes announce: all existing gateways support it.
pub(super) const NODE_VERSION: u32 = 2;
/// The version that gateways announce to other gateways: the first with the gateway role.
pub(super) const GATEWAY_VERSION: u32 = 3;
/// The oldest supported version.
pub(super) const MIN_VERSION: u32 = 1;
/// The version of the responses that this program can decode: the first with [`Failure::RoleRequired`].
pub(super) const RESPONSE_VERSION: u32 = 1;

/// Maximum number of objects, entries or commits in a request or a response; the bytes of a response have their own limit.
/// Nodes send batches of 1024 commits.
pub(super) const MAX_ITEMS: u32 = 8192;
/// Maximum bytes of a frame. Batches of commits are limited to fit.
pub(super) const MAX_FRAME_BYTES: usize = 32 << 20;
/// Maximum bytes of a frame from an unauthenticated client.
pub(super) const MAX_HELLO_BYTES: usize = 8 << 10;
/// Maximum bytes of a stored object: larger than any that is written.
pub(super) const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Allocation step for an announced length, so that announcing memory costs the other side bandwidth.
const ALLOCATION_STEP_BYTES: usize = 1 << 20;
/// Buffer size for discarding bytes.
const DISCARD_BUFFER_BYTES: u64 = 64 << 10;
/// Timeout of one write to a socket: the kernel reports progress in steps of some hundred KiB. A dead peer is detected by the
/// connection itself, within [`USER_TIMEOUT`].
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum transfer rate of a whole message in bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 8 << 10;
/// Timeout of cheap requests, for which users wait: the gateway itself waits [`USER_TIMEOUT`] for its store.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of requests that may be large, or wait for others.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of requests for contents: a gateway may transfer 64 MiB to or from its store.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// The permissions of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Also delete stored objects.
    Admin,
    /// All of these, also in the names of other nodes, to which it is a gateway.
    Gateway,
}

impl Role {
    /// Returns the name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Gateway => "gateway",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Self::Read, Self::Write, Self::Admin, Self::Gateway]
            .into_iter()
            .find(|role| role.as_str() == word)
            .ok_or_else(|| format!("invalid role {word:?}: expected read, write, admin or gateway"))
    }
}

/// The first frame of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientHello {
    pub(super) version: u32,
    pub(super) volume: VolumeName,
    pub(super) purpose: Purpose,
    /// The version of the responses that the client can decode; 0 for clients that do not send it. Gateways that do not know
    /// this field ignore it, unlike a higher `version`.
    #[serde(deserialize_with = "or_zero")]
    pub(super) response_version: u32,
}

/// Decodes a last field that older clients do not send.
fn or_zero<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(u32::deserialize(from).unwrap_or_default())
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// To make requests. Requires a certificate.
    Work,
    /// To become a node.
    Enrol {
        secret: [u8; 16],
        node: NodeName,
        /// PKCS #10, DER.
        request: Vec<u8>,
    },
}

/// The response to a [`ClientHello`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ServerHello {
    /// Requests may follow.
    Work(Role),
    /// The certificate, DER, and the descriptor of the volume.
    Enrolled { certificate: Vec<u8>, about: Vec<u8> },
    /// The reason, in one line.
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Head,
    Commit {
        token: u128,
        items: Vec<Transaction>,
    },
    Get(Vec<ObjectId>),
    Scan {
        from: ObjectId,
        limit: u32,
    },
    LogSince {
        after: Seq,
        limit: u32,
    },
    Places(Vec<ChunkId>),
    Known(Vec<ChunkId>),
    Wait {
        after: Seq,
        milliseconds: u32,
    },
    /// The bytes follow. An object that exists under this key stays unchanged.
    PutBlob {
        key: String,
        length: u64,
    },
    /// A range of bytes; its end is exclusive.
    GetBlob {
        key: String,
        range: Option<(u64, u64)>,
    },
    StatBlob {
        key: String,
    },
    DeleteBlob {
        key: String,
    },
    /// In order of keys, those after `after`.
    ListBlobs {
        prefix: Option<String>,
        after: Option<String>,
    },
    Lease(LeaseRequest),
    WaitLease {
        after: u64,
        acks: Option<u64>,
        milliseconds: u32,
    },
    /// Since version 2.
    History(HistoryRequest),
    /// [`Commit`](Self::Commit) in the name of a node. This and the following ones since version 3, by gateways.
    CommitOf {
        node: NodeName,
        token: u128,
        items: Vec<Transaction>,
    },
    /// [`Lease`](Self::Lease) in the name of a node.
    LeaseOf(NodeName, LeaseRequest),
    /// Lists the gateways on the path to the stores.
    Path,
}

/// The queries of [`History`](shunt_volume_store::history::History).
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HistoryRequest {
    SeqAt(Time),
    KeptSince,
    Objects(Vec<ObjectId>, Seq),
    Link(LinkName, Seq),
    Links { parent: ObjectId, at: Seq, after: Vec<u8>, limit: u32 },
    Versions(ObjectId),
    OfName(LinkName),
    Names(Vec<ObjectId>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HistoryResponse {
    Seq(Seq),
    Objects(Vec<Option<VersionedObject>>),
    Link(Option<StoredLink>),
    Links(Vec<StoredLink>),
    Versions(Vec<Version>),
    PastLinks(Vec<PastLink>),
}

impl Request {
    /// Returns the duration of a long poll in milliseconds.
    pub(super) fn long_poll_timeout_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Wait { milliseconds, .. } | Self::WaitLease { milliseconds, .. } => Some(milliseconds),
            _ => None,
        }
    }

    /// Returns the number of items that the request names.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Get(ids) | Self::History(HistoryRequest::Objects(ids, _)) => ids.len(),
            Self::Places(chunks) | Self::Known(chunks) => chunks.len(),
            Self::Commit { items, .. } | Self::CommitOf { items, .. } => items.len(),
            _ => 0,
        }
    }

    /// Returns the timeout for the beginning of the response. It covers all hops behind the first gateway together, which
    /// forward whole messages and have the same time for their bytes as the first one.
    pub(super) fn time(&self, bytes: usize) -> Duration {
        self.least_time() + at_most(bytes)
    }

    fn least_time(&self) -> Duration {
        match self {
            Self::Wait { milliseconds, .. } | Self::WaitLease { milliseconds, .. } => {
                LOOKUP_TIMEOUT + Duration::from_millis((*milliseconds).into())
            }
            Self::Head
            | Self::Places(_)
            | Self::Lease(_)
            | Self::LeaseOf(..)
            | Self::History(_)
            | Self::Path => LOOKUP_TIMEOUT,
            Self::PutBlob { .. }
            | Self::GetBlob { .. }
            | Self::StatBlob { .. }
            | Self::DeleteBlob { .. }
            | Self::ListBlobs { .. } => TRANSFER_TIMEOUT,
            _ => REQUEST_TIMEOUT,
        }
    }

    /// Separates the request from the node in whose name it is made, if that is not the sender.
    pub(super) fn in_name(self) -> (Self, Option<NodeName>) {
        match self {
            Self::CommitOf { node, token, items } => (Self::Commit { token, items }, Some(node)),
            Self::LeaseOf(node, request) => (Self::Lease(request), Some(node)),
            request => (request, None),
        }
    }

    /// Returns the role that the request requires.
    pub(super) fn needs(&self) -> Role {
        match self {
            Self::Commit { .. } | Self::PutBlob { .. } => Role::Write,
            // A request that takes no lease requires only read permission.
            Self::Lease(request) if !request.acquire.is_empty() => Role::Write,
            Self::DeleteBlob { .. } => Role::Admin,
            Self::CommitOf { .. } | Self::LeaseOf(..) | Self::Path => Role::Gateway,
            _ => Role::Read,
        }
    }
}

/// Returns the failure of a request that requires another role.
pub(super) fn denied(node: &NodeName, role: Role, needs: Role) -> Failure {
    Failure::RoleRequired {
        required: needs,
        reason: format!("{node} has role {role}, and this needs {needs}"),
    }
}

/// Metadata of a stored object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BlobStat {
    pub(super) key: String,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) modified: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    Head(Seq),
    Committed(Vec<Result<Seq, Rejected>>),
    Objects(Vec<Option<VersionedObject>>),
    Page(Page),
    Log(Vec<LogEntry>),
    Places(Vec<Option<ChunkLocation>>),
    Known(Vec<bool>),
    Woken(bool),
    Done,
    /// The bytes of the range follow.
    Blob {
        stat: BlobStat,
        length: u64,
        start: u64,
    },
    Stat(BlobStat),
    Blobs {
        found: Vec<BlobStat>,
        more: bool,
    },
    Failed(Failure),
    Leases(LeaseResponse),
    History(HistoryResponse),
    /// A prefix of the requested entries, since more exceed a message: others may follow.
    LogPart(Vec<LogEntry>),
    /// `None`: unknown.
    Path(Option<Vec<GatewayId>>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    /// The store behind the gateway cannot be reached.
    Unreachable(String),
    Forgotten(Seq),
    Damaged(String),
    NoVolume,
    Denied(String),
    NotFound,
    Other(String),
    /// The request requires another role. Sent to clients of at least [`RESPONSE_VERSION`] 1.
    RoleRequired {
        required: Role,
        reason: String,
    },
}

impl Failure {
    /// Converts the failure to one that a client with this [`response_version`](ClientHello::response_version) can decode.
    pub(super) fn for_client(self, response_version: u32) -> Self {
        match self {
            Self::RoleRequired { reason, .. } if response_version < RESPONSE_VERSION => Self::Denied(reason),
            failure => failure,
        }
    }

    /// Reports whether the request requires this role.
    pub(super) fn requires_role(&self, role: Role) -> bool {
        match self {
            Self::RoleRequired { required, .. } => *required == role,
            // Older gateways report it by the message alone.
            Self::Denied(reason) => reason.ends_with(&format!("this needs {role}")),
            _ => false,
        }
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Sends a frame and returns its length.
pub(super) async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), value: &T) -> io::Result<usize> {
    let frame = frame(value)?.map_err(|length| {
        wrong(format!("cannot send a message of {length} bytes: the limit is {MAX_FRAME_BYTES}"))
    })?;
    send_bytes(to, &frame).await?;
    Ok(frame.len())
}

/// Encodes a frame; the inner `Err` is its length if it exceeds the limit.
pub(super) fn frame<T: Serialize>(value: &T) -> io::Result<Result<Vec<u8>, usize>> {
    let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(|error| wrong(error.to_string()))?;
    let length = frame.len() - 4;
    if length > MAX_FRAME_BYTES {
        return Ok(Err(length));
    }
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(Ok(frame))
}

/// Returns the maximum time for transferring a number of bytes.
fn at_most(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / MIN_BYTES_PER_SECOND)
}

/// Sends raw bytes.
pub(super) async fn send_bytes(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let sent = timeout(USER_TIMEOUT + at_most(bytes.len()), async {
        let mut rest = bytes;
        while !rest.is_empty() {
            match timeout(WRITE_TIMEOUT, to.write(rest)).await?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
        }
        timeout(WRITE_TIMEOUT, to.flush()).await?
    });
    sent.await?
}

/// Receives a frame that begins within `within`; `None`: the other side closed the connection.
pub(super) async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    max_bytes: usize,
    within: Duration,
) -> io::Result<Option<T>> {
    let Some(length) = announced(from, max_bytes, within).await? else { return Ok(None) };
    let frame = receive_bytes(from, length as u64, max_bytes as u64).await?;
    postcard::from_bytes(&frame).map(Some).map_err(|error| wrong(format!("malformed message: {error}")))
}

/// Receives the length of a frame that begins within `within`; `None`: the other side closed the connection.
pub(super) async fn announced(
    from: &mut (impl AsyncRead + Unpin),
    max_bytes: usize,
    within: Duration,
) -> io::Result<Option<usize>> {
    let mut head = [0; 4];
    match timeout(within, from.read_exact(&mut head)).await? {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = u32::from_be_bytes(head) as usize;
    if length > max_bytes {
        return Err(wrong(format!("cannot receive a message of {length} bytes: the limit is {max_bytes}")));
    }
    Ok(Some(length))
}

/// Receives and discards bytes, so that what follows them can be read.
pub(super) async fn discard(
    from: &mut (impl AsyncRead + Unpin),
    length: u64,
    max_bytes: u64,
) -> io::Result<()> {
    if length > max_bytes {
        return Err(wrong(format!("cannot receive {length} bytes: the limit is {max_bytes}")));
    }
    let discarded = timeout(USER_TIMEOUT + at_most(length as usize), async {
        let (mut bytes, mut left) = (vec![0; length.min(DISCARD_BUFFER_BYTES) as usize], length as usize);
        while left > 0 {
            let part = left.min(bytes.len());
            match timeout(USER_TIMEOUT, from.read(&mut bytes[..part])).await?? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => left -= read,
            }
        }
        Ok(())
    });
    discarded.await?
}

/// Receives raw bytes.
pub(super) async fn receive_bytes(
    from: &mut (impl AsyncRead + Unpin),
    length: u64,
    max_bytes: u64,
) -> io::Result<Vec<u8>> {
    if length > max_bytes {
        return Err(wrong(format!("cannot receive {length} bytes: the limit is {max_bytes}")));
    }
    let received = timeout(USER_TIMEOUT + at_most(length as usize), async {
        let (mut bytes, mut there) = (Vec::new(), 0);
        while (there as u64) < length {
            if there == bytes.len() {
                bytes.resize(there + (length as usize - there).min(ALLOCATION_STEP_BYTES), 0);
            }
            match timeout(USER_TIMEOUT, from.read(&mut bytes[there..])).await?? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => there += read,
            }
        }
        Ok(bytes)
    });
    received.await?
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::{Instant, sleep};

    use super::*;

    const WRITE_STEP_BYTES: usize = 64 << 10;

    /// Sends a message in parts, with some seconds between them.
    async fn trickle(mut to: DuplexStream, bytes: Vec<u8>) -> DuplexStream {
        for part in bytes.chunks(WRITE_STEP_BYTES) {
            sleep(USER_TIMEOUT * 7 / 10).await;
            to.write_all(part).await.unwrap();
        }
        to
    }

    async fn message(value: &str) -> Vec<u8> {
        let (mut here, mut there) = duplex(1 << 20);
        send(&mut here, &value).await.unwrap();
        drop(here);
        let mut bytes = Vec::new();
        there.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_comes_as_long_as_something_of_it_does() {
        let value = "x".repeat(10 * WRITE_STEP_BYTES);
        let bytes = message(&value).await;
        let (from, mut to) = duplex(1 << 20);
        let sending = tokio::spawn(trickle(from, bytes.clone()));
        let received: String = receive(&mut to, MAX_FRAME_BYTES, LOOKUP_TIMEOUT).await.unwrap().unwrap();
        assert_eq!(received, value);
        drop(sending.await.unwrap());
        assert!(
            receive::<String>(&mut to, MAX_FRAME_BYTES, LOOKUP_TIMEOUT).await.unwrap().is_none(),
            "the connection is closed"
        );

        let (from, mut to) = duplex(1 << 20);
        let _silent = tokio::spawn(trickle(from, bytes[..3 * WRITE_STEP_BYTES].to_vec()));
        let begun = Instant::now();
        let error = receive::<String>(&mut to, MAX_FRAME_BYTES, LOOKUP_TIMEOUT).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(begun.elapsed() < USER_TIMEOUT * 4, "{:?}", begun.elapsed());
    }

    #[test]
    fn hello_of_older_client_has_no_response_version() {
        #[derive(Serialize, Deserialize)]
        struct OlderHello {
            version: u32,
            volume: VolumeName,
            purpose: Purpose,
        }
        let volume: VolumeName = "team".parse().unwrap();
        let older = OlderHello { version: 2, volume: volume.clone(), purpose: Purpose::Work };
        let older = postcard::to_stdvec(&older).unwrap();
        assert_eq!(postcard::from_bytes::<ClientHello>(&older).unwrap().response_version, 0);
        let hello = ClientHello { version: 2, volume, purpose: Purpose::Work, response_version: 1 };
        let hello = postcard::to_stdvec(&hello).unwrap();
        assert_eq!(
            postcard::from_bytes::<OlderHello>(&hello).unwrap().version,
            2,
            "older gateways accept it"
        );
        assert_eq!(postcard::from_bytes::<ClientHello>(&hello).unwrap().response_version, 1);
    }

    #[test]
    fn refused_role_is_recognised_from_gateways_of_all_versions() {
        let failure = || denied(&"desk".parse().unwrap(), Role::Write, Role::Gateway);
        for response_version in [0, RESPONSE_VERSION] {
            let failure = failure().for_client(response_version);
            assert_eq!(matches!(failure, Failure::Denied(_)), response_version == 0, "{failure:?}");
            assert!(
                failure.requires_role(Role::Gateway) && !failure.requires_role(Role::Write),
                "{failure:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_does_not_read_times_out() {
        let (mut from, _to) = duplex(1 << 10);
        let begun = Instant::now();
        let error = send(&mut from, &"x".repeat(1 << 20)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(begun.elapsed() < WRITE_TIMEOUT * 2, "{:?}", begun.elapsed());
    }
}
