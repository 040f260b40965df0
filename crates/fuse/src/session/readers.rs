//! The threads that read requests from `/dev/fuse` and handle them.
//!
//! Each thread handles the requests it reads itself: no hand-over, no second wake-up. The number of threads follows the load. A
//! handler that blocks occupies its thread; when all threads were busy with the same requests for two milliseconds, another one
//! is started, so that blocking handlers (a slow disk) delay no other request. Threads beyond the usual number exit when they are
//! not needed any more.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use shunt_fuse_abi::{InHeader, InitFlags, Opcode};

use super::busy_poll::BusyPoll;
use super::load::{Load, ThreadChange};
use super::pm_qos::LatencyRequest;
use super::ring::{PreparedRings, Rings};
use super::single_client::SingleClient;
use super::{Handle, TransportInUse};
use crate::session::FileSystem;
use crate::transport::Channel;
use crate::transport::buffer::BufferPool;
use crate::transport::dev::{DevChannel, Receiver};
use crate::transport::device::Device;

/// Interval of the watch. When all threads were busy without progress for this long, another one is started.
const WATCH_INTERVAL: Duration = Duration::from_millis(2);
/// With rings in use, `/dev/fuse` mostly carries FORGETs, one for each removed file. After one, the thread waits this long for
/// more to accumulate: then one message contains them all, and no thread is woken for each.
const FORGET_BATCH_DELAY: Duration = Duration::from_millis(1);
/// Number of ticks without a request after which the watch sleeps.
const WATCH_TICKS: u32 = 50;

/// The number of reading threads, and how busy they are.
#[derive(Debug)]
pub(crate) struct Readers {
    usual: usize,
    max_threads: usize,
    threads: AtomicUsize,
    /// Number of threads that wait for a request.
    idle: AtomicUsize,
    /// Counts requests read: an unchanged count means that no thread makes progress.
    progress: AtomicU64,
    watch: Mutex<()>,
    watch_requested: Condvar,
    watch_sleeps: AtomicBool,
    ended: AtomicBool,
    /// Threads start no further requests: another server takes over.
    pub(super) draining: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    /// Number of threads that are to exit after their next request.
    surplus: AtomicUsize,
    bursts: AtomicU64,
    /// A burst is in progress.
    flowing: AtomicBool,
    callers: SingleClient,
}

impl Readers {
    pub(crate) fn new(usual: usize, limit: usize) -> Self {
        Self {
            usual,
            max_threads: limit,
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            watch: Mutex::new(()),
            watch_requested: Condvar::new(),
            watch_sleeps: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            failure: Mutex::new(None),
            surplus: AtomicUsize::new(0),
            bursts: AtomicU64::new(0),
            flowing: AtomicBool::new(false),
            callers: SingleClient::default(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that wait for a request.
    pub(super) fn waiting(&self) -> usize {
        self.idle.load(Ordering::Acquire)
    }

    fn wake_watch(&self) {
        if self.watch_sleeps.load(Ordering::SeqCst) {
            let _guard = self.watch.lock();
            self.watch_requested.notify_one();
        }
    }

    /// Counts a request.
    pub(crate) fn received(&self) {
        self.progress.fetch_add(1, Ordering::SeqCst);
        self.wake_watch();
    }

    fn end(&self, failure: Option<io::Error>) {
        if let Some(failure) = failure {
            self.failure.lock().get_or_insert(failure);
        }
        self.ended.store(true, Ordering::Release);
        let _guard = self.watch.lock();
        self.watch_requested.notify_all();
    }

    /// Returns the number of bursts of requests for which CPUs were kept awake.
    pub(crate) fn bursts(&self) -> u64 {
        self.bursts.load(Ordering::Relaxed)
    }

    /// Reports whether the calling thread is to exit.
    fn is_surplus(&self) -> bool {
        self.surplus.load(Ordering::Relaxed) > 0
            && self.surplus.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Waits until another thread is needed: all were busy most of the time, or busy with the same requests for a [`WATCH_INTERVAL`].
    /// Returns `false` at the end of the session.
    fn wait_for_need(&self, load: &mut Load, processors: &mut LatencyRequest, rings: &Rings) -> bool {
        let mut quiet = 0;
        let mut stuck = false;
        let mut last = self.progress.load(Ordering::Relaxed);
        let mut guard = self.watch.lock();
        loop {
            if self.ended.load(Ordering::Acquire) {
                return false;
            }
            if self.is_draining() {
                self.watch_requested.wait(&mut guard);
                continue;
            }
            let progress = self.progress.load(Ordering::Relaxed);
            let requests = progress.wrapping_sub(last);
            last = progress;
            self.flowing.store(processors.tick(requests, &self.bursts), Ordering::Relaxed);
            let idle = self.idle.load(Ordering::Acquire);
            if stuck && idle == 0 && requests == 0 {
                return true;
            }
            stuck = idle == 0;
            // One thread serves a single caller best: several would only take turns.
            let spare = if self.callers.is_one() && requests > 0 { self.threads() } else { idle };
            let full = rings.sample();
            quiet = if requests == 0 && idle > 0 && !full { quiet + 1 } else { 0 };
            match load.sample(spare) {
                ThreadChange::Add if self.threads() < self.usual => return true,
                ThreadChange::Remove if self.threads() > 1 => {
                    let surplus = self.threads().saturating_sub(self.usual).max(1);
                    self.surplus.store(surplus, Ordering::Release);
                }
                _ => {}
            }
            if quiet > WATCH_TICKS {
                self.watch_sleeps.store(true, Ordering::SeqCst);
                // A request that arrived before the flag was visible would not wake us.
                if self.progress.load(Ordering::SeqCst) == progress && !self.ended.load(Ordering::SeqCst) {
                    self.watch_requested.wait(&mut guard);
                }
                self.watch_sleeps.store(false, Ordering::SeqCst);
                quiet = 0;
            } else {
                self.watch_requested.wait_for(&mut guard, WATCH_INTERVAL);
            }
        }
    }
}

/// Serves a session with as many threads as it needs; returns when the file system is unmounted.
pub(crate) fn serve<F: FileSystem>(
    fs: &Arc<F>,
    handle: &Handle,
    prepared: Option<PreparedRings>,
    mut processors: LatencyRequest,
) -> io::Result<()> {
    let rings = &handle.shared.rings;
    let readers = &handle.shared.readers;
    let size = handle.shared.negotiated.max_write as usize + 8192;
    let buffers = BufferPool::new(size, handle.shared.takeover.is_some());
    let served = thread::scope(|scope| {
        let start = |device: Arc<Device>| -> io::Result<()> {
            let number = readers.threads.fetch_add(1, Ordering::Relaxed);
            let buffers = buffers.clone();
            let spawned =
                thread::Builder::new().name(format!("shunt-fuse-{number}")).spawn_scoped(scope, move || {
                    let failure = read_requests(fs, handle, device, buffers);
                    readers.threads.fetch_sub(1, Ordering::Relaxed);
                    if let Some(failure) = failure {
                        readers.end(failure.err());
                    }
                });
            spawned.map(drop).inspect_err(|_| {
                readers.threads.fetch_sub(1, Ordering::Relaxed);
            })
        };
        start(handle.shared.device.clone())?;
        match prepared.map(|prepared| rings.start(fs, handle, prepared)) {
            None => {}
            Some(Ok(buffers)) => handle.shared.transport.lock().buffers = Some(buffers),
            // The mount may have ended before it was ever used.
            Some(Err(error))
                if super::ring::is_the_end(Errno::from_io_error(&error).unwrap_or(Errno::IO)) => {}
            Some(Err(error)) => {
                let reason = format!("the kernel refused a ring: {error}");
                tracing::warn!("transport is /dev/fuse instead of io_uring: {reason}");
                *handle.shared.transport.lock() = TransportInUse::dev(Some(reason));
            }
        }
        let mut load = Load::default();
        while readers.wait_for_need(&mut load, &mut processors, &handle.shared.rings) {
            readers.surplus.store(0, Ordering::Release);
            if readers.threads() >= readers.max_threads {
                thread::sleep(WATCH_INTERVAL);
                continue;
            }
            let device = &handle.shared.device;
            let more = match &handle.shared.takeover {
                Some(takeover) => takeover.clone_of(device),
                None => device.try_clone().map(Arc::new),
            };
            let more = more.and_then(start);
            if let Err(error) = more {
                tracing::warn!(%error, "cannot start one more server thread although all are busy");
                thread::sleep(50 * WATCH_INTERVAL);
            }
        }
        Ok::<(), io::Error>(())
    });
    rings.end();
    served?;
    match readers.failure.lock().take() {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

fn awaits_reply(header: &InHeader) -> bool {
    Opcode::from_raw(header.opcode).is_none_or(Opcode::has_reply)
}

/// Reads and handles requests until the file system is unmounted (`Some`), or until this thread is surplus (`None`).
fn read_requests<F: FileSystem>(
    fs: &Arc<F>,
    handle: &Handle,
    device: Arc<Device>,
    buffers: Arc<BufferPool>,
) -> Option<io::Result<()>> {
    let shared = &handle.shared;
    let readers = &shared.readers;
    if shared.negotiated.has(InitFlags::PASSTHROUGH) {
        if let Err(errno) = crate::privilege::drop_fsetid() {
            tracing::warn!(%errno, "cannot drop CAP_FSETID: passthrough is off");
        }
    }
    let is_first = Arc::ptr_eq(&device, &shared.device);
    let channel: Arc<dyn Channel> = Arc::new(DevChannel::new(device.clone(), shared.pipes.clone()));
    let mut receiver =
        Receiver::new(device.clone(), buffers, shared.pipes.clone(), handle.negotiated().max_write);
    let mut linger = BusyPoll::default();
    // The caller needs a CPU as well.
    let lingers = thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    while !readers.is_draining() {
        let others_wait = readers.idle.fetch_add(1, Ordering::AcqRel) > 0;
        // A thread that sleeps is woken for each request, even while another thread polls for it.
        let pressed = match (others_wait, lingers && readers.flowing.load(Ordering::Relaxed)) {
            (true, _) => false,
            (false, true) => linger.poll_or_sleep(&device),
            (false, false) => true,
        };
        readers.callers.record_pressure(pressed);
        let received = receiver.receive();
        readers.idle.fetch_sub(1, Ordering::AcqRel);
        match received {
            // The kernel resends it. A message without a reply is not resent, and is still handled.
            Ok((header, _)) if readers.is_draining() && awaits_reply(&header) => break,
            Ok((header, message)) => {
                readers.received();
                readers.callers.record_caller(header.pid);
                // Handlers are caught where they run; this covers calls without a reply (FORGET).
                let served = catch_unwind(AssertUnwindSafe(|| {
                    super::serve::serve(fs, handle, &channel, &header, message);
                }));
                if served.is_err() {
                    tracing::error!(request = header.unique, "handler of a request without a reply panicked");
                }
                let opcode = Opcode::from_raw(header.opcode);
                if shared.rings.are_in_use() && matches!(opcode, Some(Opcode::Forget | Opcode::BatchForget)) {
                    readers.idle.fetch_add(1, Ordering::AcqRel);
                    thread::sleep(FORGET_BATCH_DELAY);
                    readers.idle.fetch_sub(1, Ordering::AcqRel);
                }
            }
            // NOENT: the request was interrupted before it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            // Unmounted, or aborted.
            Err(Errno::NODEV | Errno::CONNABORTED | Errno::CONNRESET | Errno::PIPE) => return Some(Ok(())),
            // Transient: the kernel had no memory, or no descriptor, for this request.
            Err(errno @ (Errno::NOMEM | Errno::NOBUFS | Errno::MFILE | Errno::NFILE | Errno::IO)) => {
                tracing::warn!(%errno, "cannot receive a request; retrying");
                thread::sleep(50 * WATCH_INTERVAL);
            }
            Err(errno) => return Some(Err(errno.into())),
        }
        if !is_first && readers.is_surplus() {
            if let Some(takeover) = &shared.takeover {
                takeover.put_back(device);
            }
            return None;
        }
    }
    None
}
