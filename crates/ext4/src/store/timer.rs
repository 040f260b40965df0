//! Commits what nobody asked to be committed.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Store;

/// Age at which a transaction is committed.
const AGE: Duration = Duration::from_secs(5);

/// The thread that does it, until this is dropped.
pub(crate) struct Timer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    pub(crate) fn start(store: &Arc<Store>) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (store, seen) = (Arc::downgrade(store), stop.clone());
        let thread =
            std::thread::Builder::new().name("ext4-commit".into()).spawn(move || run(&store, &seen))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn run(store: &Weak<Store>, (stop, stopped): &(Mutex<bool>, Condvar)) {
    let mut stop = stop.lock();
    let mut wait = AGE;
    while !*stop {
        stopped.wait_for(&mut stop, wait);
        let Some(store) = store.upgrade() else { return };
        if *stop || !store.is_writable() {
            return;
        }
        let age = store.age();
        wait = age.map_or(AGE, |age| AGE.saturating_sub(age));
        if wait.is_zero() {
            // What goes wrong aborts and is told there.
            store.sync().ok();
            wait = AGE;
        }
    }
}
