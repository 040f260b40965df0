//! Frees inodes behind everybody's back: whoever forgets or unlinks a large file does not wait for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_ext4::Filesystem;

/// After one inode, others are given this long to come: waking a thread for each would cost those who unlink more than the
/// unlinking itself.
const GATHERING: Duration = Duration::from_millis(2);

enum Work {
    Free(u32),
    /// Answered once all that came before is done.
    Mark(Sender<()>),
}

/// What is to be done before an inode is freed.
type Before = Box<dyn Fn(u32) + Send + Sync>;

/// A thread that frees inodes.
pub(crate) struct Reaper {
    work: Mutex<Option<Sender<Work>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    before: Arc<OnceLock<Before>>,
}

impl std::fmt::Debug for Reaper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reaper").finish_non_exhaustive()
    }
}

impl Reaper {
    pub(crate) fn start(filesystem: Arc<Filesystem>) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let before: Arc<OnceLock<Before>> = Arc::default();
        let first = before.clone();
        let run = move || run(&filesystem, &receiver, &first);
        let thread = thread::Builder::new().name("reaper".into()).spawn(run)?;
        Ok(Self { work: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), before })
    }

    /// What is to be done before each inode is freed, from now on. Said once.
    pub(crate) fn before_each(&self, before: Before) {
        let _ = self.before.set(before);
    }

    /// Has an inode freed that nobody can use any more.
    pub(crate) fn free(&self, number: u32) {
        if let Some(work) = &*self.work.lock() {
            // Only at the end is there nobody to hear it; the next mount finds the orphan.
            let _ = work.send(Work::Free(number));
        }
    }

    /// Waits until all that was to be freed before is free.
    pub(crate) fn catch_up(&self) {
        let (done, wait) = channel();
        let sent = self.work.lock().as_ref().is_some_and(|work| work.send(Work::Mark(done)).is_ok());
        if sent {
            let _ = wait.recv();
        }
    }

    /// Frees what is left, and ends.
    pub(crate) fn end(&self) {
        *self.work.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(filesystem: &Filesystem, work: &Receiver<Work>, before: &OnceLock<Before>) {
    for first in work {
        if let Work::Free(_) = first {
            thread::sleep(GATHERING);
        }
        for work in std::iter::once(first).chain(work.try_iter()) {
            match work {
                Work::Free(number) => {
                    if let Some(before) = before.get() {
                        before(number);
                    }
                    if let Err(error) = filesystem.evict_inode(number) {
                        tracing::warn!("cannot free inode {number}: {error}");
                    }
                }
                Work::Mark(done) => drop(done.send(())),
            }
        }
    }
}
