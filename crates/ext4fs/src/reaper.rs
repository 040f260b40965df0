//! Frees inodes in the background, so that a caller that unlinks or forgets a large file does not wait. Inodes queued when the
//! process ends remain in the image's orphan list for the next mount. A caller that finds no space can wait for the queue.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_ext4::Filesystem;

/// Delay after the first inode of a batch: waking the thread for each would cost the unlinking callers more than the unlinking
/// itself.
const BATCH_DELAY: Duration = Duration::from_millis(2);

enum Work {
    Free(u32),
    /// Answered when all earlier work is done.
    Mark(Sender<()>),
}

/// Callback before an inode is freed.
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

    /// Sets the callback that runs before each inode is freed. It can be set once.
    pub(crate) fn before_each(&self, before: Before) {
        let _ = self.before.set(before);
    }

    /// Queues an inode that is no longer in use to be freed.
    pub(crate) fn free(&self, number: u32) {
        if let Some(work) = &*self.work.lock() {
            // The receiver is closed only at the end; the next mount recovers the orphan.
            let _ = work.send(Work::Free(number));
        }
    }

    /// Waits until all inodes queued before are freed.
    pub(crate) fn catch_up(&self) {
        let (done, wait) = channel();
        let sent = self.work.lock().as_ref().is_some_and(|work| work.send(Work::Mark(done)).is_ok());
        if sent {
            let _ = wait.recv();
        }
    }

    /// Frees the queued inodes and ends the thread.
    pub(crate) fn end(&self) {
        *self.work.lock() = None;
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn run(filesystem: &Filesystem, work: &Receiver<Work>, before: &OnceLock<Before>) {
    for first in work {
        if let Work::Free(_) = first {
            thread::sleep(BATCH_DELAY);
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
