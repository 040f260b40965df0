//! Has the kernel forget what synchronisation changed.

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
    /// What the kernel has not answered yet, the oldest first; those behind it may be done.
    pending: Mutex<VecDeque<Completion>>,
    /// The kernel cannot be told that all names are old.
    lacks_invalidate_all: Arc<AtomicBool>,
    versions: Arc<OpenVersions>,
}

impl KernelInvalidator {
    pub(crate) fn new(
        caches: Caches,
        lacks_invalidate_all: Arc<AtomicBool>,
        versions: Arc<OpenVersions>,
    ) -> Self {
        Self {
            caches,
            pending: Mutex::default(),
            lacks_invalidate_all: lacks_invalidate_all,
            versions: versions,
        }
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
            // Who is in it, or mounted something below it, finds it under its new name.
            true => self.caches.expire_entry(NodeId(parent), name),
            // No answer on its way can have the old one believed after that.
            false => self.caches.invalidate_entry(NodeId(parent), name),
        });
        // The listing, which the kernel may have kept.
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
