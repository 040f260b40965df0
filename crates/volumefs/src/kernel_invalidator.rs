//! Sends kernel invalidations for changes applied by synchronisation. Sending does not wait; notifications in flight are
//! remembered until they complete, so that they can be awaited.

use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shunt_fuse::{Caches, Completion, Errno, Handle, NodeId};
use shunt_volume::replica;

use crate::handles::Handles;
use crate::open_file::OpenFile;
use crate::open_versions::OpenVersions;
use crate::serving_memory::ServingMemory;

type Ready = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct KernelInvalidator {
    caches: Caches,
    /// Invalidations without a result yet, the oldest first; later ones may be complete.
    pending: Mutex<VecDeque<Pending>>,
    /// The kernel cannot expire all names at once.
    lacks_invalidate_all: Arc<AtomicBool>,
    versions: Arc<OpenVersions>,
    succession: Option<Continued>,
}

/// The means of a daemon to continue with the invalidations of this one.
pub(crate) struct Continued {
    pub(crate) session: Handle,
    pub(crate) serving: ServingMemory,
    pub(crate) files: Arc<Handles<OpenFile>>,
}

/// An invalidation without a result yet, and its number in the memory of the mount.
struct Pending {
    completion: Completion,
    number: Option<u64>,
}

impl KernelInvalidator {
    pub(crate) fn new(
        caches: Caches,
        lacks_invalidate_all: Arc<AtomicBool>,
        versions: Arc<OpenVersions>,
        succession: Option<Continued>,
    ) -> Self {
        Self { caches, pending: Mutex::default(), lacks_invalidate_all, versions, succession }
    }

    /// Records an invalidation before it is sent.
    fn begin(&self, num: u64, is_name: bool) -> Option<u64> {
        self.succession.as_ref().map(|next| next.serving.begin_invalidation(num, is_name))
    }

    fn track(&self, completion: Completion, number: Option<u64>) {
        let mut waiting = self.pending.lock();
        while waiting.front().is_some_and(|pending| pending.completion.is_done()) {
            waiting.pop_front();
        }
        if !completion.is_done() {
            waiting.push_back(Pending { completion, number });
        }
        if let Some(next) = &self.succession {
            let oldest = waiting.iter().find_map(|pending| pending.number);
            next.serving.invalidated_until(oldest.unwrap_or_else(|| next.serving.next_invalidation()));
        }
    }

    /// Stores the backing files of opens whose version is being replaced: no name leads to them any more.
    fn store_open_version(&self, num: u64) {
        let Some(next) = &self.succession else { return };
        let Some(takeover) = next.session.takeover() else { return };
        for (handle, open) in next.files.find(|open| open.num == num && open.opened.complete) {
            if !open.stored.swap(true, Ordering::Relaxed) {
                takeover.store(handle.0, open.file().as_fd());
            }
        }
    }
}

impl replica::KernelCache for KernelInvalidator {
    fn object_changed(&self, num: u64) {
        self.versions.mark_invalidated(num);
        let number = self.begin(num, false);
        self.track(self.caches.invalidate_node(NodeId(num), None), number);
    }

    fn link_changed(&self, parent: u64, name: &[u8], was_directory: bool) {
        let number = self.begin(parent, true);
        let entry = match was_directory {
            // A process inside it, or with a mount below it, finds it under its new name.
            true => self.caches.expire_entry(NodeId(parent), name),
            // No reply in flight can restore the old dentry after that.
            false => self.caches.invalidate_entry(NodeId(parent), name),
        };
        self.track(entry, number);
        // Invalidates the cached listing of the parent.
        let number = self.begin(parent, false);
        self.track(self.caches.invalidate_node_whole(NodeId(parent)), number);
    }

    fn content_changed(&self, num: u64) {
        self.store_open_version(num);
        self.versions.mark_invalidated(num);
        let number = self.begin(num, false);
        self.track(self.caches.invalidate_node_whole(NodeId(num)), number);
    }

    fn names_stale(&self) -> Ready {
        let (completion, lacks_invalidate_all) =
            (self.caches.invalidate_all(), self.lacks_invalidate_all.clone());
        Box::pin(async move {
            if completion.await == Err(Errno::NOSYS) {
                lacks_invalidate_all.store(true, Ordering::Relaxed);
            }
        })
    }

    fn settled(&self) -> Ready {
        let pending = self.pending.lock();
        let completions = pending.iter().map(|pending| &pending.completion);
        let waiting: Vec<Completion> = completions.filter(|one| !one.is_done()).cloned().collect();
        drop(pending);
        Box::pin(async move {
            for completion in waiting {
                completion.await.ok();
            }
        })
    }
}
