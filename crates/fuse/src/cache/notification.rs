//! A notification to the kernel, and those who wait for its completion.

use rustix::io::Errno;

use super::completion::{Completer, Completion, completion};
use crate::id::NodeId;

/// The content of a notification. A `Barrier` sends nothing: it completes after everything queued for the node before it. `again`
/// counts the earlier expiries of the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum NotificationKind {
    InvalidateEntry { parent: NodeId, name: Box<[u8]> },
    ExpireEntry { parent: NodeId, name: Box<[u8]>, again: u8 },
    DeleteEntry { parent: NodeId, child: NodeId, name: Box<[u8]> },
    InvalidateNode { node: NodeId, offset: i64, length: i64 },
    ExpireAll,
    Store { node: NodeId, offset: u64, data: Vec<u8> },
    Retrieve { node: NodeId, offset: u64, size: u32 },
    Prune { nodes: Vec<u64> },
    PollReady { handle: u64 },
    Resend,
    WriteOut { node: NodeId, offset: u64, length: u64 },
    Barrier { node: NodeId },
}

impl NotificationKind {
    /// Returns the node in whose queue this is ordered. Node 0 stands for the whole connection.
    pub(crate) fn node(&self) -> NodeId {
        match self {
            Self::InvalidateEntry { parent, .. }
            | Self::ExpireEntry { parent, .. }
            | Self::DeleteEntry { parent, .. } => *parent,
            Self::InvalidateNode { node, .. }
            | Self::Store { node, .. }
            | Self::Retrieve { node, .. }
            | Self::WriteOut { node, .. }
            | Self::Barrier { node } => *node,
            Self::ExpireAll | Self::Prune { .. } | Self::PollReady { .. } | Self::Resend => NodeId(0),
        }
    }

    /// Reports whether sending it twice has the effect of sending it once.
    pub(crate) fn is_idempotent(&self) -> bool {
        !matches!(
            self,
            Self::Store { .. } | Self::Retrieve { .. } | Self::Prune { .. } | Self::Barrier { .. }
        )
    }

    /// Reports whether "expire every name" covers it.
    pub(crate) fn is_covered_by_expiry(&self) -> bool {
        matches!(self, Self::InvalidateEntry { .. } | Self::ExpireEntry { .. } | Self::DeleteEntry { .. })
    }
}

/// The receiver of a notification's completion.
#[derive(Debug, Clone)]
pub(crate) enum Waiter {
    Done(Completer),
    Retrieved(Completer<Vec<u8>>),
}

impl Waiter {
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Done(completer) => completer.is_awaited(),
            Self::Retrieved(completer) => completer.is_awaited(),
        }
    }

    /// Completes the notification. A retrieve that was sent successfully still waits for its data.
    pub(crate) fn complete(&self, result: Result<(), Errno>) {
        match (self, result) {
            (Self::Done(completer), result) => completer.complete(result),
            (Self::Retrieved(completer), Err(errno)) => completer.complete(Err(errno)),
            (Self::Retrieved(_), Ok(())) => {}
        }
    }
}

/// A notification and its waiter.
#[derive(Debug)]
pub(crate) struct Notification {
    pub(crate) kind: NotificationKind,
    pub(crate) waiter: Waiter,
}

impl Notification {
    pub(crate) fn new(what: NotificationKind) -> (Self, Completion) {
        let (completer, completion) = completion();
        (Self { kind: what, waiter: Waiter::Done(completer) }, completion)
    }

    pub(crate) fn retrieve(node: NodeId, offset: u64, size: u32) -> (Self, Completion<Vec<u8>>) {
        let (completer, completion) = completion();
        (
            Self {
                kind: NotificationKind::Retrieve { node, offset, size },
                waiter: Waiter::Retrieved(completer),
            },
            completion,
        )
    }
}
