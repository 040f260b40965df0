//! One queue of the kernel: the requests of one CPU, the entries offered for them, and the work to hand to its threads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::entry::Entry;
use super::pages::MemoryFile;
use super::payload_pool::PayloadPool;
use super::sizes::QueueSizes;

/// The next command of a thread's ring.
#[derive(Debug)]
pub(crate) enum Work {
    /// Offers another entry to the kernel.
    Register(Arc<Entry>),
    /// Sends the reply that an entry holds.
    Commit(Arc<Entry>),
}

/// Starts a thread that serves a queue, beginning with `Work`.
pub(crate) type Starter = Arc<dyn Fn(&Arc<Queue>, Work) -> io::Result<()> + Send + Sync>;

/// A queue. Each entry that the kernel may fill has a thread of its own that waits for that and for nothing else.
pub(crate) struct Queue {
    id: u16,
    payload: usize,
    max_entries: usize,
    /// The payload buffers of all entries, where the kernel has accepted a pool.
    pool: Option<Arc<PayloadPool>>,
    /// For bytes in memory of zero-copy requests; none without zero copy.
    detour: Option<Arc<MemoryFile>>,
    /// Number of entries that the kernel may fill.
    available: AtomicUsize,
    /// Requests received.
    progress: AtomicU64,
    /// A regular file for which a request arrived recently.
    regular_file: AtomicU64,
    state: Mutex<State>,
    work_queued: Condvar,
}

#[derive(Default)]
struct State {
    entries: usize,
    work: VecDeque<Work>,
    /// Number of threads without an entry, which wait for work.
    idle: usize,
    starter: Option<Starter>,
    ended: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn new(
        id: u16,
        sizes: &QueueSizes,
        pool: Option<Arc<PayloadPool>>,
        detour: Option<Arc<MemoryFile>>,
        starter: Starter,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            payload: sizes.payload(),
            max_entries: sizes.max_entries,
            pool,
            detour,
            available: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            regular_file: AtomicU64::new(0),
            state: Mutex::new(State { starter: Some(starter), ..Default::default() }),
            work_queued: Condvar::new(),
        })
    }

    /// Returns the number of its CPU.
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Returns the size of a payload in bytes.
    pub(crate) fn payload(&self) -> usize {
        self.payload
    }

    /// Returns the pool of payload buffers. Without one, each entry has a buffer of its own.
    pub(crate) fn pool(&self) -> Option<&Arc<PayloadPool>> {
        self.pool.as_ref()
    }

    /// Returns the file in memory for zero-copy requests; none without zero copy.
    pub(crate) fn detour(&self) -> Option<&Arc<MemoryFile>> {
        self.detour.as_ref()
    }

    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Reports whether all entries are in use, so that no request can arrive.
    pub(crate) fn is_full(&self) -> bool {
        self.available.load(Ordering::Acquire) == 0
    }

    /// Counts an entry that is about to be offered to the kernel.
    pub(crate) fn offered(&self) {
        self.available.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an entry that was filled or taken back.
    pub(crate) fn taken(&self) {
        self.available.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the node of a regular file, 0 where none is known. The kernel may have forgotten it since.
    pub(crate) fn regular_file(&self) -> u64 {
        self.regular_file.load(Ordering::Relaxed)
    }

    pub(crate) fn set_regular_file(&self, node: u64) {
        self.regular_file.store(node, Ordering::Relaxed);
    }

    pub(crate) fn received(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the next work for a thread whose request waits: pending work, or another entry where the kernel has no other one
    /// to fill; otherwise blocks until there is work. `None` at the end of the session.
    pub(crate) fn next(self: &Arc<Self>) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(work) = state.work.pop_front() {
                return Some(work);
            }
            if self.is_full() {
                if let Some(entry) = self.new_entry(&mut state) {
                    return Some(Work::Register(entry));
                }
            }
            state.idle += 1;
            self.work_queued.wait(&mut state);
            state.idle -= 1;
        }
    }

    fn new_entry(self: &Arc<Self>, state: &mut State) -> Option<Arc<Entry>> {
        if state.entries >= self.max_entries || state.ended {
            return None;
        }
        let entry = Entry::new(self.clone());
        match &entry {
            Ok(_) => state.entries += 1,
            Err(error) => tracing::warn!(%error, "cannot allocate one more ring entry"),
        }
        entry.ok()
    }

    /// Makes the first entry.
    pub(crate) fn first_entry(self: &Arc<Self>) -> Option<Arc<Entry>> {
        self.new_entry(&mut self.state.lock())
    }

    /// Hands work to some thread.
    pub(crate) fn hand_over(self: &Arc<Self>, work: Work) {
        self.hand_over_locked(self.state.lock(), work);
    }

    fn hand_over_locked(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>, work: Work) -> bool {
        if state.ended {
            return false;
        }
        // The number of idle threads, minus those that were woken for work already.
        if state.idle > state.work.len() {
            state.work.push_back(work);
            self.work_queued.notify_one();
            return true;
        }
        let Some(starter) = state.starter.clone() else { return false };
        // It stays in the list if no thread can be started: another thread takes it later.
        state.work.push_back(work);
        let work = state.work.pop_front();
        drop(state);
        work.is_some_and(|work| self.start(&starter, work))
    }

    fn start(self: &Arc<Self>, starter: &Starter, work: Work) -> bool {
        let keep = match &work {
            Work::Register(_) => None,
            Work::Commit(entry) => Some(entry.clone()),
        };
        let started = starter(self, work);
        if let Err(error) = &started {
            tracing::warn!(%error, "cannot start one more thread for a ring queue");
            let mut state = self.state.lock();
            match keep {
                Some(entry) => state.work.push_back(Work::Commit(entry)),
                None => state.entries -= 1,
            }
        }
        started.is_ok()
    }

    /// Adds an entry, with a thread that waits for it. `false` where the maximum is reached.
    pub(crate) fn grow(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        match self.new_entry(&mut state) {
            Some(entry) => self.hand_over_locked(state, Work::Register(entry)),
            None => false,
        }
    }

    /// Retries to hand over work for which no thread could be started.
    pub(crate) fn retry(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.idle == 0 {
            if let Some(work) = state.work.pop_front() {
                self.hand_over_locked(state, work);
            }
        }
    }

    /// Reports whether a request that may wait forever may be served: not on the last entry, or the request that would end its
    /// wait could never arrive.
    pub(crate) fn leaves_room(self: &Arc<Self>) -> bool {
        !self.is_full() || self.grow()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends the queue: no more work. The kernel returns the entries that it holds.
    pub(crate) fn end(&self) {
        let (work, starter) = {
            let mut state = self.state.lock();
            state.ended = true;
            (std::mem::take(&mut state.work), state.starter.take())
        };
        self.work_queued.notify_all();
        // Work and starter may hold the last references to state that ends with the session.
        drop((work, starter));
    }
}
