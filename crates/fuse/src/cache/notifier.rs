//! The queue of notifications and the threads that send them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use shunt_fuse_abi::{ExpireFlags, notify};

use super::completion::{Completer, Completion};
use super::delayed_expiry::Later;
use super::inflight_names::Answers;
use super::notification::Waiter;
use super::write_out::Mountpoint;
use super::{MAX_QUEUED, Notification, What, settle};
use crate::id::NodeId;
use crate::transport::device::Device;

/// Threads that send. Each can be stuck in the kernel on one directory's lock.
const MAX_THREADS: usize = 16;

#[derive(Debug, Default)]
struct NodeQueue {
    /// Each with the generation it belongs to.
    notes: VecDeque<(u64, Notification)>,
    /// Waiters of what is queued and not yet being sent, merged: an equal notification joins them.
    queued: HashMap<(u64, What), Vec<Waiter>>,
    /// Goes up with each notification that is no repeat of another. Across one nothing is merged: an invalidation
    /// asked for after a store must be sent after it.
    generation: u64,
    /// A thread is sending for this node now.
    busy: bool,
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<NodeId, NodeQueue>,
    ready: VecDeque<NodeId>,
    later: Later,
    queued: usize,
    /// Room is not looked for again before the queue is this long: there was none to be found.
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

/// Ids of retrieves. Over a ring the kernel finds an answered request by its id, and the data of a retrieve is a
/// request with this one: no id that the kernel gives out itself, which count from zero, and even, for odd ones are
/// interrupts.
const FIRST_RETRIEVE: u64 = 1 << 62;

/// Which nodes the kernel was told of.
type Told = Box<dyn Fn(NodeId) -> bool + Send + Sync>;

/// An answer that was written is taken in by the process that waits for it. That is soon, but for one that is stopped: how often
/// it is looked whether it was, and how long after the first time; each pause is twice as long as the one before.
const LOOKS: u32 = 12;
const LOOK: Duration = Duration::from_millis(1);

struct Inner {
    state: Mutex<State>,
    work: Condvar,
    device: Arc<Device>,
    expires_names: AtomicBool,
    can_expire_all: AtomicBool,
    retrieves: Mutex<HashMap<u64, Completer<Vec<u8>>>>,
    next_retrieve: AtomicU64,
    mountpoint: OnceLock<Mountpoint>,
    told: OnceLock<Told>,
    answers: Answers,
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
                next_retrieve: AtomicU64::new(FIRST_RETRIEVE),
                mountpoint: OnceLock::new(),
                told: OnceLock::new(),
                answers: Answers::default(),
                overflows: AtomicU64::new(0),
            }),
        }
    }

    /// The kernel knows EXPIRE_ONLY.
    pub(crate) fn set_expires_names(&self, on: bool) {
        self.inner.expires_names.store(on, Ordering::Relaxed);
    }

    /// The kernel knows INC_EPOCH. Otherwise names must not be given up for it.
    pub(crate) fn set_expires_all(&self, on: bool) {
        self.inner.can_expire_all.store(on, Ordering::Relaxed);
    }

    pub(crate) fn set_mountpoint(&self, mountpoint: Mountpoint) {
        self.inner.mountpoint.set(mountpoint).ok();
    }

    pub(crate) fn set_told(&self, told: Told) {
        self.inner.told.set(told).ok();
    }

    /// A name is being answered.
    pub(crate) fn answers(&self, parent: NodeId, name: &[u8]) {
        self.inner.answers.note(parent, name);
    }

    pub(crate) fn queued(&self) -> usize {
        self.inner.state.lock().queued
    }

    /// How often the queue overflowed into "expire every name".
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
        if state.queued >= MAX_QUEUED.max(state.search_from) {
            self.inner.make_room(&mut state);
        }
        // What cannot be merged is refused. What can grows the queue to one entry per node or name at most.
        if state.queued >= MAX_QUEUED && !note.what.is_idempotent() {
            drop(state);
            note.waiter.complete(Err(Errno::NOBUFS));
            return;
        }
        if state.push(note, Vec::new()) {
            self.inner.wake_or_start(&mut state);
        }
    }

    /// The end of all that waits for a node now; `None`: nothing does.
    pub(crate) fn settled(&self, node: NodeId) -> Option<Completion> {
        let mut state = self.inner.state.lock();
        if state.closed || !state.nodes.contains_key(&node) {
            return None;
        }
        let (turn, completion) = Notification::new(What::Turn { node });
        // Whoever sends for the node now comes to it.
        state.push(turn, Vec::new());
        Some(completion)
    }

    /// Data that the kernel sends back for a retrieve.
    pub(crate) fn retrieved(&self, unique: u64, data: &[u8]) {
        if let Some(completer) = self.inner.retrieves.lock().remove(&unique) {
            completer.complete(Ok(data.to_vec()));
        }
    }

    /// The connection is gone: nothing more is sent, and nobody waits for ever.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state.lock();
        state.closed = true;
        state.later.clear();
        let waiters: Vec<Waiter> = state.drain(|_| true);
        self.inner.work.notify_all();
        drop(state);
        for waiter in waiters {
            waiter.complete(Err(Errno::NOTCONN));
        }
        for (_, completer) in self.inner.retrieves.lock().drain() {
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
    /// Queues, and with it those who wait for the same; `false` where an equal one waits already.
    fn push(&mut self, note: Notification, joined: Vec<Waiter>) -> bool {
        let id = note.what.node();
        let queue = self.nodes.entry(id).or_default();
        if note.what.is_idempotent() {
            let key = (queue.generation, note.what.clone());
            if let Some(waiters) = queue.queued.get_mut(&key) {
                waiters.push(note.waiter);
                waiters.extend(joined);
                // Completions are mostly dropped at once: what nobody awaits must not pile up here.
                if waiters.len() >= 64 && waiters.len().is_power_of_two() {
                    waiters.retain(Waiter::is_awaited);
                }
                return false;
            }
            queue.queued.insert(key, joined);
        } else {
            queue.generation += 1;
        }
        queue.notes.push_back((queue.generation, note));
        self.queued += 1;
        if !queue.busy && queue.notes.len() == 1 {
            self.ready.push_back(id);
        }
        true
    }

    /// Queues what waited for its time.
    fn bring_due(&mut self) {
        if self.later.due().is_some() {
            let now = Instant::now();
            while let Some(what) = self.later.take(now) {
                self.push(Notification::new(what).0, Vec::new());
            }
        }
    }

    /// Takes the next notification of a node nobody sends for.
    fn take(&mut self) -> Option<(NodeId, Notification, Vec<Waiter>)> {
        while let Some(id) = self.ready.pop_front() {
            let Some(queue) = self.nodes.get_mut(&id) else { continue };
            // Listed twice, as a queue is that was drained and filled again: `finished` lists it once more.
            if queue.busy {
                continue;
            }
            let Some((generation, note)) = queue.notes.pop_front() else { continue };
            let joined = queue.queued.remove(&(generation, note.what.clone())).unwrap_or_default();
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
        if queue.notes.is_empty() {
            self.nodes.remove(&id);
        } else {
            self.ready.push_back(id);
        }
    }

    /// Removes what matches, and gives those who still wait for it.
    fn drain(&mut self, matches: impl Fn(&What) -> bool) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        for queue in self.nodes.values_mut() {
            self.queued -= queue.drain(&matches, &mut waiters);
        }
        self.nodes.retain(|_, queue| queue.busy || !queue.notes.is_empty());
        let nodes = &self.nodes;
        self.ready.retain(|id| nodes.get(id).is_some_and(|queue| !queue.notes.is_empty()));
        waiters.retain(Waiter::is_awaited);
        waiters
    }

    /// Where several ranges of a node wait, puts one invalidation of the whole in their place.
    fn merge_ranges(&mut self) {
        let is_range = |what: &What| matches!(what, What::InvalidateNode { .. });
        // Who waits for some of them waits for all of them then.
        let goes = |what: &What| is_range(what) || matches!(what, What::Turn { .. });
        let mut merged = Vec::new();
        for (id, queue) in &mut self.nodes {
            if queue.notes.iter().filter(|(_, note)| is_range(&note.what)).nth(1).is_some() {
                let mut waiters = Vec::new();
                self.queued -= queue.drain(goes, &mut waiters);
                merged.push((*id, waiters));
            }
        }
        for (node, waiters) in merged {
            self.push(Notification::new(What::InvalidateNode { node, offset: 0, length: 0 }).0, waiters);
        }
    }
}

impl NodeQueue {
    /// Removes what matches; tells how many.
    fn drain(&mut self, matches: impl Fn(&What) -> bool, waiters: &mut Vec<Waiter>) -> usize {
        let before = self.notes.len();
        for (generation, note) in std::mem::take(&mut self.notes) {
            if matches(&note.what) {
                waiters.extend(self.queued.remove(&(generation, note.what)).unwrap_or_default());
                waiters.push(note.waiter);
            } else {
                self.notes.push_back((generation, note));
            }
        }
        before - self.notes.len()
    }
}

impl Inner {
    /// The queue is full. Names become one "expire every name"; the ranges of a node become one invalidation of the
    /// whole.
    fn make_room(&self, state: &mut State) {
        // An older kernel: names stay.
        if self.can_expire_all.load(Ordering::Relaxed) {
            let before = state.queued;
            let waiters = state.drain(What::is_covered_by_expiry);
            let names = before - state.queued;
            if names > 0 {
                self.overflows.fetch_add(1, Ordering::Relaxed);
                tracing::info!(names, "too many notifications at once: every name is expired instead");
                if state.push(Notification::new(What::ExpireAll).0, waiters) {
                    self.work.notify_one();
                }
            }
        }
        if state.queued >= MAX_QUEUED {
            state.merge_ranges();
        }
        state.search_from = state.queued + MAX_QUEUED / 4;
    }

    /// One thread for each node that is ready: one that was woken a moment ago still counts as idle, and may be stuck
    /// with the first node for long.
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
            state.bring_due();
            let Some((id, note, joined)) = state.take() else {
                state.idle += 1;
                match state.later.due() {
                    Some(due) => drop(self.work.wait_until(&mut state, due)),
                    None => self.work.wait(&mut state),
                }
                state.idle -= 1;
                continue;
            };
            drop(state);
            let mut result = self.deliver(&note);
            if let What::InvalidateNode { node, .. } = &note.what {
                result = self.repeat(*node, &note, result);
            }
            let again = self.wants_another(&note.what, result);
            if note.what.is_idempotent() && !matches!(note.what, What::WriteOut { .. }) {
                result = settle(result);
            }
            note.waiter.complete(result);
            joined.iter().for_each(|waiter| waiter.complete(result));
            state = self.state.lock();
            state.finished(id);
            if again {
                self.send_later(&mut state, &note.what);
            }
        }
        state.threads -= 1;
    }

    /// Whether a name that was expired may be confirmed by an answer on its way to the kernel. One that the kernel does not have
    /// is looked up under the lock of its directory, which expiring waits for.
    fn wants_another(&self, what: &What, result: Result<(), Errno>) -> bool {
        let What::ExpireEntry { parent, name, again } = what else { return false };
        result.is_ok()
            && self.expires_names.load(Ordering::Relaxed)
            && (*again > 0 || self.answers.may_be_on_its_way(*parent, name))
    }

    fn send_later(self: &Arc<Self>, state: &mut State, what: &What) {
        let What::ExpireEntry { parent, name, again } = what else { return };
        if state.closed {
            return;
        }
        if state.later.len() >= MAX_QUEUED && self.can_expire_all.load(Ordering::Relaxed) {
            // Which no answer undoes.
            state.later.clear();
            state.push(Notification::new(What::ExpireAll).0, Vec::new());
            return;
        }
        let due = state.later.due();
        state.later.put(*parent, name, *again, Instant::now());
        // Who is idle may not know yet when to look, and this thread may be stuck with the next.
        if state.idle == 0 || state.later.due() != due {
            self.wake_or_start_for(state, 1);
        }
    }

    /// The kernel may be about to hear of a node that it did not know.
    fn repeat(&self, node: NodeId, note: &Notification, mut result: Result<(), Errno>) -> Result<(), Errno> {
        let Some(told) = self.told.get() else { return result };
        let mut pause = LOOK;
        for _ in 0..LOOKS {
            if result != Err(Errno::NOENT) || !told(node) {
                return result;
            }
            thread::sleep(pause);
            pause *= 2;
            result = self.deliver(note);
        }
        tracing::debug!("the kernel was told of node {} and does not know it", node.0);
        result
    }

    fn deliver(&self, note: &Notification) -> Result<(), Errno> {
        let send = |notification: notify::Notification<'_>| self.device.notify(&notification);
        match &note.what {
            What::InvalidateEntry { parent, name } => {
                send(notify::inval_entry(parent.0, name, ExpireFlags::empty()))
            }
            What::ExpireEntry { parent, name, .. } => {
                let flags = match self.expires_names.load(Ordering::Relaxed) {
                    true => ExpireFlags::EXPIRE_ONLY,
                    false => ExpireFlags::empty(),
                };
                send(notify::inval_entry(parent.0, name, flags))
            }
            What::DeleteEntry { parent, child, name } => send(notify::delete(parent.0, child.0, name)),
            What::InvalidateNode { node, offset, length } => {
                send(notify::inval_inode(node.0, *offset, *length))
            }
            What::ExpireAll => {
                let result = send(notify::inc_epoch());
                if result == Err(Errno::INVAL) {
                    self.can_expire_all.store(false, Ordering::Relaxed);
                    return Err(Errno::NOSYS);
                }
                result
            }
            What::Store { node, offset, data } => send(notify::store(node.0, *offset, data)),
            What::Retrieve { node, offset, size } => {
                let unique = self.next_retrieve.fetch_add(2, Ordering::Relaxed);
                let Waiter::Retrieved(completer) = &note.waiter else { return Err(Errno::INVAL) };
                self.retrieves.lock().insert(unique, completer.clone());
                let sent = send(notify::retrieve(unique, node.0, *offset, *size));
                if let Err(errno) = sent {
                    self.retrieves.lock().remove(&unique);
                    // Not "nothing to do": the caller wants data.
                    completer.complete(Err(errno));
                }
                sent
            }
            What::Turn { .. } => Ok(()),
            What::Prune { nodes } => send(notify::prune(nodes)),
            What::PollReady { handle } => send(notify::poll(*handle)),
            What::Resend => send(notify::resend()),
            What::WriteOut { node, offset, length } => match self.mountpoint.get() {
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
        let note =
            |node| Notification::new(What::InvalidateNode { node: NodeId(node), offset: 0, length: 0 }).0;
        notifier.enqueue(note(1));
        while notifier.inner.state.lock().idle == 0 {
            thread::yield_now();
        }
        // Before it runs.
        let mut state = notifier.inner.state.lock();
        for node in [2, 3] {
            assert!(state.push(note(node), Vec::new()));
            notifier.inner.wake_or_start(&mut state);
        }
        assert_eq!(state.threads, 2, "one for each node");
    }
}
