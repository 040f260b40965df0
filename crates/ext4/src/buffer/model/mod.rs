//! Model checking of the running transaction and the cache: a scheduler explores thread interleavings of the production code.
//!
//! Built and run with the feature `model`, with which both take their locks from `sync` here.
//!
//! Handles change two blocks alike; commits write the frozen blocks to a device that is one mutex. In every interleaving, each
//! transaction has both blocks or none, a commit that has returned includes all changes made before it began, no handle changes
//! anything while blocks are being frozen, and no thread deadlocks (the scheduler detects it).

pub(super) mod sync;

use std::collections::HashMap;
use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

use sync::Mutex;

use super::BlockKind;
use super::cache::{Bytes, Cache, Lookup};
use super::transaction::{Joined, RunningTransaction, Tid};
use crate::error::{Error, Result};

/// Two blocks in different shards whose counts are always equal.
const PAIR: [u64; 2] = [1, 2];

struct Model {
    gate: RunningTransaction,
    cache: Cache,
    /// Locked during a commit.
    log: Mutex<()>,
    device: Mutex<HashMap<u64, Bytes>>,
    freezing: AtomicBool,
}

fn count(bytes: &[u8]) -> u8 {
    bytes[0]
}

impl Model {
    fn new(limit: u32) -> Arc<Self> {
        let device = PAIR.map(|block| (block, Bytes::from([0; 4])));
        Arc::new(Self {
            gate: RunningTransaction::new(limit),
            cache: Cache::new(1),
            log: Mutex::new(()),
            device: Mutex::new(device.into()),
            freezing: AtomicBool::new(false),
        })
    }

    /// Models `MetadataCache::get`, reduced to its use of the cache.
    fn get(&self, block: u64) {
        loop {
            let (bytes, generation) = match self.cache.lookup(block) {
                Lookup::Cached(..) => return,
                Lookup::Pending(bytes, generation) => (bytes, generation),
                Lookup::OnDisk(generation) => (self.device.lock()[&block].clone(), generation),
            };
            if self.cache.insert(block, bytes, BlockKind::Indirect, generation) {
                return;
            }
        }
    }

    /// Models a handle of two credits.
    fn change(&self) -> Result<()> {
        self.enter()?;
        self.add_to(&PAIR)?;
        self.gate.leave(2);
        Ok(())
    }

    /// Models a handle that fails after it changed one of the two blocks.
    fn fail_half_way(&self) -> Result<()> {
        self.enter()?;
        self.add_to(&PAIR[..1])?;
        self.gate.abort();
        // Models recording the abort in the journal.
        drop(self.log.lock());
        self.gate.leave(2);
        Ok(())
    }

    fn enter(&self) -> Result<()> {
        loop {
            match self.gate.enter(2, || self.cache.dirty())? {
                Joined::In => return Ok(()),
                Joined::Full(tid) => self.commit(tid)?,
            }
        }
    }

    fn add_to(&self, blocks: &[u64]) -> Result<()> {
        for &block in blocks {
            let add = |bytes: &mut [u8]| {
                assert!(!self.freezing.load(Ordering::Relaxed), "a block is changed while blocks are frozen");
                bytes[0] += 1;
                Ok(())
            };
            self.get_and(block, add)?;
        }
        Ok(())
    }

    fn get_and(&self, block: u64, change: impl Fn(&mut [u8]) -> Result<()>) -> Result<()> {
        loop {
            self.get(block);
            if let Some(result) = self.cache.change(block, BlockKind::Indirect, &change) {
                return result;
            }
        }
    }

    fn commit(&self, tid: Tid) -> Result<()> {
        let _log = self.log.lock();
        if self.gate.is_aborted() {
            return Err(Error::ReadOnly);
        }
        if self.gate.committed() >= tid {
            return Ok(());
        }
        let taken = self.gate.freeze(|tid| {
            self.freezing.store(true, Ordering::Relaxed);
            let frozen = self.cache.freeze();
            self.freezing.store(false, Ordering::Relaxed);
            (tid, frozen)
        });
        let (tid, frozen) = taken.ok_or(Error::ReadOnly)?;
        assert!(frozen.is_empty() || frozen.len() == 2, "a handle is committed partially");
        {
            let mut device = self.device.lock();
            device.extend(frozen.iter().cloned());
            assert_eq!(count(&device[&PAIR[0]]), count(&device[&PAIR[1]]), "transaction {tid}");
        }
        self.cache.committed(frozen, true);
        // Checkpoint every second transaction.
        if tid % 2 == 0 {
            self.cache.checkpointed(&self.cache.pending());
        }
        assert_eq!(self.gate.committed() + 1, tid);
        self.gate.set_committed(tid);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.commit(self.gate.running())
    }

    fn on_device(&self) -> u8 {
        count(&self.device.lock()[&PAIR[0]])
    }
}

/// Number of interleavings per test, which take a second or two.
const ORDERS: usize = 300;

fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // Without optimization, the shards of the cache need more stack than the default.
    config.stack_size = 1 << 20;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(ORDERS), config).run(test);
}

fn check(limit: u32, changes: u8, syncs: bool) {
    let threads = 3;
    in_many_orders(move || {
        let model = Model::new(limit);
        let work = |model: Arc<Model>| {
            move || {
                for done in 1..=changes {
                    model.change().unwrap();
                    if syncs {
                        model.sync().unwrap();
                        assert!(model.on_device() >= done, "a synced change is missing from the device");
                    }
                }
            }
        };
        let all: Vec<_> = (0..threads).map(|_| thread::spawn(work(model.clone()))).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        model.sync().unwrap();
        assert_eq!(model.on_device(), threads * changes);
    });
}

#[test]
fn handles_that_sync() {
    check(100, 2, true);
}

#[test]
fn handles_that_fill_transactions() {
    check(2, 3, false);
    check(4, 3, true);
}

#[test]
fn abort_wakes_all_waiters() {
    in_many_orders(|| {
        let model = Model::new(4);
        let workers = [(), ()].map(|()| {
            let model = model.clone();
            thread::spawn(move || while model.change().and_then(|()| model.sync()).is_ok() {})
        });
        model.change().unwrap();
        model.sync().unwrap();
        assert!(model.gate.abort());
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(matches!(model.change(), Err(Error::ReadOnly)));
        assert!(!model.gate.abort());
    });
}

#[test]
fn incomplete_change_is_never_committed() {
    in_many_orders(|| {
        let model = Model::new(4);
        let workers = [(), ()].map(|()| {
            let model = model.clone();
            thread::spawn(move || while model.change().and_then(|()| model.sync()).is_ok() {})
        });
        // Each commit checks that it has both blocks or none.
        model.fail_half_way().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
