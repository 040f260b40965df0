//! [`Caches`]: control of the kernel's caches, for handlers and for everyone else who holds the session.

use std::ops::Range;
use std::sync::Arc;

use super::Shared;
use super::task::Task;
use crate::cache::{Completion, Invalidated, MAX_QUEUED_NOTIFICATIONS, Notification, NotificationKind};
use crate::id::{NodeId, PollHandle};

/// The caching mode of a file's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// In the mode that the reply to each open selected.
    Cached,
    /// New opens use direct I/O. Existing opens keep their mode, and the pages that they bring into the cache are dropped again
    /// after each request.
    Uncached,
}

/// A handle on the kernel's caches.
///
/// Notifications of one node are sent in order. Those of different nodes are not ordered among each other, so that one busy
/// directory does not delay the others. A notification that is queued already is not queued twice. A queue that exceeds
/// [`MAX_QUEUED_NOTIFICATIONS`](Self::MAX_QUEUED_NOTIFICATIONS) is collapsed into "expire every name" and one invalidation per node.
///
/// Invalidating something that the kernel had not cached succeeds.
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
    /// Maximum number of queued notifications of single names; beyond it, all names are expired at once.
    pub const MAX_QUEUED_NOTIFICATIONS: usize = MAX_QUEUED_NOTIFICATIONS;

    pub(crate) fn new(session: Arc<Shared>) -> Self {
        Self { session }
    }

    fn send(&self, what: NotificationKind) -> Completion {
        self.session.listener.notify(&what);
        let (note, completion) = Notification::new(what);
        match Task::current() {
            Some(task) if task.belongs_to(&self.session) => task.defer(note),
            _ => self.session.notifier.enqueue(note),
        }
        completion
    }

    /// Drops a name: the next use of it is a lookup. Detaches mounts below it.
    ///
    /// For an open directory this takes the directory's lock, which a running create or rename holds.
    pub fn invalidate_entry(&self, parent: NodeId, name: &[u8]) -> Completion {
        self.send(NotificationKind::InvalidateEntry { parent, name: name.into() })
    }

    /// Expires a name: it is looked up at its next use, and until then stays attached where it is in use (open, mounted upon).
    /// Before Linux 6.2 this is `invalidate_entry`.
    ///
    /// A lookup that is in flight at that moment may make the old name valid again. Where the name was looked up within the last
    /// 16 seconds, the expiry is therefore repeated four times within about a second; the completion is that of the first one.
    /// Use `invalidate_entry`, which no reply undoes, for a name that must not be visible for that long.
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> Completion {
        self.send(NotificationKind::ExpireEntry { parent, name: name.into(), again: 0 })
    }

    /// Drops a name that was deleted, as after `unlink`. Watchers of the object itself are notified (IN_DELETE_SELF); watchers of
    /// the directory are not, by no kernel since Linux 5.3. A name that no longer refers to `child`, or that is mounted upon,
    /// stays.
    pub fn delete_entry(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Completion {
        self.send(NotificationKind::DeleteEntry { parent, child, name: name.into() })
    }

    /// Drops attributes, and with a range also pages (dirty ones are written back first). An open range extends to the end of the
    /// file.
    ///
    /// With the write-back cache, size and mtime stay: the kernel owns them.
    pub fn invalidate_node(&self, node: NodeId, pages: Option<Range<u64>>) -> Completion {
        let (offset, length) = match pages {
            None => (-1, 0),
            Some(range) => (clamp(range.start), clamp(range.end.saturating_sub(range.start))),
        };
        self.send(NotificationKind::InvalidateNode { node, offset, length })
    }

    /// Drops attributes and all pages of a node.
    pub fn invalidate_node_whole(&self, node: NodeId) -> Completion {
        self.invalidate_node(node, Some(0..0))
    }

    /// Expires every name at once. A mount below a name is detached at the next lookup of that name, as with `invalidate_entry`.
    ///
    /// # Errors
    /// The completion returns ENOSYS before protocol 7.44.
    pub fn invalidate_all(&self) -> Completion {
        self.send(NotificationKind::ExpireAll)
    }

    /// Returns the completion of all invalidations of a file that are queued now, by any thread; `None`: there are none.
    /// A handler that answers an open with a version of the file awaits it, so that the open does not show an older one; as for
    /// every completion, the waiting itself must happen outside of the handler. Those that the handler itself requested are then
    /// sent before its reply.
    ///
    /// Only for handlers that block no operation of the kernel on the file: OPEN and RELEASE.
    pub fn settled(&self, node: NodeId) -> Option<Completion> {
        if let Some(task) = Task::current().filter(|task| task.belongs_to(&self.session)) {
            task.invalidations_of(node).into_iter().for_each(|note| self.session.notifier.enqueue(note));
        }
        self.session.notifier.settled(node)
    }

    /// Stores bytes in the page cache, extending the file where they reach beyond its end.
    ///
    /// # Errors
    /// The completion returns ENOENT where the kernel does not know the node, NOBUFS where the queue is full.
    pub fn store(&self, node: NodeId, offset: u64, data: Vec<u8>) -> Completion {
        self.send(NotificationKind::Store { node, offset, data })
    }

    /// Reads bytes from the page cache, from `offset` on: those that are cached and up to date.
    ///
    /// # Errors
    /// The completion returns ENOENT where the kernel does not know the node, NOBUFS where the queue is full.
    pub fn retrieve(&self, node: NodeId, offset: u64, size: u32) -> Completion<Vec<u8>> {
        let (note, completion) = Notification::retrieve(node, offset, size);
        match Task::current() {
            Some(task) if task.belongs_to(&self.session) => task.defer(note),
            _ => self.session.notifier.enqueue(note),
        }
        completion
    }

    /// Asks the kernel to drop the inodes of these nodes where they are unused.
    ///
    /// # Errors
    /// The completion returns EINVAL before Linux 6.18.
    pub fn prune(&self, nodes: &[NodeId]) -> Completion {
        self.send(NotificationKind::Prune { nodes: nodes.iter().map(|node| node.0).collect() })
    }

    /// Wakes the processes that poll `handle`.
    pub fn poll_ready(&self, handle: PollHandle) -> Completion {
        self.send(NotificationKind::PollReady { handle: handle.0 })
    }

    /// Asks the kernel to resend all requests that were read but not answered.
    pub fn resend(&self) -> Completion {
        self.send(NotificationKind::Resend)
    }

    /// Writes back the dirty pages of a file without dropping them. The kernel has no notification for this: the session opens
    /// the file through its own mount, so the server sees an additional `open` and `release`.
    ///
    /// # Errors
    /// The completion returns ESTALE where the kernel does not know the node, NOTCONN where the mount cannot be reached, and
    /// errors of the writes.
    pub fn write_out(&self, node: NodeId, range: Range<u64>) -> Completion {
        let length = range.end.saturating_sub(range.start);
        self.send(NotificationKind::WriteOut { node, offset: range.start, length })
    }

    /// Switches a file between cached and uncached. Completes once no page of it is in the cache.
    ///
    /// A file whose data is passed through has no pages of its own and is not affected.
    pub fn set_caching(&self, node: NodeId, caching: Caching) -> Completion {
        self.session.modes.set_uncached(node, caching == Caching::Uncached);
        self.invalidate_node_whole(node)
    }

    /// Registers a listener that is called for every invalidation, immediately and before the kernel: for a component that
    /// replies instead of the server. The thread that requests the notification calls it, so it must not block. A session has one
    /// listener, the first.
    pub fn listen(&self, listener: impl Fn(Invalidated<'_>) + Send + Sync + 'static) {
        self.session.listener.set(Box::new(listener));
    }

    /// Registers a function that reports, from the server's lookup counts, whether the kernel was given a node and has not
    /// forgotten it since. If the kernel does not know such a node, the reply that introduces it is still in flight, with
    /// attributes that may be outdated: its invalidation is repeated until the kernel knows the node or the count drops to zero.
    ///
    /// For no invalidation to be missed, a reply must count a node before it reads its attributes, or read them again if they
    /// changed in between. A session has one such function, the first.
    pub fn set_is_known(&self, is_known: impl Fn(NodeId) -> bool + Send + Sync + 'static) {
        self.session.notifier.set_is_known(Box::new(is_known));
    }

    /// Returns the number of queued notifications.
    pub fn queued(&self) -> usize {
        self.session.notifier.queued()
    }
}

fn clamp(bytes: u64) -> i64 {
    bytes.min(i64::MAX as u64) as i64
}
