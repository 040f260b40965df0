//! The threads that serve io_uring queues. The rules of the protocol are described at
//! [`transport::uring`](crate::transport::uring).

mod prepared;
mod requests;
mod ring_pool;
#[cfg(test)]
mod tests;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi::{InitFlags, Opcode, notify};

use super::Handle;
use crate::negotiate::RingBuffers;
use crate::session::FileSystem;
use crate::transport::Channel;
use crate::transport::device::Device;
use crate::transport::message::{Bytes, Message};
use crate::transport::payload::Payload;
use crate::transport::uring::{Entry, Pages, Queue, Ring, Starter, Work};
pub(crate) use prepared::PreparedRings;
use requests::{is_of_regular_file, waits_for_lock};
use ring_pool::RingPool;

/// Pause between attempts after the kernel ran out of memory.
const NO_MEMORY_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Marks the ids of [nudges](Server::nudge): even, and used neither by the kernel nor by retrieves.
const NUDGE_ID_BASE: u64 = 1 << 61;

/// The queues of a session, and the threads that serve them.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    queues: OnceLock<Vec<Arc<Queue>>>,
    threads: AtomicUsize,
    /// Requests arrive over rings.
    in_use: AtomicBool,
    /// A regular file for which a request arrived recently over any queue; 0: none yet.
    regular_file: AtomicU64,
    /// Files may be opened for zero copy. The kernel ignores that on a queue that was added without zero copy.
    zero_copy: AtomicBool,
    joins: Mutex<Vec<JoinHandle<()>>>,
    samples: Mutex<Vec<QueueSample>>,
    stock: OnceLock<RingPool>,
}

/// The watch's last sample of a queue.
#[derive(Debug, Clone, Copy, Default)]
struct QueueSample {
    progress: u64,
    full: bool,
}

impl Rings {
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    pub(crate) fn are_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(crate) fn zero_copy(&self) -> bool {
        self.zero_copy.load(Ordering::Relaxed)
    }

    fn queues(&self) -> &[Arc<Queue>] {
        self.queues.get().map_or(&[], Vec::as_slice)
    }

    fn stock(&self) -> &RingPool {
        self.stock.get_or_init(RingPool::default)
    }

    /// Registers an entry for each queue, one after the other. The kernel switches to the rings when the last queue has its first
    /// entry; where one is refused before that, it stays with `/dev/fuse`. Returns how the data of requests is kept.
    ///
    /// # Errors
    /// The error of the refused registration. Nothing is registered any more then, or the kernel might switch to the rings after
    /// all.
    pub(crate) fn start<F: FileSystem>(
        &self,
        fs: &Arc<F>,
        handle: &Handle,
        prepared: PreparedRings,
    ) -> io::Result<RingBuffers> {
        self.zero_copy.store(prepared.buffers == RingBuffers::ZeroCopy, Ordering::Relaxed);
        let started = self.register_all(fs, handle, prepared);
        self.zero_copy.store(matches!(started, Ok(RingBuffers::ZeroCopy)), Ordering::Relaxed);
        self.in_use.store(started.is_ok(), Ordering::Relaxed);
        if started.is_err() {
            self.queues().iter().for_each(|queue| queue.end());
            if let Err(error) = have_refused(&handle.shared.device, self.stock()) {
                tracing::error!(%error, "cannot cancel the switch to io_uring: the kernel waits for rings; unmount and mount again");
            }
        }
        started
    }

    fn register_all<F: FileSystem>(
        &self,
        fs: &Arc<F>,
        handle: &Handle,
        mut prepared: PreparedRings,
    ) -> io::Result<RingBuffers> {
        let starter: Starter = {
            let (fs, handle) = (fs.clone(), handle.clone());
            Arc::new(move |queue, work| {
                let ring = handle.shared.rings.stock().take()?;
                spawn(&fs, &handle, queue.clone(), ring, work, None)
            })
        };
        let device = &handle.shared.device;
        prepared.add_queues(device);
        let PreparedRings { sizes, rings, pool: stock, buffers, detour, pools } = prepared;
        self.stock.get_or_init(|| stock);
        let mut pools = pools.unwrap_or_default().into_iter();
        let queues: Vec<_> = (0..sizes.queues)
            .map(|id| Queue::new(id, &sizes, pools.next(), detour.clone(), starter.clone()))
            .collect();
        let queues = self.queues.get_or_init(|| queues);
        for (queue, ring) in queues.iter().zip(rings) {
            let entry = queue.first_entry().ok_or(io::ErrorKind::OutOfMemory)?;
            let (report, registered) = mpsc::sync_channel(1);
            spawn(fs, handle, queue.clone(), ring, Work::Register(entry), Some(report))?;
            match registered.recv() {
                Ok(accepted) => accepted?,
                Err(_) => return Err(io::Error::other("the thread of a ring ended")),
            }
        }
        Ok(buffers)
    }

    /// Adds an entry, if allowed, to each queue that is full and made no progress since the last sample. Returns whether one is
    /// full.
    pub(crate) fn sample(&self) -> bool {
        let queues = self.queues();
        let mut looks = self.samples.lock();
        looks.resize(queues.len(), QueueSample::default());
        let mut any = false;
        for (queue, last) in queues.iter().zip(looks.iter_mut()) {
            let look = QueueSample { progress: queue.progress(), full: queue.is_full() };
            if queue.has_ended() {
                continue;
            }
            if look.full && last.full && look.progress == last.progress {
                queue.grow();
            }
            queue.retry();
            any |= look.full;
            *last = look;
        }
        any
    }

    /// Ends all threads, after the kernel has ended the connection, and waits for them.
    pub(crate) fn end(&self) {
        self.queues().iter().for_each(|queue| queue.end());
        self.stock().clear();
        loop {
            let Some(thread) = self.joins.lock().pop() else { break };
            // It may wait for the reply to a zero-copy request.
            thread.thread().unpark();
            if thread.thread().id() != thread::current().id() {
                thread.join().ok();
            }
        }
    }
}

/// Makes the kernel refuse a queue that does not exist. From INIT on it holds every request back until all queues are registered
/// or one was refused, and it does not notice failures on this side (no thread, no memory).
///
/// # Errors
/// The command could not be submitted.
fn have_refused(device: &Device, stock: &RingPool) -> io::Result<()> {
    let mut ring = stock.take()?;
    ring.start()?;
    ring.register(device, u16::MAX, &[libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2]);
    ring.submit()?;
    match ring.completion() {
        Some(Err(_)) => Ok(()),
        _ => Err(io::Error::other("the kernel accepted a queue of a processor that does not exist")),
    }
}

/// Reports whether the first entry of a queue was accepted.
type Report = SyncSender<Result<(), Errno>>;

fn spawn<F: FileSystem>(
    fs: &Arc<F>,
    handle: &Handle,
    queue: Arc<Queue>,
    ring: Ring,
    work: Work,
    first: Option<Report>,
) -> io::Result<()> {
    let rings = &handle.shared.rings;
    rings.threads.fetch_add(1, Ordering::Relaxed);
    let name = format!("shunt-ring-{}", queue.id());
    // A failure to start the thread must not lose the ring.
    let ring = Arc::new(Mutex::new(Some(ring)));
    let (fs, handle, taken) = (fs.clone(), handle.clone(), ring.clone());
    let spawned = thread::Builder::new().name(name).spawn(move || {
        let ring = taken.lock().take();
        if let Some(ring) = ring {
            let ring = Arc::new(Mutex::new(ring));
            Server { fs, handle: handle.clone(), queue, ring }.run(work, first);
        }
        handle.shared.rings.threads.fetch_sub(1, Ordering::Relaxed);
    });
    match spawned {
        Ok(thread) => {
            rings.joins.lock().push(thread);
            Ok(())
        }
        Err(error) => {
            rings.threads.fetch_sub(1, Ordering::Relaxed);
            if let Some(ring) = ring.lock().take() {
                rings.stock().put_back(ring);
            }
            Err(error)
        }
    }
}

/// One thread of a queue.
struct Server<F> {
    fs: Arc<F>,
    handle: Handle,
    queue: Arc<Queue>,
    /// Shared with the pages of the zero-copy request in hand.
    ring: Arc<Mutex<Ring>>,
}

impl<F: FileSystem> Server<F> {
    fn run(self, work: Work, mut first: Option<Report>) {
        crate::scheduling::bind(self.queue.id());
        if self.handle.negotiated().has(InitFlags::PASSTHROUGH) {
            crate::privilege::drop_fsetid().ok();
        }
        if let Err(error) = self.ring.lock().start() {
            tracing::warn!(%error, "cannot start an io_uring ring");
            if let Some(report) = first {
                report.send(Err(errno_of(error))).ok();
            }
            return;
        }
        let mut next = Some(work);
        while let Some(work) = next.take().or_else(|| self.queue.next()) {
            match self.fetch(&work, first.take()) {
                Ok(entry) => next = self.serve(entry),
                Err(errno) if is_the_end(errno) => return,
                Err(errno @ (Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS)) => {
                    tracing::debug!(%errno, "io_uring command failed; retrying");
                    thread::sleep(NO_MEMORY_RETRY_DELAY);
                    next = Some(work);
                }
                Err(errno) => {
                    tracing::error!(%errno, queue = self.queue.id(), "io_uring command failed");
                    thread::sleep(NO_MEMORY_RETRY_DELAY);
                }
            }
        }
    }

    /// Submits a command, and waits for the request in its completion.
    fn fetch(&self, work: &Work, first: Option<Report>) -> Result<Arc<Entry>, Errno> {
        let device = &self.handle.shared.device;
        let mut ring = self.ring.lock();
        self.queue.offered();
        let result = match work {
            Work::Register(entry) => {
                let vectors = entry.vectors();
                ring.register(device, self.queue.id(), &vectors);
                // The kernel reads the vectors now, and a refusal is known now.
                let submitted = ring.submit().map_err(errno_of);
                let refused = submitted.err().or_else(|| ring.completion()?.err());
                match first {
                    Some(report) => report.send(refused.map_or(Ok(()), Err)).unwrap_or_default(),
                    None => self.nudge(),
                }
                refused.map_or_else(|| ring.wait(), Err).map(|_| entry)
            }
            Work::Commit(entry) => {
                let commit = entry.commit();
                ring.commit(device, self.queue.id(), commit.commit_id);
                let submitted = if commit.followed { ring.submit().map_err(errno_of) } else { Ok(()) };
                if commit.followed {
                    entry.sent();
                }
                submitted.and_then(|()| ring.wait()).map(|_| entry)
            }
        };
        self.queue.taken();
        result.cloned()
    }

    /// Makes the kernel send a request to this queue.
    ///
    /// A new entry receives the next request that arrives, not those that arrived while the queue was full: the kernel hands
    /// these out as replies are sent. Where all other entries hold requests that wait, the reply to a nudge triggers that. A
    /// nudge is a retrieve: the kernel sends data of regular files only, and refuses a file that it has forgotten; where no file
    /// is known, the next request of any process has the same effect.
    fn nudge(&self) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let of_any = self.handle.shared.rings.regular_file.load(Ordering::Relaxed);
        let retrieves = |node: &u64| {
            let unique = NUDGE_ID_BASE | NEXT.fetch_add(2, Ordering::Relaxed) & (NUDGE_ID_BASE - 1);
            self.handle.shared.device.notify(&notify::retrieve(unique, *node, 0, 0)).is_ok()
        };
        [self.queue.regular_file(), of_any].iter().filter(|node| **node != 0).any(retrieves);
    }

    /// Records a file that a nudge can name.
    fn record_regular_file(&self, node: u64) {
        self.queue.set_regular_file(node);
        self.handle.shared.rings.regular_file.store(node, Ordering::Relaxed);
    }

    /// Serves the request that an entry holds. Returns the next command to submit, if the request was answered.
    fn serve(&self, entry: Arc<Entry>) -> Option<Work> {
        self.queue.received();
        self.handle.shared.readers.received();
        match entry.receive(&self.ring) {
            Ok((header, received, pages)) => {
                let message = Message { bytes: Bytes::InPlace(received), payload: pages.map(Payload::Pages) };
                let channel: Arc<dyn Channel> = entry.clone();
                if is_of_regular_file(&header, &message.bytes) {
                    self.record_regular_file(header.nodeid);
                }
                if header.opcode == Opcode::NotifyReply.as_raw() && header.unique & NUDGE_ID_BASE != 0 {
                    drop(message);
                    channel.reply(header.unique, Ok(()), &[]).ok();
                } else if waits_for_lock(&header, &message.bytes) && !self.queue.leaves_room() {
                    drop(message);
                    channel.reply(header.unique, Err(Errno::NOLCK), &[]).ok();
                } else {
                    let served = catch_unwind(AssertUnwindSafe(|| {
                        super::serve::serve(&self.fs, &self.handle, &channel, &header, message);
                    }));
                    if served.is_err() {
                        tracing::error!(
                            request = header.unique,
                            "handler of a request without a reply panicked"
                        );
                    }
                    // The data of a retrieve: the entry must be returned to the kernel all the same.
                    if Opcode::from_raw(header.opcode).is_some_and(|opcode| !opcode.has_reply()) {
                        channel.reply(header.unique, Ok(()), &[]).ok();
                    }
                }
            }
            Err(errno) => {
                self.handle.shared.statistics.malformed();
                entry.reply(entry.unique(), Err(errno), &[]).ok();
            }
        }
        match entry.pages() {
            Some(pages) => self.wait_for_reply(&entry, &pages).then_some(Work::Commit(entry)),
            None => (!entry.park()).then_some(Work::Commit(entry)),
        }
    }

    /// Waits until a zero-copy request is answered, and moves its pages for the threads that answer it. Returns `false` at the end
    /// of the session.
    fn wait_for_reply(&self, entry: &Entry, pages: &Pages) -> bool {
        if !entry.is_answered() && self.queue.is_full() {
            self.queue.grow();
        }
        while !entry.is_answered() {
            pages.run_jobs();
            if self.queue.has_ended() {
                pages.close();
                return false;
            }
            thread::park();
        }
        true
    }
}

fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Reports whether an error means that the file system was unmounted or the connection aborted.
pub(crate) fn is_the_end(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV)
}
