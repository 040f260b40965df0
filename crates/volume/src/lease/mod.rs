//! A node's part in [leases](crate::store::lease_table), which give close-to-open consistency between connected nodes.
//!
//! [`Leases`] exchanges leases with the store on a thread of its own. A writer blocks until every connected peer has
//! acknowledged its lease; an open waits for peers that changed the object until their changes are applied. Both cost nothing
//! while no other node is connected, and opening costs nothing while no peer changed the object.

mod lock_leases;
mod state;
mod thread;
mod types;
mod wait;
mod waiters;
mod write_leases;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::id::{NodeName, ObjectId, Seq};
use crate::replica::Replica;
use crate::store::{MetaStore, StoreError};
use crate::sync::{RoundObserver, Runner, Waker};
use state::LeaseState;
use types::UncommittedChange;
pub use types::{LockAnswer, LockGrant};
pub use wait::Wait;

/// Lifetime of a session without a heartbeat; then writers stop waiting for its acknowledgements.
pub const SESSION_TTL: Duration = Duration::from_secs(5);
/// The interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1500);
/// The longest wait of an open for peers that changed the file.
pub(crate) const OPEN_WAIT_TIMEOUT: Duration = Duration::from_secs(6);
/// Time during which opens do not wait for a peer that caused an [`OPEN_WAIT_TIMEOUT`].
const SLOW_PEER_PENALTY: Duration = Duration::from_secs(30);

/// Memory that outlives the process, for the id of its lease session.
///
/// The store takes a process that was killed as connected until its session expires, and others wait for it that long. The next
/// process ends that session.
pub trait SessionMemory: Send + Sync {
    /// Returns the id that was recorded last, by an earlier process too.
    fn last(&self) -> Option<u128>;

    /// Records the id of a session before it begins.
    fn record(&self, session: u128);
}

/// The lease client of a node; see the [module](self).
pub struct Leases {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    itself: Weak<Inner>,
    state: Mutex<LeaseState>,
    wake: Condvar,
    /// This node and at least one peer are connected.
    has_peers: AtomicBool,
    /// At least one lease of a peer is known.
    has_peer_leases: AtomicBool,
    store: Arc<dyn MetaStore>,
    node: NodeName,
    replica: Arc<Replica>,
    sync_waker: Waker,
    memory: Option<Arc<dyn SessionMemory>>,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("standing", &self.status()).finish_non_exhaustive()
    }
}

/// The state of a node's lease session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStatus {
    /// This node sees what peers close, and they see what it closes.
    pub connected: bool,
    /// Number of connected peers.
    pub peers: u32,
    /// Number of leases of this node.
    pub own_leases: usize,
    /// Number of leases of peers.
    pub peer_leases: usize,
}

impl Leases {
    /// Starts the lease client of a replica that `runner` synchronises.
    ///
    /// # Errors
    /// The errors of starting threads.
    pub fn start(store: Arc<dyn MetaStore>, replica: Arc<Replica>, runner: &Runner) -> std::io::Result<Self> {
        Self::continuing(store, replica, runner, None)
    }

    /// As [`start`](Self::start), and ends the session of an earlier process that `memory` has recorded.
    ///
    /// # Errors
    /// The errors of starting threads.
    pub fn continuing(
        store: Arc<dyn MetaStore>,
        replica: Arc<Replica>,
        runner: &Runner,
        memory: Option<Arc<dyn SessionMemory>>,
    ) -> std::io::Result<Self> {
        let inner = Arc::new_cyclic(|itself| Inner {
            itself: itself.clone(),
            state: Mutex::new(LeaseState::new(rand::random())),
            wake: Condvar::new(),
            has_peers: AtomicBool::new(false),
            has_peer_leases: AtomicBool::new(false),
            store,
            node: replica.node_name().clone(),
            replica,
            sync_waker: runner.waker(),
            memory,
        });
        let mut leases = Self { inner: inner.clone(), threads: Vec::new() };
        let name = |name: &str| std::thread::Builder::new().name(name.into());
        let (one, other) = (inner.clone(), inner.clone());
        leases.threads.push(name("leases").spawn(move || thread::run(&one))?);
        leases.threads.push(name("lease-hints").spawn(move || thread::listen(&other))?);
        runner.set_rounds(Arc::new(LeaseObserver(Arc::downgrade(&inner))));
        Ok(leases)
    }

    /// Waits until this node is connected, the store cannot be reached, or the time is over.
    pub fn wait_connected(&self, at_most: Duration) {
        let until = std::time::Instant::now() + at_most;
        let mut state = self.inner.state.lock();
        while !state.is_connected()
            && !state.failed
            && !self.inner.wake.wait_until(&mut state, until).timed_out()
        {}
    }

    /// Connects to the peers, or disconnects until set online again.
    pub fn set_online(&self, online: bool) {
        self.inner.state.lock().online = online;
        self.inner.wake.notify_all();
    }

    /// Returns the state of the session.
    pub fn status(&self) -> SessionStatus {
        let state = self.inner.state.lock();
        let peers = if state.is_valid() { state.peers } else { 0 };
        let (own_leases, peer_leases) = (state.write_leases.len(), state.peer_leases.len());
        SessionStatus { connected: state.is_connected(), peers, own_leases, peer_leases }
    }

    /// Reports whether any peer is connected.
    pub fn has_peers(&self) -> bool {
        self.inner.has_peers.load(Ordering::Acquire)
    }

    /// Announces a changed name; `made` is the object if it is new. To be called after the change, and awaited before the
    /// reply.
    pub fn name_changed(&self, parent: u64, name: &[u8], made: Option<u64>) -> Option<Wait> {
        if !self.has_peers() {
            return None;
        }
        self.inner.request_write_lease(parent, UncommittedChange::Name(parent, name.into()), made)
    }

    /// Announces the close of a file that may have been written. To be awaited before the reply to the close.
    /// [`closed`](Self::closed) follows, if that was the last descriptor of the open.
    pub fn closing(&self, num: u64) -> Option<Wait> {
        if !self.has_peers() {
            return None;
        }
        self.inner.state.lock().begin_close(num);
        // Peers cannot look up a name that the store does not have yet: they wait for its directories.
        let parents = self.inner.replica.new_names(num, 16).unwrap_or_default();
        let waits = parents.into_iter().chain([num]);
        let waits = waits.filter_map(|changed| {
            self.inner.request_write_lease(changed, UncommittedChange::File(num), Some(num))
        });
        Wait::all(waits.collect())
    }

    /// Announces the release after [`closing`](Self::closing).
    pub fn closed(&self, num: u64) {
        if !self.has_peers() {
            return;
        }
        self.inner.state.lock().end_close(num);
        self.inner.sync_waker.wake();
    }

    /// Returns the wait of a lookup or an open: it ends when the changes of peers are applied to the replica. The kernel's
    /// caches may still be stale then.
    pub fn wait_before_open(&self, num: u64) -> Option<Wait> {
        self.inner.wait_for_peers(num, false)
    }

    /// Returns the wait of a directory listing: it ends when the changes of peers are applied and invalidated in the kernel.
    pub fn wait_before_listing(&self, num: u64) -> Option<Wait> {
        self.inner.wait_for_peers(num, true)
    }
}

impl Inner {
    fn id(&self, num: u64) -> Option<ObjectId> {
        self.replica.get(num).ok().map(|node| node.id)
    }

    /// Publishes whether peers are connected, and whether they hold leases, for readers without the lock.
    fn publish_flags(&self, state: &LeaseState) {
        let has_peers = state.peers > 0 && state.is_valid();
        self.has_peers.store(has_peers, Ordering::Release);
        self.replica.set_urgent(has_peers);
        self.has_peer_leases.store(!state.peer_leases.is_empty(), Ordering::Release);
    }

    /// Ends the session after a failed request. Users see no error: this node continues without its peers.
    fn end_session(&self, error: &StoreError) {
        tracing::debug!("lease session ended: {error}");
        let mut state = self.state.lock();
        state.end_session();
        state.failed = true;
        self.publish_flags(&state);
        self.wake.notify_all();
    }
}

/// Observes the rounds of synchronisation; does not keep the lease client alive.
struct LeaseObserver(Weak<Inner>);

impl RoundObserver for LeaseObserver {
    fn begin(&self) -> u64 {
        self.0.upgrade().map_or(0, |inner| inner.state.lock().serial)
    }

    fn end(&self, began: u64, idle: bool, cursor: Seq) {
        let Some(inner) = self.0.upgrade() else { return };
        let mut state = inner.state.lock();
        state.set_cursor(cursor);
        state.first_round_done = true;
        let frees = state.release_committed(&inner.replica, began, idle);
        inner.apply_cursor(&mut state);
        inner.publish_flags(&state);
        if frees || state.is_connected() {
            inner.wake.notify_all();
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.inner.state.lock().ended = true;
        self.inner.wake.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}
