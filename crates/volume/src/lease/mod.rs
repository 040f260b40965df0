//! A node's part in [leases](crate::store::lease_table): what was closed on one connected machine is what is opened on another.
//!
//! [`Leases`] speaks with the store on a thread of its own. Who changes something says so, and waits until all others
//! know; who opens something waits for those who changed it. Both cost nothing while no other node is connected, and
//! opening costs nothing while nobody changed the object.

mod lease_types;
mod lock_leases;
mod state;
mod thread;
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
use lease_types::UncommittedChange;
pub use lease_types::{LockAnswer, LockGrant};
use state::LeaseState;
pub use wait::Wait;

/// A node that says nothing for so long is in nobody's way any more.
pub const SESSION_TTL: Duration = Duration::from_secs(5);
/// How often it says something.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1500);
/// The longest wait of an open for those who changed the file.
pub const OPEN_WAIT_TIMEOUT: Duration = Duration::from_secs(6);
/// Who kept one waiting for so long is not waited for again for this long.
const SLOW_PEER_PENALTY: Duration = Duration::from_secs(30);

/// See the [module](self).
pub struct Leases {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    itself: Weak<Inner>,
    state: Mutex<LeaseState>,
    wake: Condvar,
    /// Others are connected, and so is this node.
    has_peers: AtomicBool,
    /// Some lease of somebody else is known.
    has_peer_leases: AtomicBool,
    store: Arc<dyn MetaStore>,
    node: NodeName,
    replica: Arc<Replica>,
    sync_waker: Waker,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("standing", &self.status()).finish_non_exhaustive()
    }
}

/// How a node stands with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStatus {
    /// It sees what others close, and they see what it closes.
    pub connected: bool,
    /// Others that are connected.
    pub peers: u32,
    /// Leases of this node.
    pub own: usize,
    /// Leases of others.
    pub foreign: usize,
}

impl Leases {
    /// Begins to take part, for a replica that a runner synchronises.
    ///
    /// # Errors
    /// Those of starting threads.
    pub fn start(store: Arc<dyn MetaStore>, replica: Arc<Replica>, runner: &Runner) -> std::io::Result<Self> {
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
        });
        let mut leases = Self { inner: inner.clone(), threads: Vec::new() };
        let name = |name: &str| std::thread::Builder::new().name(name.into());
        let (one, other) = (inner.clone(), inner.clone());
        leases.threads.push(name("leases").spawn(move || thread::run(&one))?);
        leases.threads.push(name("lease-hints").spawn(move || thread::listen(&other))?);
        runner.set_rounds(Arc::new(LeaseObserver(Arc::downgrade(&inner))));
        Ok(leases)
    }

    /// Waits until this node is connected, where it can be; for so long.
    pub fn wait_connected(&self, at_most: Duration) {
        let until = std::time::Instant::now() + at_most;
        let mut state = self.inner.state.lock();
        while !state.is_connected()
            && !state.failed
            && !self.inner.wake.wait_until(&mut state, until).timed_out()
        {}
    }

    /// Takes part, or leaves the others alone until told otherwise.
    pub fn set_online(&self, online: bool) {
        self.inner.state.lock().online = online;
        self.inner.wake.notify_all();
    }

    /// How it stands.
    pub fn status(&self) -> SessionStatus {
        let state = self.inner.state.lock();
        let company = if state.is_valid() { state.peers } else { 0 };
        let (own, foreign) = (state.write_leases.len(), state.peer_leases.len());
        SessionStatus { connected: state.is_connected(), peers: company, own, foreign }
    }

    /// Whether anybody else would care for a change.
    pub fn has_peers(&self) -> bool {
        self.inner.has_peers.load(Ordering::Acquire)
    }

    /// A name was changed; to what, if that is new. To be called after the change, and waited for before it is answered.
    pub fn name_changed(&self, parent: u64, name: &[u8], made: Option<u64>) -> Option<Wait> {
        if !self.has_peers() {
            return None;
        }
        self.inner.request_write_lease(parent, UncommittedChange::Name(parent, name.into()), made)
    }

    /// Somebody closes a file that he may have written, and is answered once this was waited for.
    /// [`closed`](Self::closed) comes a moment later, if that was the last one who had it open by that open.
    pub fn closing(&self, num: u64) -> Option<Wait> {
        if !self.has_peers() {
            return None;
        }
        self.inner.state.lock().begin_close(num);
        // Where the store does not know its name yet, that is what others miss.
        let parents = self.inner.replica.new_names(num, 16).unwrap_or_default();
        let waits = parents.into_iter().chain([num]);
        let waits = waits.filter_map(|place| {
            self.inner.request_write_lease(place, UncommittedChange::File(num), Some(num))
        });
        Wait::all(waits.collect())
    }

    /// See [`closing`](Self::closing).
    pub fn closed(&self, num: u64) {
        if !self.has_peers() {
            return;
        }
        self.inner.state.lock().end_close(num);
        self.inner.sync_waker.wake();
    }

    /// Before a name of a directory is looked up, or a file is opened: what the kernel has of that is another matter.
    pub fn before_use(&self, num: u64) -> Option<Wait> {
        self.inner.wait_for_peers(num, false)
    }

    /// Before a directory is listed: the kernel knows by then what changed in it.
    pub fn before_listing(&self, num: u64) -> Option<Wait> {
        self.inner.wait_for_peers(num, true)
    }
}

impl Inner {
    fn id(&self, num: u64) -> Option<ObjectId> {
        self.replica.get(num).ok().map(|node| node.id)
    }

    /// Whether this node and another are connected, for those who ask without the lock.
    fn publish_flags(&self, state: &LeaseState) {
        let company = state.peers > 0 && state.is_valid();
        self.has_peers.store(company, Ordering::Release);
        self.replica.set_urgent(company);
        self.has_peer_leases.store(!state.peer_leases.is_empty(), Ordering::Release);
    }

    /// Not an error of anybody: this node goes on alone.
    fn end_session(&self, error: &StoreError) {
        tracing::debug!("no leases for now: {error}");
        let mut state = self.state.lock();
        state.end_session();
        state.failed = true;
        self.publish_flags(&state);
        self.wake.notify_all();
    }
}

/// Does not keep what it hears for.
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
