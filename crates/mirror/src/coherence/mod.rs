//! `--cache coherent`: changes that others make in the source become visible in the mount within [`COHERENCE_BOUND`],
//! although the kernel caches names and attributes for longer.
//!
//! # Cache lifetimes
//!
//! | reply | cached for | until |
//! |---|---|---|
//! | names, including negative entries | without expiry | an event names them |
//! | attributes of directories and symbolic links | [`WATCHED_ATTR_TTL`] | an event names the inode |
//! | attributes of all other inodes | [`UNWATCHED_TTL`] | their TTL expires |
//! | pages of files without passthrough | like their attributes | size or mtime changed, or a writer closed the file |
//!
//! Events come from one `fanotify(7)` mark on the file system of each mount below the source: creations, deletions,
//! moves and attribute changes. None of these is on the path of a write. Writes change the size and times of a regular
//! file; to see them would need FAN_MODIFY, which halves the rate of small writes for every process on the file system,
//! inside the mount or not, and does not report writes through a mapping. So these attributes are cached no longer than
//! the coherence bound allows. The names of the files, which most requests are about, are cached without expiry. Data of
//! passthrough files needs no invalidation: both sides share the page cache of the lower file.
//!
//! # Our own changes
//!
//! The kernel reports this daemon's own operations as well. The mount's kernel side knows them from the replies, so
//! events of this process are dropped unread. (Except where the source shows one file system through two mounts: then
//! the kernel has two inodes for one, and the reply updated only one of them.) Applications write to passthrough files
//! under their own pid, but writes cause no events.
//!
//! # Replies in flight
//!
//! An event that arrives after the daemon read the source and before the kernel processed the reply would be lost: the
//! kernel invalidates its cache, and then inserts the older reply. Three rules prevent that.
//!
//! 1. A request handler takes the [`Moment`](crate::lower::watch::Moment) first, reads the source, registers the node, and finally checks whether
//!    events arrived for the name or the inode since. If so, the reply is cached for [`UNWATCHED_TTL`] only. The event
//!    handler stamps an event first and looks up nodes afterwards, so one of the two sees the other
//!    ([`Stamps`](crate::lower::watch::Stamps)).
//! 2. Attributes of an inode that the kernel holds carry a version: the kernel ignores replies to requests that are
//!    older than an invalidation. The lock of a directory serialises invalidations of its names with lookups that add a
//!    name.
//! 3. One window remains: a reply that was right when it was sent, on its way to the kernel's caches, for an inode not
//!    known before or for a revalidated name. No rule here covers it, so every invalidation is
//!    [repeated](repeat_invalidation::REPEATS) after such replies have arrived.
//!
//! # Without privileges
//!
//! If no file system may be marked, `inotify(7)` watches the directories that the kernel looks into, up to a limit.
//! Names in other directories are cached for one second, attributes of all but watched directories for
//! [`UNWATCHED_TTL`]. The daemon's own changes cannot be told apart from others' there.
//!
//! # Lost events
//!
//! The kernel's event queue is bounded (`fs.fanotify.max_queued_events`). When it overflows, one notification expires
//! all names, and one notification per inode invalidates the inodes. A kernel that cannot expire all names at once
//! (before protocol 7.44) caches names for one second at most.

mod caching;
mod repeat_invalidation;
mod watcher;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::{Expiry, Handle};

use crate::lower::Lower;
pub(crate) use caching::open;
pub use caching::{Caching, EventCounters};
use watcher::Watcher;

/// Upper bound on the delay until a change made by others is visible.
pub const COHERENCE_BOUND: Duration = Duration::from_millis(100);

/// Cache lifetime of attributes that may change without an event: the coherence bound, less the time of the reply and
/// the kernel's rounding.
pub(crate) const UNWATCHED_TTL: Expiry = Expiry::after(Duration::from_millis(75));

/// Cache lifetime of attributes whose changes cause events. It is finite because a few changes cause none, such as
/// flags set on a directory by `chattr(1)`.
pub(crate) const WATCHED_ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(60));

/// Invalidates the kernel's caches when the source changes.
#[derive(Debug, Default)]
pub(crate) struct Coherence {
    watcher: Mutex<Option<Watcher>>,
    /// The kernel can expire all names with one notification.
    expires_all: AtomicBool,
}

impl Coherence {
    /// Starts the watcher when a session begins.
    ///
    /// # Errors
    /// No thread or descriptor is available.
    pub(crate) fn start(&self, lower: &Arc<Lower>, session: &Handle) -> io::Result<()> {
        let expires_all = session.negotiated().minor >= shunt_fuse::MINOR_EXPIRE_ALL;
        self.expires_all.store(expires_all, Ordering::Relaxed);
        if session.passthrough().is_none() {
            // The kernel caches pages: two writes within one clock tick leave the same mtime.
            lower.watch_writers();
        }
        *self.watcher.lock() = Some(Watcher::start(lower.clone(), session.caches().clone())?);
        Ok(())
    }

    /// Reports whether the kernel can expire all names with one notification.
    pub(crate) fn expires_all(&self) -> bool {
        self.expires_all.load(Ordering::Relaxed)
    }

    /// Stops the watcher when the session ends.
    pub(crate) fn end(&self) {
        let watcher = self.watcher.lock().take();
        // This waits for its thread.
        drop(watcher);
    }
}
