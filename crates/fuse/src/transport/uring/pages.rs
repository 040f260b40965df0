//! Zero copy (Linux 7.3): the pages of a READ or WRITE, which the kernel registers with the ring of the thread that received the
//! request. Their bytes move between the pages and a file by commands of that ring, and the server never sees them.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, Thread};

use parking_lot::Mutex;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::ring::{Direction, Ring};
use crate::transport::channel;

/// A transfer that another thread than the receiver waits for.
#[derive(Debug)]
struct Job {
    file: OwnedFd,
    offset: u64,
    range: Range<usize>,
    report: SyncSender<Result<usize, Errno>>,
}

/// The pages of one request. The ring belongs to the thread that received the request, which therefore performs the transfers
/// that other threads ask for, and keeps the request until it is answered.
#[derive(Debug)]
pub(crate) struct Pages {
    receiver: Thread,
    ring: Arc<Mutex<Ring>>,
    /// `None` once the reply is sent: the pages are no longer registered.
    jobs: Mutex<Option<Vec<Job>>>,
    direction: Direction,
    detour: Arc<MemoryFile>,
}

/// A file in memory, by which bytes reach pages that only a ring can move. It is made before the session is served, because the
/// process may be forbidden to make one later.
#[derive(Debug)]
pub(crate) struct MemoryFile(Mutex<OwnedFd>);

impl MemoryFile {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        let file = rustix::fs::memfd_create("shunt-pages", MemfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self(Mutex::new(file))))
    }
}

impl Pages {
    /// Makes the pages of a request that the calling thread has received over `ring`.
    pub(crate) fn new(ring: Arc<Mutex<Ring>>, direction: Direction, detour: Arc<MemoryFile>) -> Arc<Self> {
        let (receiver, jobs) = (thread::current(), Mutex::new(Some(Vec::new())));
        Arc::new(Self { receiver, ring, jobs, direction, detour })
    }

    /// Returns the direction: pages of a READ are filled from a file, those of a WRITE are written to one.
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Moves a range of the request's data between the pages and `file` at `offset`; less at the end of the file, or where an
    /// error followed some progress. Returns how many bytes were moved.
    ///
    /// # Errors
    /// Those of `pread(2)` and `pwrite(2)`; EIO where the request has been answered already.
    pub(crate) fn transfer(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        range: Range<usize>,
    ) -> Result<usize, Errno> {
        // The files of some pseudo file systems have no operation for memory of the kernel.
        match (self.transfer_directly(file, offset, range.clone()), self.direction) {
            (Err(Errno::FAULT), Direction::FromFile) => {
                let mut bytes = vec![0; range.len()];
                let count = channel::read(file, offset, &mut bytes)?;
                self.fill(range.start, &[&bytes[..count]])
            }
            (Err(Errno::FAULT), Direction::IntoFile) => channel::write(file, offset, &self.bytes(range)?),
            (moved, _) => moved,
        }
    }

    fn transfer_directly(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        range: Range<usize>,
    ) -> Result<usize, Errno> {
        if thread::current().id() == self.receiver.id() {
            // Only this thread sends the reply.
            let is_open = self.jobs.lock().is_some();
            return if is_open { self.perform(file, offset, range) } else { Err(Errno::IO) };
        }
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
        let (report, result) = mpsc::sync_channel(1);
        self.jobs.lock().as_mut().ok_or(Errno::IO)?.push(Job { file, offset, range, report });
        self.wake();
        // Without a result: the session has ended.
        result.recv().unwrap_or(Err(Errno::IO))
    }

    fn perform(&self, file: BorrowedFd<'_>, offset: u64, range: Range<usize>) -> Result<usize, Errno> {
        self.ring.lock().transfer(self.direction, file, offset, range)
    }

    /// Fills the pages of a READ, from byte `start` of its data on, with bytes in memory, for a reply that is not a range of a file:
    /// by way of a file in memory.
    pub(crate) fn fill(&self, start: usize, parts: &[&[u8]]) -> Result<usize, Errno> {
        let file = self.detour.0.lock();
        let mut length = 0;
        for part in parts {
            let written = channel::write(file.as_fd(), length as u64, part)?;
            length += written;
            if written < part.len() {
                return Err(Errno::NOSPC);
            }
        }
        self.transfer_directly(file.as_fd(), 0, start..start + length)
    }

    /// Returns a range of the bytes of a WRITE, for a server that needs them: by way of a file in memory.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Result<Vec<u8>, Errno> {
        let length = range.len();
        let file = self.detour.0.lock();
        let mut bytes = vec![0; length];
        // The file may still have bytes of an earlier request.
        if self.transfer_directly(file.as_fd(), 0, range)? != length {
            return Err(Errno::IO);
        }
        if channel::read(file.as_fd(), 0, &mut bytes)? == length { Ok(bytes) } else { Err(Errno::IO) }
    }

    /// Performs the transfers that other threads wait for. Called by the receiver only.
    pub(crate) fn run_jobs(&self) {
        let jobs = self.jobs.lock().as_mut().map(std::mem::take).unwrap_or_default();
        for Job { file, offset, range, report } in jobs {
            report.send(self.perform(file.as_fd(), offset, range)).ok();
        }
    }

    /// Refuses all further transfers: the reply is about to be sent.
    pub(crate) fn close(&self) {
        let jobs = self.jobs.lock().take();
        drop(jobs);
    }

    /// Wakes the receiver, which waits for transfers and for the reply.
    pub(crate) fn wake(&self) {
        self.receiver.unpark();
    }
}

/// The data of a WRITE that stays in its registered pages.
#[derive(Debug)]
pub(crate) struct PagesPayload {
    pub(crate) pages: Arc<Pages>,
    pub(crate) length: usize,
}
