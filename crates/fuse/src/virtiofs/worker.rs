//! The thread of one queue: waits for the eventfd by which the guest announces requests.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// A thread that runs until this is dropped.
pub(super) struct Worker {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread of queue `index`, which calls `work` whenever `kick` is signalled, and at once if `at_once`. The flag that
    /// `work` receives is set for the first call.
    ///
    /// # Errors
    /// No descriptor or thread is available.
    pub(super) fn start(
        index: usize,
        kick: Arc<File>,
        at_once: bool,
        work: impl Fn(bool) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let run = move || {
            let mut is_first = true;
            if at_once {
                work(std::mem::take(&mut is_first));
            }
            while wait(&kick, &stopped) {
                work(std::mem::take(&mut is_first));
            }
        };
        let thread = thread::Builder::new().name(format!("shunt-queue-{index}")).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Waits for a kick. Returns `false` where the thread is to end.
fn wait(kick: &File, stop: &OwnedFd) -> bool {
    loop {
        let mut fds = [PollFd::new(kick, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        }
        // The kick stays pending for the next thread of the queue.
        if !fds[1].revents().is_empty() {
            return false;
        }
        match rustix::io::read(kick, &mut [0; 8]) {
            Ok(8) => return true,
            Err(Errno::INTR | Errno::AGAIN) => {}
            _ => return false,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
