//! Sends kernel invalidations for changes applied by synchronisation. Sending does not wait; notifications in flight are
//! remembered until they complete, so that they can be awaited.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shunt_fuse::{Caches, Completion, Errno, NodeId};
use shunt_volume::replica;

use crate::open_versions::OpenVersions;

type Ready = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct KernelInvalidator {
    caches: Caches,
    /// Invalidations without a result yet, the oldest first; later ones may be complete.
    pending: Mutex<VecDeque<Completion>>,
    /// The kernel cannot expire all names at once.
    lacks_invalidate_all: Arc<AtomicBool>,
    versions: Arc<OpenVersions>,
}

impl KernelInvalidator {
    pub(crate) fn new(
        caches: Caches,
        lacks_invalidate_all: Arc<AtomicBool>,
        versions: Arc<OpenVersions>,
    ) -> Self {
        Self { caches, pending: Mutex::default(), lacks_invalidate_all, versions }
    }

    fn track(&self, completion: Completion) {
        let mut waiting = self.pending.lock();
        while waiting.front().is_some_and(Completion::is_done) {
            waiting.pop_front();
        }
        if !completion.is_done() {
            waiting.push_back(completion);
        }
    }
}

impl replica::KernelCache for KernelInvalidator {
    fn object_changed(&self, num: u64) {
        self.versions.mark_invalidated(num);
        self.track(self.caches.invalidate_node(NodeId(num), None));
    }

    fn link_changed(&self, parent: u64, name: &[u8], was_directory: bool) {
        self.track(match was_directory {
            // A process inside it, or with a mount below it, finds it under its new name.
            true => self.caches.expire_entry(NodeId(parent), name),
            // No reply in flight can restore the old dentry after that.
            false => self.caches.invalidate_entry(NodeId(parent), name),
        });
        // Invalidates the cached listing of the parent.
        self.track(self.caches.invalidate_node_whole(NodeId(parent)));
    }

    fn content_changed(&self, num: u64) {
        self.versions.mark_invalidated(num);
        self.track(self.caches.invalidate_node_whole(NodeId(num)));
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
        let waiting: Vec<Completion> =
            self.pending.lock().iter().filter(|completion| !completion.is_done()).cloned().collect();
        Box::pin(async move {
            for completion in waiting {
                completion.await.ok();
            }
        })
    }
}
