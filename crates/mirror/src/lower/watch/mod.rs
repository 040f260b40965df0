//! Changes that others make in the source, by node.

mod dispatch;
mod event;
mod fanotify;
mod inotify;
mod stamps;
mod validity;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use shunt_fuse::NodeId;

pub use fanotify::Fanotify;
use inotify::Inotify;
pub use stamps::{Moment, Stamps};

/// Something that the other side may hold changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// A name came, went, or stands for something else.
    Name(NodeId, Box<[u8]>),
    /// Attributes of an inode; with `true` also what it contains.
    Inode(NodeId, bool),
    /// Events were lost.
    Everything,
}

#[derive(Debug)]
enum Group {
    Fanotify(Fanotify),
    Inotify(Inotify),
}

/// Hears of changes, and keeps what answers must know of them.
#[derive(Debug)]
pub struct Watch {
    group: Group,
    stamps: Stamps,
    events: AtomicU64,
    overflows: AtomicU64,
}

impl Watch {
    fn over(group: Group) -> Self {
        Self { group, stamps: Stamps::default(), events: AtomicU64::new(0), overflows: AtomicU64::new(0) }
    }

    /// A watch over whole file systems.
    ///
    /// # Errors
    /// As [`Fanotify::new`].
    pub fn fanotify() -> Result<Self, Errno> {
        Ok(Self::over(Group::Fanotify(Fanotify::new()?)))
    }

    /// A watch over the directories that the other side looks into, at most so many.
    ///
    /// # Errors
    /// EMFILE at the limit of `fs.inotify.max_user_instances`; ENOSYS.
    pub fn inotify(most: Option<usize>) -> Result<Self, Errno> {
        Ok(Self::over(Group::Inotify(Inotify::new(most)?)))
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &'static str {
        match self.group {
            Group::Fanotify(_) => "fanotify",
            Group::Inotify(_) => "inotify",
        }
    }

    /// The listener to whole file systems, if it is one.
    pub(super) fn file_systems(&self) -> Option<&Fanotify> {
        match &self.group {
            Group::Fanotify(group) => Some(group),
            Group::Inotify(_) => None,
        }
    }

    /// The listener to directories, if it is one.
    fn directories(&self) -> Option<&Inotify> {
        match &self.group {
            Group::Fanotify(_) => None,
            Group::Inotify(group) => Some(group),
        }
    }

    /// A directory is no longer known, unless it is by now.
    pub(super) fn forget(&self, dir: NodeId, is_gone: impl FnOnce() -> bool) {
        if let Some(inotify) = self.directories() {
            inotify.unwatch(dir, is_gone);
        }
    }

    /// Answers that are on their way are not to be believed for long.
    pub(super) fn stamp_all(&self) {
        self.stamps.stamp_all();
    }

    /// Events were lost: anything may have happened.
    fn lost(&self, tell: &mut impl FnMut(Change)) {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        self.stamp_all();
        tell(Change::Everything);
    }

    /// Events of others so far, those of no interest included.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// How often events were lost.
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
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
