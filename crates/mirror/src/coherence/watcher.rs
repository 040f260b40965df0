//! The thread that reads change events and invalidates the kernel's caches.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use shunt_fuse::Caches;

use super::repeat_invalidation::RepeatedInvalidations;
use crate::lower::Lower;
use crate::lower::watch::Change;

/// Size of the event buffer in bytes; it holds several hundred events.
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of buffers read before the invalidations are sent.
const MAX_READS_PER_ROUND: usize = 16;

/// Delay after each round. Events come in bursts, and the delay lets one wakeup handle a whole burst.
const ROUND_DELAY: Duration = Duration::from_millis(3);

/// Maximum number of invalidations in flight when everything is expired.
const MAX_INVALIDATIONS_IN_FLIGHT: usize = 1024;

/// The watcher thread; it lives as long as the session.
#[derive(Debug)]
pub(super) struct Watcher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(super) fn start(lower: Arc<Lower>, caches: Caches) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let seen = stop.clone();
        let work = move || {
            Work {
                lower,
                caches,
                stop: seen,
                changes: HashSet::new(),
                echo: RepeatedInvalidations::default(),
            }
            .run()
        };
        let thread = thread::Builder::new().name("shunt-watch".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        rustix::io::write(&*self.stop, &1u64.to_ne_bytes()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Work {
    lower: Arc<Lower>,
    caches: Caches,
    stop: Arc<OwnedFd>,
    changes: HashSet<Change>,
    echo: RepeatedInvalidations,
}

impl Work {
    fn run(mut self) {
        let lower = self.lower.clone();
        let Some(watch) = lower.watch() else { return };
        let mut buffer = vec![0; BUFFER_BYTES];
        if lower.resumes() {
            // Changes between the previous daemon and this one were not observed.
            self.changes.insert(Change::Everything);
        }
        loop {
            let pause = match self.changes.is_empty() {
                true => self.echo.next().map(|due| due.saturating_duration_since(Instant::now())),
                false => Some(Duration::ZERO),
            };
            if self.wait(Some(watch.as_fd()), pause) {
                return;
            }
            for _ in 0..MAX_READS_PER_ROUND {
                let changes = &mut self.changes;
                match lower.read_events(&mut buffer, |change| _ = changes.insert(change)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(errno) => {
                        tracing::error!(%errno, "cannot read change events of the source: its changes appear after timeouts only; mount again");
                        return;
                    }
                }
            }
            if self.changes.contains(&Change::Everything) {
                tracing::warn!("change events of the source were lost: expiring the whole cache");
                self.changes.retain(|change| *change == Change::Everything);
            }
            let now = Instant::now();
            for change in std::mem::take(&mut self.changes) {
                self.echo.schedule(&change, now);
                self.invalidate(change);
            }
            while let Some(change) = self.echo.take(now) {
                self.invalidate(change);
            }
            if self.wait(None, Some(ROUND_DELAY)) {
                return;
            }
        }
    }

    /// Waits for events, for at most the given time. Returns `true` when the thread must stop.
    fn wait(&self, events: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> bool {
        let stop = PollFd::new(&self.stop, PollFlags::IN);
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut fds = vec![stop];
        fds.extend(events.as_ref().map(|events| PollFd::new(events, PollFlags::IN)));
        poll(&mut fds, limit.as_ref()).is_ok() && !fds[0].revents().is_empty()
    }

    fn invalidate(&self, change: Change) {
        match change {
            // A dentry in use stays attached, with the mounts below it, until it is looked up again.
            Change::Name(dir, name) => drop(self.caches.expire_entry(dir, &name)),
            Change::Inode(node, true) => drop(self.caches.invalidate_node_whole(node)),
            Change::Inode(node, false) => drop(self.caches.invalidate_node(node, None)),
            Change::Everything => self.expire_all(),
        }
    }

    /// Expires all names by one notification and invalidates inodes one by one, in batches paced by the kernel: there
    /// may be millions.
    fn expire_all(&self) {
        let mut sent = vec![self.caches.invalidate_all()];
        let mut nodes = Vec::new();
        self.lower.for_each_node(|node| nodes.push(node));
        for batch in nodes.chunks(MAX_INVALIDATIONS_IN_FLIGHT) {
            sent.extend(batch.iter().map(|&node| self.caches.invalidate_node_whole(node)));
            for completion in sent.drain(..) {
                completion.wait().ok();
            }
        }
    }
}
