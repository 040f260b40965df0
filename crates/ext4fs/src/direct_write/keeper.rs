//! Enters what the kernel wrote by itself, and lets go of files that nobody uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::file::File;
use super::{Files, MAX_KEPT_FILES};

/// How often what was written is entered.
const PERIOD: Duration = Duration::from_secs(5);

enum Work {
    /// Somebody closed it, or the kernel forgot it.
    Tidy(u32),
    /// There are too many.
    Shrink,
}

/// A thread that keeps files in order behind everybody's back.
#[derive(Debug)]
pub(super) struct Keeper {
    work: Mutex<Option<Sender<Work>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Too many, and that was said.
    shrinks: Arc<AtomicBool>,
}

impl Keeper {
    pub(super) fn start(files: Arc<Files>) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let shrinks = Arc::new(AtomicBool::new(false));
        let shrinking = shrinks.clone();
        let run = move || run(&files, &receiver, &shrinking);
        let thread = thread::Builder::new().name("keeper".into()).spawn(run)?;
        Ok(Self { work: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), shrinks })
    }

    /// Each file waits once at most.
    pub(super) fn look_after(&self, file: &File) {
        if !file.queued.swap(true, Ordering::AcqRel) {
            self.tell(Work::Tidy(file.number));
        }
    }

    pub(super) fn shrink(&self) {
        if !self.shrinks.swap(true, Ordering::AcqRel) {
            self.tell(Work::Shrink);
        }
    }

    fn tell(&self, work: Work) {
        if let Some(sender) = &*self.work.lock() {
            // At the end all files are looked after anyway.
            let _ = sender.send(work);
        }
    }

    pub(super) fn end(&self) {
        *self.work.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(files: &Files, work: &Receiver<Work>, shrinks: &AtomicBool) {
    let mut next = Instant::now() + PERIOD;
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
            look(files);
            next = Instant::now() + PERIOD;
        }
    }
}

/// Enters what the kernel wrote by itself. The next commit has the device keep it.
fn look(files: &Files) {
    for file in files.all().iter().filter(|file| file.unsettled.load(Ordering::Acquire)) {
        if let Err(error) = files.settle(file.number, false) {
            told(file, &error);
        }
    }
}

fn told(file: &File, error: &shunt_ext4::Error) {
    // Freed, or nothing can be changed any more.
    if !matches!(error, shunt_ext4::Error::NotFound | shunt_ext4::Error::ReadOnly) {
        tracing::warn!("what was written to inode {} is not entered: {error}", file.number);
    }
}

/// What a file got ahead is given back once nobody has it open; with `forget`, it goes once all of it is on the device.
fn tidy(files: &Files, number: u32, forget: bool) {
    let _lock = files.locks.lock(number);
    let Some(file) = files.find(number) else { return };
    file.queued.store(false, Ordering::Release);
    let forget = file.forgotten.swap(false, Ordering::AcqRel) || forget;
    let done = file
        .settle(&files.filesystem, forget)
        .and_then(|settled| if settled.users == 0 { file.trim(&files.filesystem) } else { Ok(()) });
    if let Err(error) = &done {
        told(&file, error);
    }
    // What an answer on its way to the kernel names is in use, and so is what somebody reads or writes by us.
    let idle = || !file.backing.is_shared() && Arc::strong_count(&file) == 2;
    if forget && done.is_ok() && file.mapped.look().is_ok_and(|found| found.users == 0) && idle() {
        files.remove(number);
    }
}

/// Lets go of files that nobody has open.
fn shrink(files: &Files) {
    let all: Vec<u32> = files.all().iter().map(|file| file.number).collect();
    for number in all {
        if files.table.lock().numbers.len() <= MAX_KEPT_FILES / 2 {
            break;
        }
        tidy(files, number, true);
    }
}
