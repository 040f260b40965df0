//! A listener for invalidations: receives every invalidation before the kernel does, for a component that replies in the server's
//! place and caches as the kernel does.

use std::fmt;
use std::sync::OnceLock;

use super::What;
use crate::id::NodeId;

/// The subject of an invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale<'a> {
    /// A name of a directory.
    Name(NodeId, &'a [u8]),
    /// An inode.
    Node(NodeId),
    /// All names and inodes.
    Everything,
}

impl<'a> Stale<'a> {
    /// Returns the subject of a notification, or `None` where it invalidates nothing.
    fn of(what: &'a What) -> Option<Self> {
        match what {
            What::InvalidateEntry { parent, name }
            | What::ExpireEntry { parent, name, .. }
            | What::DeleteEntry { parent, name, .. } => Some(Self::Name(*parent, name)),
            What::InvalidateNode { node, .. } | What::Store { node, .. } => Some(Self::Node(*node)),
            What::ExpireAll => Some(Self::Everything),
            What::Retrieve { .. }
            | What::Prune { .. }
            | What::PollReady { .. }
            | What::Resend
            | What::WriteOut { .. }
            | What::Turn { .. } => None,
        }
    }
}

type Hear = Box<dyn Fn(Stale<'_>) + Send + Sync>;

/// The listener of a session, if it has one.
#[derive(Default)]
pub(crate) struct Listener(OnceLock<Hear>);

impl Listener {
    pub(crate) fn set(&self, hear: Hear) {
        self.0.set(hear).ok();
    }

    pub(crate) fn hear(&self, what: &What) {
        if let Some(hear) = self.0.get()
            && let Some(stale) = Stale::of(what)
        {
            hear(stale);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.0.get().is_some()).finish()
    }
}
