//! The table of requests whose handlers wait.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::task::Task;

/// The tasks of waiting requests, by id.
#[derive(Debug, Default)]
pub(crate) struct WaitingTasks(Mutex<HashMap<u64, Weak<Task>>>);

impl WaitingTasks {
    pub(crate) fn insert(&self, unique: u64, task: &Arc<Task>) {
        // Mark and insert atomically: a task that saw the mark before the entry was inserted would leave the entry behind.
        let mut waiting = self.0.lock();
        task.list();
        waiting.insert(unique, Arc::downgrade(task));
    }

    pub(crate) fn remove(&self, unique: u64) {
        self.0.lock().remove(&unique);
    }

    /// Returns the waiting task of a request.
    pub(crate) fn find(&self, unique: u64) -> Option<Arc<Task>> {
        self.0.lock().get(&unique).and_then(Weak::upgrade)
    }

    /// Cancels all tasks after the connection ended: their replies have no receiver.
    pub(crate) fn cancel_all(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        tasks.values().filter_map(Weak::upgrade).for_each(|task| task.abandon());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
