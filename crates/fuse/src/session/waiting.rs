//! The table of requests whose handlers wait.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::task::Task;

/// The requests whose handlers wait, by id.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<HashMap<u64, Weak<Task>>>);

impl Waiting {
    pub(crate) fn insert(&self, unique: u64, task: &Arc<Task>) {
        // One step for whoever takes it off: had it seen the mark before the entry is here, the entry would stay.
        let mut waiting = self.0.lock();
        task.list();
        waiting.insert(unique, Arc::downgrade(task));
    }

    pub(crate) fn remove(&self, unique: u64) {
        self.0.lock().remove(&unique);
    }

    /// The waiting task of a request.
    pub(crate) fn find(&self, unique: u64) -> Option<Arc<Task>> {
        self.0.lock().get(&unique).and_then(Weak::upgrade)
    }

    /// The connection is gone: nobody waits for these answers.
    pub(crate) fn cancel_all(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        tasks.values().filter_map(Weak::upgrade).for_each(|task| task.abandon());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
