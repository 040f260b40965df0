//! Background thread that records the kernel's writes in the image and unmaps files that are no longer in use. It passes over all
//! files every [`SETTLE_INTERVAL`], and over single files after a close or a FORGET. Above [`MAX_MAPPED_FILES`] mapped files it
//! unmaps files that are not open until half as many are left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::file::File;
use super::{Files, MAX_MAPPED_FILES};

/// Interval at which written ranges are recorded.
const SETTLE_INTERVAL: Duration = Duration::from_secs(5);

enum Work {
    /// The file was closed, or the kernel forgot the inode.
    Tidy(u32),
    /// There are too many mapped files.
    Shrink,
}

/// Handle of the background thread.
#[derive(Debug)]
pub(super) struct BackgroundWorker {
    work: Mutex<Option<Sender<Work>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// [`Work::Shrink`] is queued.
    shrinks: Arc<AtomicBool>,
}

impl BackgroundWorker {
    pub(super) fn start(files: Arc<Files>) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let shrinks = Arc::new(AtomicBool::new(false));
        let shrinking = shrinks.clone();
        let run = move || run(&files, &receiver, &shrinking);
        let thread = thread::Builder::new().name("direct-write".into()).spawn(run)?;
        Ok(Self { work: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), shrinks })
    }

    /// Queues a file, at most once.
    pub(super) fn queue_file(&self, file: &File) {
        if !file.queued.swap(true, Ordering::AcqRel) {
            self.queue(Work::Tidy(file.number));
        }
    }

    pub(super) fn shrink(&self) {
        if !self.shrinks.swap(true, Ordering::AcqRel) {
            self.queue(Work::Shrink);
        }
    }

    fn queue(&self, work: Work) {
        if let Some(sender) = &*self.work.lock() {
            // The final pass handles all files in any case.
            let _ = sender.send(work);
        }
    }

    pub(super) fn end(&self) {
        *self.work.lock() = None;
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn run(files: &Files, work: &Receiver<Work>, shrinks: &AtomicBool) {
    let mut next = Instant::now() + SETTLE_INTERVAL;
    loop {
        match work.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Work::Tidy(number)) => tidy(files, number, false),
            Ok(Work::Shrink) => {
                shrink(files);
                shrinks.store(false, Ordering::Release);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= next {
            settle_written(files);
            next = Instant::now() + SETTLE_INTERVAL;
        }
    }
}

/// Records the ranges that the kernel has written. The next commit flushes the device cache.
fn settle_written(files: &Files) {
    for file in files.all().iter().filter(|file| file.unsettled.load(Ordering::Acquire)) {
        if let Err(error) = files.settle(file.number, false) {
            log_failure(file, &error);
        }
    }
}

fn log_failure(file: &File, error: &shunt_ext4::Error) {
    // The inode was freed, or the file system accepts no changes any more.
    if !matches!(error, shunt_ext4::Error::NotFound | shunt_ext4::Error::ReadOnly) {
        tracing::warn!(
            "cannot record the blocks written to inode {}: {}; retried later",
            file.number,
            error.cause()
        );
    }
}

/// Frees the preallocation of a file that is not open. With `forget`, also unmaps it once all of it is on the device.
fn tidy(files: &Files, number: u32, forget: bool) {
    let _lock = files.locks.lock(number);
    let Some(file) = files.find(number) else { return };
    file.queued.store(false, Ordering::Release);
    let forget = file.forgotten.swap(false, Ordering::AcqRel) || forget;
    let done = file
        .settle(&files.filesystem, forget)
        .and_then(|settled| if settled.users == 0 { file.trim(&files.filesystem) } else { Ok(()) });
    if let Err(error) = &done {
        log_failure(&file, error);
    }
    // The backing file is also in use while a reply that names it is under way, and while the daemon reads or writes through
    // it.
    let idle = || !file.backing.is_shared() && Arc::strong_count(&file) == 2;
    if forget && done.is_ok() && file.mapped.settle_completed().is_ok_and(|found| found.users == 0) && idle()
    {
        files.remove(number);
    }
}

/// Unmaps files that are not open.
fn shrink(files: &Files) {
    let all: Vec<u32> = files.all().iter().map(|file| file.number).collect();
    for number in all {
        if files.table.lock().numbers.len() <= MAX_MAPPED_FILES / 2 {
            break;
        }
        tidy(files, number, true);
    }
}
