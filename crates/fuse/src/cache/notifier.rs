//! The notification queue and the threads that send it. Order is kept per node, an equal notification that is already queued is
//! not queued again, and the queue is bounded: on overflow it collapses into broader invalidations.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use shunt_fuse_abi::{ExpireFlags, notify};

use super::completion::{Completer, Completion};
use super::delayed_expiry::DelayedExpiries;
use super::inflight_names::InflightNames;
use super::notification::Waiter;
use super::write_out::Mountpoint;
use super::{MAX_QUEUED_NOTIFICATIONS, Notification, NotificationKind, ignore_not_cached};
use crate::id::NodeId;
use crate::transport::device::Device;

/// Maximum number of sending threads. Each can block in the kernel on one directory's lock.
const MAX_THREADS: usize = 16;

#[derive(Debug, Default)]
struct NodeQueue {
    /// Each notification with its generation.
    notifications: VecDeque<(u64, Notification)>,
    /// Further waiters of notifications that are queued and not yet being sent: an equal notification is merged into the queued
    /// one.
    queued: HashMap<(u64, NotificationKind), Vec<Waiter>>,
    /// Incremented by each notification that is not idempotent. Nothing is merged across one: an invalidation requested after a
    /// store must be sent after it.
    generation: u64,
    /// A thread is sending for this node now.
    busy: bool,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<NodeId, NodeQueue>,
    ready: VecDeque<NodeId>,
    delayed: DelayedExpiries,
    queued: usize,
    /// Queue length from which the next attempt to merge starts: the last one freed nothing.
    search_from: usize,
    idle: usize,
    threads: usize,
    closed: bool,
}

/// Sends notifications: in order per node, from several threads, from a bounded queue.
#[derive(Debug)]
pub(crate) struct Notifier {
    inner: Arc<Inner>,
}

/// First id of a retrieve. Over io_uring the kernel matches replies to requests by id, and the data of a retrieve is a request
/// with this id. It must not be one that the kernel itself assigns, which count up from zero, and it must be even, because odd
/// ids are interrupts.
const FIRST_RETRIEVE_ID: u64 = 1 << 62;

/// Reports whether the kernel was given a node and has not forgotten it.
type IsKnownToKernel = Box<dyn Fn(NodeId) -> bool + Send + Sync>;

/// Number of retries and first pause between them, which doubles each time. The kernel processes a reply in the process that
/// waits for it: soon, unless that process is stopped.
const MAX_RETRIES: u32 = 12;
const RETRY_DELAY: Duration = Duration::from_millis(1);

struct Inner {
    state: Mutex<State>,
    work: Condvar,
    device: Arc<Device>,
    expires_names: AtomicBool,
    can_expire_all: AtomicBool,
    retrieves: Mutex<HashMap<u64, Completer<Vec<u8>>>>,
    next_retrieve: AtomicU64,
    mountpoint: OnceLock<Mountpoint>,
    is_known: OnceLock<IsKnownToKernel>,
    inflight_names: InflightNames,
    overflows: AtomicU64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self {
            inner: Arc::new(Inner {
                state: Mutex::default(),
                work: Condvar::new(),
                device,
                expires_names: AtomicBool::new(false),
                can_expire_all: AtomicBool::new(true),
                retrieves: Mutex::default(),
                next_retrieve: AtomicU64::new(FIRST_RETRIEVE_ID),
                mountpoint: OnceLock::new(),
                is_known: OnceLock::new(),
                inflight_names: InflightNames::default(),
                overflows: AtomicU64::new(0),
            }),
        }
    }

    /// Sets whether the kernel supports EXPIRE_ONLY.
    pub(crate) fn set_expires_names(&self, on: bool) {
        self.inner.expires_names.store(on, Ordering::Relaxed);
    }

    /// Sets whether the kernel supports INC_EPOCH. Without it, an overflow must not drop the notifications of names.
    pub(crate) fn set_expires_all(&self, on: bool) {
        self.inner.can_expire_all.store(on, Ordering::Relaxed);
    }

    pub(crate) fn set_mountpoint(&self, mountpoint: Mountpoint) {
        self.inner.mountpoint.set(mountpoint).ok();
    }

    pub(crate) fn set_is_known(&self, is_known: IsKnownToKernel) {
        self.inner.is_known.set(is_known).ok();
    }

    /// Records that a lookup of this name is being answered.
    pub(crate) fn record_lookup_reply(&self, parent: NodeId, name: &[u8]) {
        self.inner.inflight_names.record(parent, name);
    }

    pub(crate) fn queued(&self) -> usize {
        self.inner.state.lock().queued
    }

    /// Returns how often the queue overflowed into "expire every name".
    pub(crate) fn overflows(&self) -> u64 {
        self.inner.overflows.load(Ordering::Relaxed)
    }

    pub(crate) fn enqueue(&self, note: Notification) {
        let mut state = self.inner.state.lock();
        if state.closed {
            drop(state);
            note.waiter.complete(Err(Errno::NOTCONN));
            return;
        }
        if state.queued >= MAX_QUEUED_NOTIFICATIONS.max(state.search_from) {
            self.inner.make_room(&mut state);
        }
        // A notification that cannot be merged is refused. The others grow the queue to one entry per node or name at most.
        if state.queued >= MAX_QUEUED_NOTIFICATIONS && !note.kind.is_idempotent() {
            drop(state);
            note.waiter.complete(Err(Errno::NOBUFS));
            return;
        }
        if state.push(note, Vec::new()) {
            self.inner.wake_or_start(&mut state);
        }
    }

    /// Returns the completion of everything that is queued for a node now; `None`: nothing is.
    pub(crate) fn settled(&self, node: NodeId) -> Option<Completion> {
        let mut state = self.inner.state.lock();
        if state.closed || !state.nodes.contains_key(&node) {
            return None;
        }
        let (turn, completion) = Notification::new(NotificationKind::Barrier { node });
        // The thread that sends for the node reaches it.
        state.push(turn, Vec::new());
        Some(completion)
    }

    /// Completes a retrieve with the data that the kernel sent.
    pub(crate) fn retrieved(&self, unique: u64, data: &[u8]) {
        let completer = self.inner.retrieves.lock().remove(&unique);
        if let Some(completer) = completer {
            completer.complete(Ok(data.to_vec()));
        }
    }

    /// Stops sending after the connection ended, and fails all waiters.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state.lock();
        state.closed = true;
        state.delayed.clear();
        let waiters: Vec<Waiter> = state.drain(|_| true);
        self.inner.work.notify_all();
        drop(state);
        for waiter in waiters {
            waiter.complete(Err(Errno::NOTCONN));
        }
        let retrieves = std::mem::take(&mut *self.inner.retrieves.lock());
        for completer in retrieves.into_values() {
            completer.complete(Err(Errno::NOTCONN));
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// Queues a notification together with the waiters in `joined`; returns `false` where an equal one is queued already.
    fn push(&mut self, note: Notification, joined: Vec<Waiter>) -> bool {
        let id = note.kind.node();
        let queue = self.nodes.entry(id).or_default();
        if note.kind.is_idempotent() {
            let key = (queue.generation, note.kind.clone());
            if let Some(waiters) = queue.queued.get_mut(&key) {
                waiters.push(note.waiter);
                waiters.extend(joined);
                // Most completions are dropped at once: waiters without a receiver must not accumulate.
                if waiters.len() >= 64 && waiters.len().is_power_of_two() {
                    waiters.retain(Waiter::is_awaited);
                }
                return false;
            }
            queue.queued.insert(key, joined);
        } else {
            queue.generation += 1;
        }
        queue.notifications.push_back((queue.generation, note));
        self.queued += 1;
        if !queue.busy && queue.notifications.len() == 1 {
            self.ready.push_back(id);
        }
        true
    }

    /// Queues the repetitions that are due.
    fn queue_due(&mut self) {
        if self.delayed.due().is_some() {
            let now = Instant::now();
            while let Some(what) = self.delayed.take(now) {
                self.push(Notification::new(what).0, Vec::new());
            }
        }
    }

    /// Takes the next notification of a node that no thread is sending for.
    fn take(&mut self) -> Option<(NodeId, Notification, Vec<Waiter>)> {
        while let Some(id) = self.ready.pop_front() {
            let Some(queue) = self.nodes.get_mut(&id) else { continue };
            // A node that was drained and filled again is listed twice; `finished` lists it once more.
            if queue.busy {
                continue;
            }
            let Some((generation, note)) = queue.notifications.pop_front() else { continue };
            let joined = queue.queued.remove(&(generation, note.kind.clone())).unwrap_or_default();
            queue.busy = true;
            self.queued -= 1;
            if self.queued == 0 {
                self.search_from = 0;
            }
            return Some((id, note, joined));
        }
        None
    }

    fn finished(&mut self, id: NodeId) {
        let Some(queue) = self.nodes.get_mut(&id) else { return };
        queue.busy = false;
        if queue.notifications.is_empty() {
            self.nodes.remove(&id);
        } else {
            self.ready.push_back(id);
        }
    }

    /// Removes matching notifications and returns their waiters.
    fn drain(&mut self, matches: impl Fn(&NotificationKind) -> bool) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        for queue in self.nodes.values_mut() {
            self.queued -= queue.drain(&matches, &mut waiters);
        }
        self.nodes.retain(|_, queue| queue.busy || !queue.notifications.is_empty());
        let nodes = &self.nodes;
        self.ready.retain(|id| nodes.get(id).is_some_and(|queue| !queue.notifications.is_empty()));
        waiters.retain(Waiter::is_awaited);
        waiters
    }

    /// Replaces several ranges of a node by one invalidation of the whole node.
    fn merge_ranges(&mut self) {
        let is_range = |what: &NotificationKind| matches!(what, NotificationKind::InvalidateNode { .. });
        // A waiter for some of them then waits for all.
        let goes =
            |what: &NotificationKind| is_range(what) || matches!(what, NotificationKind::Barrier { .. });
        let mut merged = Vec::new();
        for (id, queue) in &mut self.nodes {
            if queue.notifications.iter().filter(|(_, note)| is_range(&note.kind)).nth(1).is_some() {
                let mut waiters = Vec::new();
                self.queued -= queue.drain(goes, &mut waiters);
                merged.push((*id, waiters));
            }
        }
        for (node, waiters) in merged {
            self.push(
                Notification::new(NotificationKind::InvalidateNode { node, offset: 0, length: 0 }).0,
                waiters,
            );
        }
    }
}

impl NodeQueue {
    /// Removes matching notifications and returns their number.
    fn drain(&mut self, matches: impl Fn(&NotificationKind) -> bool, waiters: &mut Vec<Waiter>) -> usize {
        let before = self.notifications.len();
        for (generation, note) in std::mem::take(&mut self.notifications) {
            if matches(&note.kind) {
                waiters.extend(self.queued.remove(&(generation, note.kind)).unwrap_or_default());
                waiters.push(note.waiter);
            } else {
                self.notifications.push_back((generation, note));
            }
        }
        before - self.notifications.len()
    }
}

impl Inner {
    /// Makes room in a full queue: names become one "expire every name", and the ranges of a node one invalidation of the whole.
    fn make_room(&self, state: &mut State) {
        // Kernels without INC_EPOCH: names stay queued.
        if self.can_expire_all.load(Ordering::Relaxed) {
            let before = state.queued;
            let waiters = state.drain(NotificationKind::is_covered_by_expiry);
            let names = before - state.queued;
            if names > 0 {
                self.overflows.fetch_add(1, Ordering::Relaxed);
                tracing::info!(names, "notification queue full: expiring all names instead");
                if state.push(Notification::new(NotificationKind::ExpireAll).0, waiters) {
                    self.work.notify_one();
                }
            }
        }
        if state.queued >= MAX_QUEUED_NOTIFICATIONS {
            state.merge_ranges();
        }
        state.search_from = state.queued + MAX_QUEUED_NOTIFICATIONS / 4;
    }

    /// Wakes or starts one thread for each ready node: a thread that was woken a moment ago still counts as idle, and may block
    /// on its first node for long.
    fn wake_or_start(self: &Arc<Self>, state: &mut State) {
        self.wake_or_start_for(state, state.ready.len());
    }

    fn wake_or_start_for(self: &Arc<Self>, state: &mut State, ready: usize) {
        if state.idle > 0 {
            self.work.notify_one();
        }
        if state.idle < ready && state.threads < MAX_THREADS {
            let inner = self.clone();
            let name = format!("{}-{}", crate::guardian::exit_watch::NOTIFIER, state.threads);
            if thread::Builder::new().name(name).spawn(move || inner.serve()).is_ok() {
                state.threads += 1;
            }
        }
    }

    fn serve(self: &Arc<Self>) {
        crate::scheduling::roam();
        let mut state = self.state.lock();
        while !state.closed {
            state.queue_due();
            let Some((id, note, joined)) = state.take() else {
                state.idle += 1;
                match state.delayed.due() {
                    Some(due) => drop(self.work.wait_until(&mut state, due)),
                    None => self.work.wait(&mut state),
                }
                state.idle -= 1;
                continue;
            };
            drop(state);
            let mut result = self.deliver(&note);
            if let NotificationKind::InvalidateNode { node, .. } = &note.kind {
                result = self.repeat(*node, &note, result);
            }
            let again = self.needs_repeat(&note.kind, result);
            if note.kind.is_idempotent() && !matches!(note.kind, NotificationKind::WriteOut { .. }) {
                result = ignore_not_cached(result);
            }
            note.waiter.complete(result);
            joined.iter().for_each(|waiter| waiter.complete(result));
            state = self.state.lock();
            state.finished(id);
            if again {
                self.schedule_repeat(&mut state, &note.kind);
            }
        }
        state.threads -= 1;
    }

    /// Reports whether a reply in flight may make an expired name valid again. A name that is not cached is looked up under the
    /// lock of its directory, which the expiry waits for.
    fn needs_repeat(&self, what: &NotificationKind, result: Result<(), Errno>) -> bool {
        let NotificationKind::ExpireEntry { parent, name, again } = what else { return false };
        result.is_ok()
            && self.expires_names.load(Ordering::Relaxed)
            && (*again > 0 || self.inflight_names.may_be_in_flight(*parent, name))
    }

    fn schedule_repeat(self: &Arc<Self>, state: &mut State, what: &NotificationKind) {
        let NotificationKind::ExpireEntry { parent, name, again } = what else { return };
        if state.closed {
            return;
        }
        if state.delayed.len() >= MAX_QUEUED_NOTIFICATIONS && self.can_expire_all.load(Ordering::Relaxed) {
            // No reply undoes this one.
            state.delayed.clear();
            state.push(Notification::new(NotificationKind::ExpireAll).0, Vec::new());
            return;
        }
        let due = state.delayed.due();
        state.delayed.put(*parent, name, *again, Instant::now());
        // An idle thread may not know the new due time yet, and this thread may block on its next notification.
        if state.idle == 0 || state.delayed.due() != due {
            self.wake_or_start_for(state, 1);
        }
    }

    /// Retries while the kernel may be about to receive the reply that introduces the node.
    fn repeat(&self, node: NodeId, note: &Notification, mut result: Result<(), Errno>) -> Result<(), Errno> {
        let Some(is_known) = self.is_known.get() else { return result };
        let mut pause = RETRY_DELAY;
        for _ in 0..MAX_RETRIES {
            if result != Err(Errno::NOENT) || !is_known(node) {
                return result;
            }
            thread::sleep(pause);
            pause *= 2;
            result = self.deliver(note);
        }
        tracing::debug!("notification dropped: the kernel does not know node {}", node.0);
        result
    }

    fn deliver(&self, note: &Notification) -> Result<(), Errno> {
        let send = |notification: notify::Notification<'_>| self.device.notify(&notification);
        match &note.kind {
            NotificationKind::InvalidateEntry { parent, name } => {
                send(notify::inval_entry(parent.0, name, ExpireFlags::empty()))
            }
            NotificationKind::ExpireEntry { parent, name, .. } => {
                let flags = match self.expires_names.load(Ordering::Relaxed) {
                    true => ExpireFlags::EXPIRE_ONLY,
                    false => ExpireFlags::empty(),
                };
                send(notify::inval_entry(parent.0, name, flags))
            }
            NotificationKind::DeleteEntry { parent, child, name } => {
                send(notify::delete(parent.0, child.0, name))
            }
            NotificationKind::InvalidateNode { node, offset, length } => {
                send(notify::inval_inode(node.0, *offset, *length))
            }
            NotificationKind::ExpireAll => {
                let result = send(notify::inc_epoch());
                if result == Err(Errno::INVAL) {
                    self.can_expire_all.store(false, Ordering::Relaxed);
                    return Err(Errno::NOSYS);
                }
                result
            }
            NotificationKind::Store { node, offset, data } => send(notify::store(node.0, *offset, data)),
            NotificationKind::Retrieve { node, offset, size } => {
                let unique = self.next_retrieve.fetch_add(2, Ordering::Relaxed);
                let Waiter::Retrieved(completer) = &note.waiter else { return Err(Errno::INVAL) };
                self.retrieves.lock().insert(unique, completer.clone());
                let sent = send(notify::retrieve(unique, node.0, *offset, *size));
                if let Err(errno) = sent {
                    self.retrieves.lock().remove(&unique);
                    // ENOENT is an error here: the caller wants data.
                    completer.complete(Err(errno));
                }
                sent
            }
            NotificationKind::Barrier { .. } => Ok(()),
            NotificationKind::Prune { nodes } => send(notify::prune(nodes)),
            NotificationKind::PollReady { handle } => send(notify::poll(*handle)),
            NotificationKind::Resend => send(notify::resend()),
            NotificationKind::WriteOut { node, offset, length } => match self.mountpoint.get() {
                Some(mountpoint) => mountpoint.write_out(*node, *offset, *length),
                None => Err(Errno::NOTCONN),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_just_woken_is_not_counted_on_again() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let notifier = Notifier::new(Arc::new(Device::new(writer).unwrap()));
        let note = |node| {
            Notification::new(NotificationKind::InvalidateNode { node: NodeId(node), offset: 0, length: 0 }).0
        };
        notifier.enqueue(note(1));
        while notifier.inner.state.lock().idle == 0 {
            thread::yield_now();
        }
        // Push before the threads run.
        let mut state = notifier.inner.state.lock();
        for node in [2, 3] {
            assert!(state.push(note(node), Vec::new()));
            notifier.inner.wake_or_start(&mut state);
        }
        assert_eq!(state.threads, 2, "one thread per node");
    }
}
