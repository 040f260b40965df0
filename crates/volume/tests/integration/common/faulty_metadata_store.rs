//! A metadata store behind an unreliable network.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use shunt_volume::id::{NodeName, ObjectId, Seq};
use shunt_volume::object::{ChunkId, VersionedObject};
use shunt_volume::store::{ChunkLocation, LogEntry, MetaStore, Page, Rejected, StoreError, Transaction};

pub struct FaultyMetaStore {
    pub store: Arc<dyn MetaStore>,
    pub state: Mutex<FaultProfile>,
}

pub struct FaultProfile {
    pub rng: SmallRng,
    pub cut: bool,
    /// Commits are denied: the node may only read.
    pub denied: bool,
    /// Percentage of calls that fail in some way.
    pub bad: u32,
}

impl FaultyMetaStore {
    pub fn new(store: Arc<dyn MetaStore>, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self { store, state: Mutex::new(FaultProfile { rng, cut: false, denied: false, bad: 0 }) }
    }

    /// Returns which of three failures happens, if any.
    fn fails(&self) -> Option<u32> {
        let mut state = self.state.lock();
        if state.cut {
            return Some(0);
        }
        let bad = state.bad;
        (state.rng.random_range(0..100) < bad).then(|| state.rng.random_range(0..3))
    }
}

fn lost<T>() -> Result<T, StoreError> {
    Err(StoreError::Unreachable("the network is bad".into()))
}

impl MetaStore for FaultyMetaStore {
    fn head(&self) -> Result<Seq, StoreError> {
        self.store.head()
    }

    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError> {
        if self.state.lock().denied {
            return Err(StoreError::Denied("it may only read".into()));
        }
        match self.fails() {
            // The request is lost, the reply is lost, or the request arrives twice.
            Some(0) => lost(),
            Some(1) => {
                self.store.commit(node, token, items)?;
                lost()
            }
            Some(_) => {
                let first = self.store.commit(node, token, items)?;
                assert_eq!(first, self.store.commit(node, token, items)?);
                Ok(first)
            }
            None => {
                let answers = self.store.commit(node, token, items);
                crate::common::seed_loop::log(|| format!("{node} is answered {answers:?}"));
                answers
            }
        }
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.store.get(ids)
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        match self.fails() {
            Some(0 | 1) => lost(),
            Some(_) => self.store.scan(from, limit.min(2)),
            None => self.store.scan(from, limit),
        }
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        // A probe of the store's identity reads one entry.
        if limit == 1 {
            return self.store.log_since(after, limit);
        }
        match self.fails() {
            Some(0 | 1) => lost(),
            // Only the first entries after the known ones are returned.
            Some(_) => self.store.log_since(after, limit.min(3)),
            None => self.store.log_since(after, limit),
        }
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        self.store.locate_chunks(chunks)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        self.store.wait(after, at_most)
    }
}
