//! [`Caches`]: control of the kernel's caches, for handlers and for everyone else who holds the session.

use std::ops::Range;
use std::sync::Arc;

use super::Shared;
use super::task::Task;
use crate::cache::{Completion, MAX_QUEUED, Notification, Stale, What};
use crate::id::{NodeId, PollHandle};

/// Whether file data may stay in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// As each open was answered.
    Cached,
    /// New opens are served directly. Files open already keep their descriptors, and what they bring into the cache is
    /// dropped again after each request.
    Uncached,
}

/// A handle on the kernel's caches.
///
/// Notifications of one node are sent in the order in which they were asked for; those of different nodes overtake each
/// other, so that one busy directory holds up nobody else. What is queued already is not queued twice. A queue that
/// outgrows [`MAX_QUEUED`](Self::MAX_QUEUED) turns into "expire every name" and one invalidation per node.
///
/// What the kernel did not have cached counts as done.
#[derive(Clone)]
pub struct Caches {
    session: Arc<Shared>,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").field("queued", &self.queued()).finish()
    }
}

impl Caches {
    /// Notifications of single names that may wait; beyond, all names are expired at once.
    pub const MAX_QUEUED: usize = MAX_QUEUED;

    pub(crate) fn new(session: Arc<Shared>) -> Self {
        Self { session }
    }

    fn send(&self, what: What) -> Completion {
        self.session.listener.hear(&what);
        let (note, completion) = Notification::new(what);
        match Task::current() {
            Some(task) if task.belongs_to(&self.session) => task.defer(note),
            _ => self.session.notifier.enqueue(note),
        }
        completion
    }

    /// Drops a name: the next use of it is a lookup. Detaches what is mounted below it.
    ///
    /// In an open directory this takes the directory's lock, which a running create or rename holds.
    pub fn invalidate_entry(&self, parent: NodeId, name: &[u8]) -> Completion {
        self.send(What::InvalidateEntry { parent, name: name.into() })
    }

    /// As `invalidate_entry`, but what is in use (open, mounted upon) stays attached until it is looked up again.
    /// Before Linux 6.2 the same as `invalidate_entry`.
    ///
    /// A lookup that is being answered just then may confirm the name as it was. So this is repeated, four times within about
    /// a second, for a name that was looked up in the last 16; the completion is that of the first. What must not be shown for
    /// that long wants `invalidate_entry`, which no answer undoes.
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> Completion {
        self.send(What::ExpireEntry { parent, name: name.into(), again: 0 })
    }

    /// A name is gone for good, as after `unlink`. Who watches the object itself is told (IN_DELETE_SELF); who watches
    /// the directory is not, by no kernel since Linux 5.3. A name that no longer stands for `child`, or that is mounted
    /// upon, is left alone.
    pub fn delete_entry(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Completion {
        self.send(What::DeleteEntry { parent, child, name: name.into() })
    }

    /// Drops attributes, and with a range also pages (dirty ones are written first). An open end reaches to the end
    /// of the file.
    ///
    /// With the write-back cache size and mtime stay: the kernel owns them.
    pub fn invalidate_node(&self, node: NodeId, pages: Option<Range<u64>>) -> Completion {
        let (offset, length) = match pages {
            None => (-1, 0),
            Some(range) => (clamp(range.start), clamp(range.end.saturating_sub(range.start))),
        };
        self.send(What::InvalidateNode { node, offset, length })
    }

    /// Drops attributes and all pages of a node.
    pub fn invalidate_node_whole(&self, node: NodeId) -> Completion {
        self.invalidate_node(node, Some(0..0))
    }

    /// Expires every name at once. What is mounted below a name is detached at the next lookup of that name, as by
    /// `invalidate_entry`.
    ///
    /// # Errors
    /// The completion gives ENOSYS before protocol 7.44.
    pub fn invalidate_all(&self) -> Completion {
        self.send(What::ExpireAll)
    }

    /// The end of all invalidations of a file that wait now, whoever asked for them; `None`: none does. A handler that answers
    /// an open with a version of the file waits for it (elsewhere, as for all of them), so that nobody is shown an older one
    /// through it. Those that this handler asked for go before its answer then.
    ///
    /// For handlers that hold up none of what the kernel does with the file: OPEN and RELEASE.
    pub fn settled(&self, node: NodeId) -> Option<Completion> {
        if let Some(task) = Task::current().filter(|task| task.belongs_to(&self.session)) {
            task.invalidations_of(node).into_iter().for_each(|note| self.session.notifier.enqueue(note));
        }
        self.session.notifier.settled(node)
    }

    /// Puts bytes into the page cache, extending the file where they reach beyond its end.
    ///
    /// # Errors
    /// The completion gives ENOENT where the kernel does not know the node, NOBUFS where the queue is full.
    pub fn store(&self, node: NodeId, offset: u64, data: Vec<u8>) -> Completion {
        self.send(What::Store { node, offset, data })
    }

    /// Takes bytes out of the page cache: those that are there and up to date, from `offset` on.
    ///
    /// # Errors
    /// The completion gives ENOENT where the kernel does not know the node, NOBUFS where the queue is full.
    pub fn retrieve(&self, node: NodeId, offset: u64, size: u32) -> Completion<Vec<u8>> {
        let (note, completion) = Notification::retrieve(node, offset, size);
        match Task::current() {
            Some(task) if task.belongs_to(&self.session) => task.defer(note),
            _ => self.session.notifier.enqueue(note),
        }
        completion
    }

    /// Asks the kernel to forget these nodes where nobody uses them.
    ///
    /// # Errors
    /// The completion gives EINVAL before Linux 6.18.
    pub fn prune(&self, nodes: &[NodeId]) -> Completion {
        self.send(What::Prune { nodes: nodes.iter().map(|node| node.0).collect() })
    }

    /// Wakes those who poll.
    pub fn poll_ready(&self, handle: PollHandle) -> Completion {
        self.send(What::PollReady { handle: handle.0 })
    }

    /// Asks for all requests again that were read but not answered.
    pub fn resend(&self) -> Completion {
        self.send(What::Resend)
    }

    /// Writes dirty pages of a file to the server without dropping them. The kernel has no notification for this: the
    /// session opens the file through its own mount, so the server sees an `open` and a `release` more.
    ///
    /// # Errors
    /// The completion gives ESTALE where the kernel does not know the node, NOTCONN where the mount cannot be reached,
    /// and errors of the writes.
    pub fn write_out(&self, node: NodeId, range: Range<u64>) -> Completion {
        let length = range.end.saturating_sub(range.start);
        self.send(What::WriteOut { node, offset: range.start, length })
    }

    /// Switches a file between cached and uncached. Complete once no page of it is in the cache.
    ///
    /// A file whose data is passed through has no pages of its own, and stays as it is.
    pub fn set_caching(&self, node: NodeId, caching: Caching) -> Completion {
        self.session.modes.set_uncached(node, caching == Caching::Uncached);
        self.invalidate_node_whole(node)
    }

    /// Has someone hear of what the kernel is told to forget, at once and before the kernel: for one who answers in its
    /// place. He is called by whoever asks for a notification, and must not wait. A session has one listener, the first.
    pub fn listen(&self, listener: impl Fn(Stale<'_>) + Send + Sync + 'static) {
        self.session.listener.set(Box::new(listener));
    }

    /// Says of which nodes the kernel was told, and has not forgotten them since, by the server's own count. One that the
    /// kernel does not know then is in an answer on its way to it, with attributes that may be old by now: its invalidation is
    /// repeated until the kernel knows it, or was not told of it after all.
    ///
    /// So that none is missed, an answer counts a node first and reads of it then, or once more if it changed in between.
    /// A session asks one, the first.
    pub fn told(&self, told: impl Fn(NodeId) -> bool + Send + Sync + 'static) {
        self.session.notifier.set_told(Box::new(told));
    }

    /// Notifications that wait.
    pub fn queued(&self) -> usize {
        self.session.notifier.queued()
    }
}

fn clamp(bytes: u64) -> i64 {
    bytes.min(i64::MAX as u64) as i64
}
