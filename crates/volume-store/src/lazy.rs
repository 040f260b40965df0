//! A store that is opened on first use, so that a known volume can be mounted while its store is unreachable. Only one thread at
//! a time attempts to open it; concurrent calls fail at once as unreachable.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, LinkName, StoredLink, Time, VersionedObject};

use super::history::{History, PastLink, Version};
use super::{
    ChunkLocation, LeaseRequest, LeaseResponse, LogEntry, MetaStore, Page, Rejected, StoreError, Transaction,
};

type Open = dyn Fn() -> Result<Arc<dyn MetaStore>, StoreError> + Send + Sync;

/// Opens the store in the first call that reaches it.
pub struct LazyStore {
    open: Box<Open>,
    store: OnceLock<Arc<dyn MetaStore>>,
    trying: Mutex<()>,
}

impl LazyStore {
    /// Creates a store that `open` opens, by the first call that needs it.
    pub fn new(open: impl Fn() -> Result<Arc<dyn MetaStore>, StoreError> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), store: OnceLock::new(), trying: Mutex::new(()) }
    }

    fn store(&self) -> Result<&dyn MetaStore, StoreError> {
        if let Some(store) = self.store.get() {
            return Ok(&**store);
        }
        // A concurrent call fails at once instead of waiting for a server that may not answer.
        let Some(_alone) = self.trying.try_lock() else {
            return Err(StoreError::Unreachable("another attempt to connect is in progress".to_owned()));
        };
        if let Some(store) = self.store.get() {
            return Ok(&**store);
        }
        let opened = (self.open)()?;
        Ok(&**self.store.get_or_init(|| opened))
    }

    fn past(&self) -> Result<&dyn History, StoreError> {
        let none = || StoreError::Denied("this store keeps no history".to_owned());
        self.store()?.history().ok_or_else(none)
    }
}

impl MetaStore for LazyStore {
    fn head(&self) -> Result<Seq, StoreError> {
        self.store()?.head()
    }

    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError> {
        self.store()?.commit(node, token, items)
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.store()?.get(ids)
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        self.store()?.scan(from, limit)
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        self.store()?.log_since(after, limit)
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        self.store()?.locate_chunks(chunks)
    }

    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        self.store()?.has_chunks(chunks)
    }

    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        self.store()?.wait(after, at_most)
    }

    fn lease(&self, node: &NodeName, request: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        self.store()?.lease(node, request)
    }

    fn wait_lease(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        self.store()?.wait_lease(after, acks, at_most)
    }
}

impl History for LazyStore {
    fn complete_since(&self) -> Result<Seq, StoreError> {
        self.past()?.complete_since()
    }

    fn seq_at(&self, time: Time) -> Option<Result<Seq, StoreError>> {
        match self.past() {
            Ok(past) => past.seq_at(time),
            Err(error) => Some(Err(error)),
        }
    }

    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError> {
        self.past()?.object_at(id, at)
    }

    fn objects_at(&self, ids: &[ObjectId], at: Seq) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.past()?.objects_at(ids, at)
    }

    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError> {
        self.past()?.link_at(name, at)
    }

    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<StoredLink>, StoreError> {
        self.past()?.links_at(parent, at, after, limit)
    }

    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError> {
        self.past()?.versions(id)
    }

    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError> {
        self.past()?.past_of_name(name)
    }

    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError> {
        self.past()?.past_names(ids)
    }
}
