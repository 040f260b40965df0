//! `--cache coherent`: what others change in the source shows in the mount within [`COHERENCE_BOUND`], with caches that last.
//!
//! # What is believed, and for how long
//!
//! | answer | believed | until |
//! |---|---|---|
//! | names, absent ones too | for ever | an event names them |
//! | attributes of directories and symbolic links | [`ATTRIBUTES`] | an event names the inode |
//! | attributes of all other inodes | [`UNWATCHED_TTL`] | their time is over |
//! | pages of files that are not passed through | as their attributes | size or mtime moved, or a writer closed the file |
//!
//! Events come from one mark of `fanotify(7)` on the file system of each mount below the source: creations, deletions,
//! moves, and changes of attributes. None of these is on the path of a write. What a write changes, size and times of
//! a regular file, would need FAN_MODIFY, which halves the rate of small writes for everybody on the file system, in
//! the mount or not. A write through a mapping is not even told by that. So these attributes are simply not believed
//! for longer than the promise allows; the names that lead to them are, which is most of what is asked. Data of files
//! that are passed through needs nothing: both sides share the pages of the lower file.
//!
//! # Our own changes
//!
//! The kernel tells us of our own operations as well. The mount's kernel knows them from the answers, so events of this
//! process are dropped unread. (Not where the source shows one file system by two mounts: then the kernel has two inodes
//! for one, and the answer told it of one only.) Applications write to passed-through files in their own name, but
//! writes make no events.
//!
//! # Answers on their way
//!
//! An event that comes between our look at the source and the kernel's use of our answer would be lost: the kernel
//! drops what it has, and then puts the older answer in. Three rules prevent that.
//!
//! 1. Whoever answers takes the [`Moment`] first, reads the source, makes the node known, and looks at last whether
//!    events came for the name or the inode since. If so the answer is believed for [`UNWATCHED_TTL`] only. Whoever hears of an
//!    event stamps it first and looks for nodes afterwards, so one of the two sees the other
//!    ([`Stamps`](crate::lower::watch::Stamps)).
//! 2. Attributes of an inode that the kernel holds carry a version: it ignores answers to questions that are older
//!    than an invalidation. A directory's lock keeps invalidations of its names apart from lookups that make a name.
//! 3. What is left is the way of an answer that was right when it was sent to the kernel's tables: of an inode not
//!    known before, or a known name confirmed. No rule of ours reaches there, so whatever is told is told
//!    [again](repeat_invalidation::REPEATS), when such answers have long arrived.
//!
//! # Without privileges
//!
//! Where no file system may be marked, the directories that the kernel looks into are watched by `inotify(7)`, up to a
//! bound. Names in others are believed for a second; attributes of all but watched directories for [`UNWATCHED_TTL`]. Our own
//! changes cannot be told from others' there.
//!
//! # Lost events
//!
//! The kernel's queue of events has an end (`fs.fanotify.max_queued_events`). When it overflows all names are expired
//! by one notification, and each inode by one of its own. A kernel that cannot expire all names at once (before protocol
//! 7.44) is told to believe names for a second at most.

mod caching;
mod repeat_invalidation;
mod watcher;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::{Attributes, Expiry, FileType, Handle, NodeId};

use crate::lower::Component;
use crate::lower::watch::Moment;
use crate::options::UNHEARD;
use crate::{CacheMode, Mirror};
pub(crate) use caching::open;
pub use caching::{Caching, Heard};
use watcher::Watcher;

/// Changes are seen within this time.
pub const COHERENCE_BOUND: Duration = Duration::from_millis(100);

/// How long is believed what may change without an event: the promise, less the time of the answer and the kernel's
/// rounding.
const UNWATCHED_TTL: Expiry = Expiry::after(Duration::from_millis(75));

/// How long attributes are believed whose changes make events. Not for ever: a few changes make none, such as flags set
/// on a directory by `chattr(1)`.
const ATTRIBUTES: Expiry = Expiry::after(Duration::from_secs(60));

/// The first protocol with "expire every name".
const EXPIRES_ALL: u32 = 44;

/// Keeps the kernel's caches in step with the source.
#[derive(Debug, Default)]
pub(crate) struct Coherence {
    watcher: Mutex<Option<Watcher>>,
    /// All names can be expired at once.
    expires_all: AtomicBool,
}

impl Coherence {
    /// The session ended: nobody is to be told any more.
    pub(crate) fn end(&self) {
        drop(self.watcher.lock().take());
    }
}

/// A question about a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) parent: NodeId,
    pub(crate) name: Component<'a>,
    /// When.
    pub(crate) since: Option<Moment>,
}

impl Mirror {
    /// Takes note of a question before it is answered.
    pub(crate) fn asked<'a>(&self, parent: NodeId, name: Component<'a>) -> Asked<'a> {
        Asked { parent, name, since: self.looking_into(parent) }
    }

    /// Takes note of the moment before names of a directory are read.
    pub(crate) fn looking_into(&self, dir: NodeId) -> Option<Moment> {
        self.lower.watch_dir(dir);
        self.lower.moment()
    }

    /// How long a name is believed.
    pub(crate) fn believe_name(&self, asked: &Asked<'_>) -> Expiry {
        match self.cache {
            CacheMode::Coherent | CacheMode::Exclusive if self.lower.ignores_case(asked.parent) => {
                // Making or removing it by other letters names only those.
                return Expiry::NEVER_CACHED;
            }
            CacheMode::Coherent => {}
            mode => return mode.time(),
        }
        if !self.lower.is_watched(asked.parent, asked.since)
            || !self.coherence.expires_all.load(Ordering::Relaxed)
        {
            return Expiry::after(UNHEARD);
        }
        let quiet = self.lower.is_name_quiet(asked.name.as_cstr().to_bytes(), asked.since);
        if quiet { Expiry::FOREVER } else { UNWATCHED_TTL }
    }

    /// How long attributes that were asked for at a moment are believed.
    pub(crate) fn believe(&self, node: NodeId, attributes: &Attributes, since: Option<Moment>) -> Expiry {
        if !matches!(attributes.file_type(), FileType::Directory | FileType::Symlink) {
            return UNWATCHED_TTL;
        }
        if !self.lower.is_watched(node, since) {
            return if self.lower.hears_of_inodes() { Expiry::after(UNHEARD) } else { UNWATCHED_TTL };
        }
        if self.lower.is_quiet(node, since) { ATTRIBUTES } else { UNWATCHED_TTL }
    }

    /// A session began: from now on its caches are kept in step.
    pub(crate) fn start_coherence(&self, session: &Handle) -> std::io::Result<()> {
        if self.cache != CacheMode::Coherent {
            return Ok(());
        }
        let expires_all = session.negotiated().minor >= EXPIRES_ALL;
        self.coherence.expires_all.store(expires_all, Ordering::Relaxed);
        if session.passthrough().is_none() {
            // The kernel keeps pages: two writes within one tick of the clock leave the same mtime.
            self.lower.watch_writers();
        }
        let watcher = Watcher::start(self.lower.clone(), session.caches().clone())?;
        *self.coherence.watcher.lock() = Some(watcher);
        Ok(())
    }
}
