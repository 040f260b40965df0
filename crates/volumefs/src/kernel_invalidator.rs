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
    waiting: Mutex<VecDeque<Completion>>,
    /// The kernel cannot expire all names at once.
    keeps_names: Arc<AtomicBool>,
    sessions: Arc<OpenVersions>,
}

impl KernelInvalidator {
    pub(crate) fn new(caches: Caches, keeps_names: Arc<AtomicBool>, sessions: Arc<OpenVersions>) -> Self {
        Self { caches, waiting: Mutex::default(), keeps_names, sessions }
    }

    fn note(&self, told: Completion) {
        let mut waiting = self.waiting.lock();
        while waiting.front().is_some_and(Completion::is_done) {
            waiting.pop_front();
        }
        if !told.is_done() {
            waiting.push_back(told);
        }
    }
}

impl replica::KernelCache for KernelInvalidator {
    fn object_changed(&self, num: u64) {
        self.sessions.telling(num);
        self.note(self.caches.invalidate_node(NodeId(num), None));
    }

    fn link_changed(&self, parent: u64, name: &[u8], was_directory: bool) {
        self.note(match was_directory {
            // A process inside it, or with a mount below it, finds it under its new name.
            true => self.caches.expire_entry(NodeId(parent), name),
            // No reply in flight can restore the old dentry after that.
            false => self.caches.invalidate_entry(NodeId(parent), name),
        });
        // Invalidates the cached listing of the parent.
        self.note(self.caches.invalidate_node_whole(NodeId(parent)));
    }

    fn content_changed(&self, num: u64) {
        self.sessions.telling(num);
        self.note(self.caches.invalidate_node_whole(NodeId(num)));
    }

    fn names_stale(&self) -> Ready {
        let (told, keeps_names) = (self.caches.invalidate_all(), self.keeps_names.clone());
        Box::pin(async move {
            if told.await == Err(Errno::NOSYS) {
                keeps_names.store(true, Ordering::Relaxed);
            }
        })
    }

    fn settled(&self) -> Ready {
        let waiting: Vec<Completion> =
            self.waiting.lock().iter().filter(|told| !told.is_done()).cloned().collect();
        Box::pin(async move {
            for told in waiting {
                told.await.ok();
            }
        })
    }
}
