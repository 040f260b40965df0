//! The client half of the gateway protocol, as a metadata store.
//!
//! It keeps idle connections for reuse, and repeats a request once if an idle connection turns out to have been closed. All
//! requests are idempotent, so a repetition does no harm. It also records the node's role, which the gateway reports on
//! connecting.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shunt_volume_store::history::{History, PastLink, Version};
use shunt_volume_store::{
    ChunkLocation, GatewayId, LeaseRequest, LeaseResponse, LogEntry, MetaStore, Page, Rejected, StoreError,
    Transaction,
};
use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, LinkName, StoredLink, Time, VersionedObject};
use shunt_volume_types::runtime::runtime;

use super::certificates::BadCertificate;
use super::connections::{Connections, RequestError};
use super::enrollment::Credentials;
use super::protocol::{Failure, HistoryRequest, HistoryResponse, Request, Response, Role};

/// The metadata of a volume behind a gateway.
pub struct Client {
    connections: Arc<Connections>,
}

impl Client {
    /// Creates a client, which connects on the first call. Calls block.
    ///
    /// # Errors
    /// [`BadCertificate`] for invalid credentials.
    pub fn new(credentials: Credentials) -> Result<Self, BadCertificate> {
        Ok(Self { connections: Arc::new(Connections::new(credentials, None, false)?) })
    }

    /// Creates a client with credentials that were read from a file, in which the role of this node is recorded.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(credentials: Credentials, file: &Path) -> Result<Self, BadCertificate> {
        Ok(Self { connections: Arc::new(Connections::new(credentials, Some(file), false)?) })
    }

    /// Creates a client for a gateway, which makes requests in the names of its own nodes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_gateway(credentials: Credentials, file: &Path) -> Result<Self, BadCertificate> {
        Ok(Self { connections: Arc::new(Connections::new(credentials, Some(file), true)?) })
    }

    /// Returns the contents of the volume.
    pub fn blobs(&self) -> super::GatewayObjects {
        super::GatewayObjects::new(self.connections.clone())
    }

    fn request(&self, request: &Request) -> Result<Response, StoreError> {
        self.request_or_failure(request)?.map_err(|failure| self.store_error(failure))
    }

    /// Performs a request; the inner `Err` is the failure that the gateway reported.
    fn request_or_failure(&self, request: &Request) -> Result<Result<Response, Failure>, StoreError> {
        match runtime().block_on(self.connections.request(request, &[])) {
            Ok((response, _)) => Ok(Ok(response)),
            Err(RequestError::Io(error)) => {
                let address = &self.connections.credentials.address;
                Err(StoreError::Unreachable(format!("gateway {address}: {error}")))
            }
            Err(RequestError::Failed(failure)) => Ok(Err(failure)),
        }
    }

    fn store_error(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Unreachable(why) => StoreError::Unreachable(why),
            Failure::Forgotten(seq) => StoreError::Forgotten(seq),
            Failure::NoVolume => StoreError::NoVolume(self.connections.credentials.volume.clone()),
            Failure::Denied(why) | Failure::RoleRequired { reason: why, .. } => StoreError::Denied(why),
            Failure::Damaged(why) | Failure::Other(why) => StoreError::Damaged(why),
            Failure::NotFound => mismatched_response(),
        }
    }
}

impl Client {
    /// Returns the node to name in a request; `None`: this node, which the gateway knows.
    fn in_name(&self, node: &NodeName) -> Result<Option<NodeName>, StoreError> {
        let Connections { is_gateway, credentials, .. } = &*self.connections;
        match is_gateway {
            true => Ok(Some(node.clone())),
            false if *node == credentials.node => Ok(None),
            false => Err(StoreError::Denied(format!("this node is {}, not {node}", credentials.node))),
        }
    }
}

/// The error for a response that does not match the request.
fn mismatched_response() -> StoreError {
    StoreError::Damaged("unexpected response from the gateway".to_owned())
}

impl Client {
    fn history_request(&self, request: HistoryRequest) -> Result<HistoryResponse, StoreError> {
        match self.request(&Request::History(request))? {
            Response::History(response) => Ok(response),
            _ => Err(mismatched_response()),
        }
    }
}

macro_rules! history {
    ($self:ident, $request:expr, $variant:ident) => {
        match $self.history_request($request)? {
            HistoryResponse::$variant(response) => Ok(response),
            _ => Err(mismatched_response()),
        }
    };
}

impl History for Client {
    fn complete_since(&self) -> Result<Seq, StoreError> {
        history!(self, HistoryRequest::KeptSince, Seq)
    }

    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError> {
        self.objects_at(&[id], at).map(|mut objects| objects.pop().flatten())
    }

    fn objects_at(&self, ids: &[ObjectId], at: Seq) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        let objects: Result<Vec<_>, _> = history!(self, HistoryRequest::Objects(ids.to_vec(), at), Objects);
        objects.and_then(
            |objects| if objects.len() == ids.len() { Ok(objects) } else { Err(mismatched_response()) },
        )
    }

    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError> {
        history!(self, HistoryRequest::Link(name.clone(), at), Link)
    }

    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<StoredLink>, StoreError> {
        let limit = limit.try_into().unwrap_or(u32::MAX);
        history!(self, HistoryRequest::Links { parent, at, after: after.to_vec(), limit }, Links)
    }

    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError> {
        history!(self, HistoryRequest::Versions(id), Versions)
    }

    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError> {
        history!(self, HistoryRequest::OfName(name.clone()), PastLinks)
    }

    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError> {
        history!(self, HistoryRequest::Names(ids.to_vec()), PastLinks)
    }

    fn seq_at(&self, time: Time) -> Option<Result<Seq, StoreError>> {
        let query = || history!(self, HistoryRequest::SeqAt(time), Seq);
        Some(query())
    }
}

impl MetaStore for Client {
    fn only_reads(&self) -> Option<String> {
        let role = (*self.connections.role.lock())?;
        let node = &self.connections.credentials.node;
        (role < Role::Write).then(|| format!("{node} has role {role}, and this needs {}", Role::Write))
    }

    fn head(&self) -> Result<Seq, StoreError> {
        match self.request(&Request::Head)? {
            Response::Head(seq) => Ok(seq),
            _ => Err(mismatched_response()),
        }
    }

    fn gateway_path(&self) -> Result<Option<Vec<GatewayId>>, StoreError> {
        match self.request_or_failure(&Request::Path)? {
            Ok(Response::Path(path)) => Ok(path),
            Ok(_) => Err(mismatched_response()),
            Err(failure) if failure.requires_role(Role::Gateway) => match self.store_error(failure) {
                StoreError::Denied(reason) => Err(StoreError::NotGateway(reason)),
                error => Err(error),
            },
            Err(failure) => Err(self.store_error(failure)),
        }
    }

    /// Commits in the name of another node only if this one is a gateway.
    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError> {
        let (count, items) = (items.len(), items.to_vec());
        let request = match self.in_name(node)? {
            Some(node) => Request::CommitOf { node, token, items },
            None => Request::Commit { token, items },
        };
        match self.request(&request)? {
            Response::Committed(answers) if answers.len() == count => Ok(answers),
            _ => Err(mismatched_response()),
        }
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        match self.request(&Request::Get(ids.to_vec()))? {
            Response::Objects(objects) if objects.len() == ids.len() => Ok(objects),
            _ => Err(mismatched_response()),
        }
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        match self.request(&Request::Scan { from, limit: limit.try_into().unwrap_or(u32::MAX) })? {
            Response::Page(page) => Ok(page),
            _ => Err(mismatched_response()),
        }
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let mut all: Vec<LogEntry> = Vec::new();
        loop {
            let after = all.last().map_or(after, |entry| entry.seq);
            let (entries, is_whole) = self.log_part(after, limit - all.len())?;
            let is_end = is_whole || entries.is_empty();
            all.extend(entries);
            if is_end || all.len() >= limit {
                return Ok(all);
            }
        }
    }

    fn log_part(&self, after: Seq, limit: usize) -> Result<(Vec<LogEntry>, bool), StoreError> {
        match self.request(&Request::LogSince { after, limit: limit.try_into().unwrap_or(u32::MAX) })? {
            Response::Log(entries) => Ok((entries, true)),
            Response::LogPart(entries) => Ok((entries, false)),
            _ => Err(mismatched_response()),
        }
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        match self.request(&Request::Places(chunks.to_vec()))? {
            Response::Places(locations) if locations.len() == chunks.len() => Ok(locations),
            _ => Err(mismatched_response()),
        }
    }

    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        match self.request(&Request::Known(chunks.to_vec()))? {
            Response::Known(known) if known.len() == chunks.len() => Ok(known),
            _ => Err(mismatched_response()),
        }
    }

    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        let milliseconds = at_most.as_millis().try_into().unwrap_or(u32::MAX);
        match self.request(&Request::Wait { after, milliseconds })? {
            Response::Woken(woken) => Ok(woken),
            _ => Err(mismatched_response()),
        }
    }

    fn lease(&self, node: &NodeName, request: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        let request = match self.in_name(node)? {
            Some(node) => Request::LeaseOf(node, request.clone()),
            None => Request::Lease(request.clone()),
        };
        match self.request(&request)? {
            Response::Leases(response) => Ok(response),
            _ => Err(mismatched_response()),
        }
    }

    fn wait_lease(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        let milliseconds = at_most.as_millis().try_into().unwrap_or(u32::MAX);
        match self.request(&Request::WaitLease { after, acks, milliseconds })? {
            Response::Woken(woken) => Ok(woken),
            _ => Err(mismatched_response()),
        }
    }
}
