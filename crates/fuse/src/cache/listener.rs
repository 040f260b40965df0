//! A listener for invalidations: receives every invalidation before the kernel does, for a component that replies in the server's
//! place and caches as the kernel does.

use std::fmt;
use std::sync::OnceLock;

use super::NotificationKind;
use crate::id::NodeId;

/// The subject of an invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalidated<'a> {
    /// A name of a directory.
    Name(NodeId, &'a [u8]),
    /// An inode.
    Node(NodeId),
    /// All names and inodes.
    Everything,
}

impl<'a> Invalidated<'a> {
    /// Returns the subject of a notification, or `None` where it invalidates nothing.
    fn of(what: &'a NotificationKind) -> Option<Self> {
        match what {
            NotificationKind::InvalidateEntry { parent, name }
            | NotificationKind::ExpireEntry { parent, name, .. }
            | NotificationKind::DeleteEntry { parent, name, .. } => Some(Self::Name(*parent, name)),
            NotificationKind::InvalidateNode { node, .. } | NotificationKind::Store { node, .. } => {
                Some(Self::Node(*node))
            }
            NotificationKind::ExpireAll => Some(Self::Everything),
            NotificationKind::Retrieve { .. }
            | NotificationKind::Prune { .. }
            | NotificationKind::PollReady { .. }
            | NotificationKind::Resend
            | NotificationKind::WriteOut { .. }
            | NotificationKind::Barrier { .. } => None,
        }
    }
}

type InvalidationListener = Box<dyn Fn(Invalidated<'_>) + Send + Sync>;

/// The listener of a session, if it has one.
#[derive(Default)]
pub(crate) struct Listener(OnceLock<InvalidationListener>);

impl Listener {
    pub(crate) fn set(&self, listener: InvalidationListener) {
        self.0.set(listener).ok();
    }

    pub(crate) fn notify(&self, what: &NotificationKind) {
        if let Some(notify) = self.0.get() {
            if let Some(stale) = Invalidated::of(what) {
                notify(stale);
            }
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.0.get().is_some()).finish()
    }
}
