//! What nodes and gateways say to each other.
//!
//! A connection carries one request at a time: a frame (its length in four bytes, big-endian, then `postcard`), and the
//! answer. Bytes of contents follow their frame as they are.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::id::{NodeName, ObjectId, Seq, VolumeName};
use crate::keepalive::USER_TIMEOUT;
use crate::object::{ChunkId, LinkName, StoredLink, Time, VersionedObject};
use crate::store::history::{PastLink, Version};
use crate::store::{
    ChunkLocation, GatewayId, LeaseRequest, LeaseResponse, LogEntry, Page, Rejected, Transaction,
};

/// What is spoken: nodes of version 1 do not ask for the past, and are served as well.
pub(super) const VERSION: u32 = 3;
/// What nodes say that they speak: all gateways that there are understand it.
pub(super) const OF_NODES: u32 = 2;
/// What gateways say that ask others: from this version on there is the role for it.
pub(super) const OF_GATEWAYS: u32 = 3;
/// The oldest that is understood.
pub(super) const OLDEST: u32 = 1;

/// Objects, entries or commits that are asked for, or in one answer; the bytes of an answer are bounded besides. Nodes send 1024
/// commits together.
pub(super) const MAX_ITEMS: u32 = 8192;
/// Bytes of a frame. A batch of commits is made so that it fits.
pub(super) const MAX_FRAME_BYTES: usize = 32 << 20;
/// Bytes of a frame of somebody who is not known yet.
pub(super) const MAX_HELLO_BYTES: usize = 8 << 10;
/// Bytes of a stored object: larger than any that is made.
pub(super) const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// How many bytes are taken at once of what the other side announced, so that announcing costs it something.
const STEP: usize = 1 << 20;
/// The same of what nobody wants.
const DISCARDED: u64 = 64 << 10;
/// A part of a message is taken within so long: the kernel says so of many at a time, some hundred KiB. That nobody is there is
/// found out by the connection itself, within [`USER_TIMEOUT`].
const TAKEN: Duration = Duration::from_secs(60);
/// How many bytes go in a second, at least, of a whole message.
const SLOWEST: u64 = 8 << 10;
/// Somebody waits for it, and a gateway has it at hand, or [`USER_TIMEOUT`] itself for the store behind it.
const LOOKED_UP: Duration = Duration::from_secs(15);
/// It may be much, or wait for others.
const DONE: Duration = Duration::from_secs(60);
/// For 64 MiB that a gateway reads or writes elsewhere.
const MOVED: Duration = Duration::from_secs(600);

/// What a node may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Invite others as well, and remove what is not needed any more.
    Admin,
    /// All that, and in the name of other nodes: it is a gateway to them.
    Gateway,
}

impl Role {
    /// The word for it.
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
            .ok_or_else(|| format!("{word:?} is no role: read, write, admin or gateway"))
    }
}

/// The first frame of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientHello {
    pub(super) version: u32,
    pub(super) volume: VolumeName,
    pub(super) wish: Purpose,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// To work. Needs a certificate.
    Work,
    /// To be known from now on.
    Enrol {
        secret: [u8; 16],
        node: NodeName,
        /// PKCS #10, DER.
        request: Vec<u8>,
    },
}

/// The answer to a [`ClientHello`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ServerHello {
    /// Requests may come.
    Work(Role),
    /// The certificate, DER, and the description of the volume.
    Enrolled { certificate: Vec<u8>, about: Vec<u8> },
    /// One line.
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
        most: u32,
    },
    LogSince {
        after: Seq,
        most: u32,
    },
    Places(Vec<ChunkId>),
    Known(Vec<ChunkId>),
    Wait {
        after: Seq,
        milliseconds: u32,
    },
    /// The bytes follow. Where there is one of this key, that one stays.
    PutBlob {
        key: String,
        length: u64,
    },
    /// From a byte on to another, which is not included.
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
    /// In order of keys, those behind one.
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
    Past(HistoryRequest),
    /// As [`Commit`](Self::Commit), in the name of a node. This and what follows since version 3, by gateways.
    CommitOf {
        node: NodeName,
        token: u128,
        items: Vec<Transaction>,
    },
    /// As [`Lease`](Self::Lease), in the name of a node.
    LeaseOf(NodeName, LeaseRequest),
    /// By way of which gateways requests get to the stores.
    Way,
}

/// As [`History`](crate::store::history::History) has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HistoryRequest {
    SeqAt(Time),
    KeptSince,
    Objects(Vec<ObjectId>, Seq),
    Link(LinkName, Seq),
    Links { parent: ObjectId, at: Seq, after: Vec<u8>, most: u32 },
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
    Past(Vec<PastLink>),
}

impl Request {
    /// How long it is to wait: milliseconds.
    pub(super) fn waits(&mut self) -> Option<&mut u32> {
        match self {
            Self::Wait { milliseconds, .. } | Self::WaitLease { milliseconds, .. } => Some(milliseconds),
            _ => None,
        }
    }

    /// How much is asked for, where the node names each.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Get(ids) | Self::Past(HistoryRequest::Objects(ids, _)) => ids.len(),
            Self::Places(chunks) | Self::Known(chunks) => chunks.len(),
            Self::Commit { items, .. } | Self::CommitOf { items, .. } => items.len(),
            _ => 0,
        }
    }

    /// How long it may take until the answer begins, over all lines behind the first gateway together: these pass on what is whole,
    /// and have as long for so many bytes as the first one.
    pub(super) fn time(&self, bytes: usize) -> Duration {
        self.least_time() + at_most(bytes)
    }

    fn least_time(&self) -> Duration {
        match self {
            Self::Wait { milliseconds, .. } | Self::WaitLease { milliseconds, .. } => {
                LOOKED_UP + Duration::from_millis((*milliseconds).into())
            }
            Self::Head | Self::Places(_) | Self::Lease(_) | Self::LeaseOf(..) | Self::Past(_) | Self::Way => {
                LOOKED_UP
            }
            Self::PutBlob { .. }
            | Self::GetBlob { .. }
            | Self::StatBlob { .. }
            | Self::DeleteBlob { .. }
            | Self::ListBlobs { .. } => MOVED,
            _ => DONE,
        }
    }

    /// What is asked, and in whose name where that is not who asks.
    pub(super) fn in_name(self) -> (Self, Option<NodeName>) {
        match self {
            Self::CommitOf { node, token, items } => (Self::Commit { token, items }, Some(node)),
            Self::LeaseOf(node, ask) => (Self::Lease(ask), Some(node)),
            ask => (ask, None),
        }
    }

    /// What a node has to be for it.
    pub(super) fn needs(&self) -> Role {
        match self {
            Self::Commit { .. } | Self::PutBlob { .. } => Role::Write,
            // Who changes nothing needs none of its own.
            Self::Lease(ask) if !ask.take.is_empty() => Role::Write,
            Self::DeleteBlob { .. } => Role::Admin,
            Self::CommitOf { .. } | Self::LeaseOf(..) | Self::Way => Role::Gateway,
            _ => Role::Read,
        }
    }
}

/// Why a node may not do what another role is for.
pub(super) fn denied(node: &NodeName, role: Role, needs: Role) -> String {
    format!("{node} may {role}, and this needs {needs}")
}

/// Whether that is why: for want of a role.
pub fn is_for_want_of(why: &str, role: Role) -> bool {
    why.ends_with(&format!("this needs {role}"))
}

/// What is known of a stored object.
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
    Past(HistoryResponse),
    /// Fewer than were asked for, as more are too long for a message: there may be others after them.
    LogPart(Vec<LogEntry>),
    /// `None`: it is not known.
    Way(Option<Vec<GatewayId>>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    /// What is behind the gateway cannot be reached.
    Unreachable(String),
    Forgotten(Seq),
    Damaged(String),
    NoVolume,
    Denied(String),
    NotFound,
    Other(String),
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Sends a frame. How long it was.
pub(super) async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), value: &T) -> io::Result<usize> {
    let frame = frame(value)?.map_err(|length| {
        wrong(format!("a message of {length} bytes; at most {MAX_FRAME_BYTES} are sent"))
    })?;
    send_bytes(to, &frame).await?;
    Ok(frame.len())
}

/// A frame as it is sent, or how long it would be where that is too long.
pub(super) fn frame<T: Serialize>(value: &T) -> io::Result<Result<Vec<u8>, usize>> {
    let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(|error| wrong(error.to_string()))?;
    let length = frame.len() - 4;
    if length > MAX_FRAME_BYTES {
        return Ok(Err(length));
    }
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(Ok(frame))
}

/// How long so many bytes may take.
fn at_most(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / SLOWEST)
}

/// Sends bytes as they are.
pub(super) async fn send_bytes(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let sent = timeout(USER_TIMEOUT + at_most(bytes.len()), async {
        let mut rest = bytes;
        while !rest.is_empty() {
            match timeout(TAKEN, to.write(rest)).await?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
        }
        timeout(TAKEN, to.flush()).await?
    });
    sent.await?
}

/// Receives a frame that begins within so long; `None`: the other side is done.
pub(super) async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
    within: Duration,
) -> io::Result<Option<T>> {
    let Some(length) = announced(from, most, within).await? else { return Ok(None) };
    let frame = receive_bytes(from, length as u64, most as u64).await?;
    postcard::from_bytes(&frame)
        .map(Some)
        .map_err(|error| wrong(format!("a message that makes no sense: {error}")))
}

/// How long the frame is that begins within so long; `None`: the other side is done.
pub(super) async fn announced(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
    within: Duration,
) -> io::Result<Option<usize>> {
    let mut head = [0; 4];
    match timeout(within, from.read_exact(&mut head)).await? {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = u32::from_be_bytes(head) as usize;
    if length > most {
        return Err(wrong(format!("a message of {length} bytes; at most {most} are taken")));
    }
    Ok(Some(length))
}

/// Receives bytes that are of no use, so that what follows them can be read.
pub(super) async fn discard(from: &mut (impl AsyncRead + Unpin), length: u64, most: u64) -> io::Result<()> {
    if length > most {
        return Err(wrong(format!("{length} bytes; at most {most} are taken")));
    }
    let discarded = timeout(USER_TIMEOUT + at_most(length as usize), async {
        let (mut bytes, mut left) = (vec![0; length.min(DISCARDED) as usize], length as usize);
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

/// Receives bytes as they are.
pub(super) async fn receive_bytes(
    from: &mut (impl AsyncRead + Unpin),
    length: u64,
    most: u64,
) -> io::Result<Vec<u8>> {
    if length > most {
        return Err(wrong(format!("{length} bytes; at most {most} are taken")));
    }
    let received = timeout(USER_TIMEOUT + at_most(length as usize), async {
        let (mut bytes, mut there) = (Vec::new(), 0);
        while (there as u64) < length {
            if there == bytes.len() {
                bytes.resize(there + (length as usize - there).min(STEP), 0);
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

    const PART: usize = 64 << 10;

    /// Sends parts of a message, some seconds between two of them.
    async fn trickle(mut to: DuplexStream, bytes: Vec<u8>) -> DuplexStream {
        for part in bytes.chunks(PART) {
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
        let value = "x".repeat(10 * PART);
        let bytes = message(&value).await;
        let (from, mut to) = duplex(1 << 20);
        let sending = tokio::spawn(trickle(from, bytes.clone()));
        let received: String = receive(&mut to, MAX_FRAME_BYTES, LOOKED_UP).await.unwrap().unwrap();
        assert_eq!(received, value);
        drop(sending.await.unwrap());
        assert!(
            receive::<String>(&mut to, MAX_FRAME_BYTES, LOOKED_UP).await.unwrap().is_none(),
            "it is done"
        );

        let (from, mut to) = duplex(1 << 20);
        let _silent = tokio::spawn(trickle(from, bytes[..3 * PART].to_vec()));
        let begun = Instant::now();
        let error = receive::<String>(&mut to, MAX_FRAME_BYTES, LOOKED_UP).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(begun.elapsed() < USER_TIMEOUT * 4, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_not_there() {
        let (mut from, _to) = duplex(1 << 10);
        let begun = Instant::now();
        let error = send(&mut from, &"x".repeat(1 << 20)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(begun.elapsed() < TAKEN * 2, "{:?}", begun.elapsed());
    }
}
