//! Frees inodes behind everybody's back: whoever forgets or unlinks a large file does not wait for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// A thread that frees inodes.
#[derive(Debug)]
pub(crate) struct Reaper {
    work: Mutex<Option<Sender<Work>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reaper {
    pub(crate) fn start(filesystem: Arc<Filesystem>) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let thread =
            thread::Builder::new().name("reaper".into()).spawn(move || run(&filesystem, &receiver))?;
        Ok(Self { work: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
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

fn run(filesystem: &Filesystem, work: &Receiver<Work>) {
    for first in work {
        if let Work::Free(_) = first {
            thread::sleep(GATHERING);
        }
        for work in std::iter::once(first).chain(work.try_iter()) {
            match work {
                Work::Free(number) => {
                    if let Err(error) = filesystem.reap(number) {
                        tracing::warn!("cannot free inode {number}: {error}");
                    }
                }
                Work::Mark(done) => drop(done.send(())),
            }
        }
    }
}
