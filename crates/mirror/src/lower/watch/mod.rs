//! Detection of changes that others make in the source, by fanotify or inotify. Events are translated to nodes and
//! stamped, so that replies read before an event can be recognised.

mod dispatch;
mod event;
mod fanotify;
mod inotify;
mod overflow;
mod stamps;
mod validity;
mod watched_mount;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use shunt_fuse::NodeId;

pub(crate) use fanotify::Fanotify;
use inotify::Inotify;
pub(crate) use stamps::{Moment, Stamps};
pub(super) use watched_mount::WatchedMount;

/// Checks whether whole file systems can be watched, by fanotify with file handles.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; other errors of fanotify_init(2).
pub fn check_fanotify() -> Result<(), Errno> {
    Fanotify::new().map(drop)
}

/// A change that affects the client's caches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// A name was added, removed, or now refers to another inode.
    Name(NodeId, Box<[u8]>),
    /// Attributes of an inode changed; with `true` also its contents.
    Inode(NodeId, bool),
    /// Events were lost, so anything may have changed.
    Everything,
}

#[derive(Debug)]
enum Group {
    Fanotify(Fanotify),
    Inotify(Inotify),
}

/// A source of change events, with the stamps that decide the validity of replies.
#[derive(Debug)]
pub(crate) struct Watch {
    group: Group,
    stamps: Stamps,
    events: AtomicU64,
    overflows: AtomicU64,
}

impl Watch {
    fn over(group: Group) -> Self {
        Self { group, stamps: Stamps::default(), events: AtomicU64::new(0), overflows: AtomicU64::new(0) }
    }

    /// Creates a watch over whole file systems.
    ///
    /// # Errors
    /// The errors of [`Fanotify::new`].
    pub(crate) fn fanotify() -> Result<Self, Errno> {
        Ok(Self::over(Group::Fanotify(Fanotify::new()?)))
    }

    /// Creates a watch over at most `limit` directories that the client uses.
    ///
    /// # Errors
    /// EMFILE at the limit of `fs.inotify.max_user_instances`; ENOSYS.
    pub(crate) fn inotify(limit: Option<usize>) -> Result<Self, Errno> {
        Ok(Self::over(Group::Inotify(Inotify::new(limit)?)))
    }

    /// Name of the kernel interface.
    pub(crate) fn name(&self) -> &'static str {
        match self.group {
            Group::Fanotify(_) => "fanotify",
            Group::Inotify(_) => "inotify",
        }
    }

    /// Returns the fanotify group, if it is one.
    pub(super) fn file_systems(&self) -> Option<&Fanotify> {
        match &self.group {
            Group::Fanotify(group) => Some(group),
            Group::Inotify(_) => None,
        }
    }

    /// Returns the inotify instance, if it is one.
    fn directories(&self) -> Option<&Inotify> {
        match &self.group {
            Group::Fanotify(_) => None,
            Group::Inotify(group) => Some(group),
        }
    }

    /// Stops watching a directory that the client forgot, unless it holds the directory again.
    pub(super) fn forget(&self, dir: NodeId, is_gone: impl FnOnce() -> bool) {
        if let Some(inotify) = self.directories() {
            inotify.unwatch(dir, is_gone);
        }
    }

    /// Limits the validity of all replies in flight.
    pub(super) fn stamp_all(&self) {
        self.stamps.stamp_all();
    }

    /// Number of events of other processes, including irrelevant ones.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.group {
            Group::Fanotify(group) => group.as_fd(),
            Group::Inotify(group) => group.as_fd(),
        }
    }
}
