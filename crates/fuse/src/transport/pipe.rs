//! A pool of pipes for splicing. A pipe is borrowed for one message, and drained before it returns to the pool.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// An empty pipe, borrowed from the pool.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) reader: OwnedFd,
    pub(crate) writer: OwnedFd,
    pub(crate) capacity: usize,
}

impl Pipe {
    fn new(capacity: usize) -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // An unprivileged user may get a smaller pipe (fs.pipe-max-size): then only smaller messages are spliced.
        rustix::pipe::fcntl_setpipe_size(&writer, capacity).ok();
        let capacity = rustix::pipe::fcntl_getpipe_size(&writer)?;
        Ok(Self { reader, writer, capacity })
    }

    pub(crate) fn read_exact(&self, mut bytes: &mut [u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match rustix::io::read(&self.reader, &mut *bytes) {
                Ok(0) | Err(Errno::AGAIN) => return Err(Errno::IO),
                Ok(n) => bytes = &mut bytes[n..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn drain(&self) -> bool {
        let mut scrap = [0; 4096];
        loop {
            match rustix::io::read(&self.reader, &mut scrap) {
                Err(Errno::AGAIN) => return true,
                Ok(n) if n > 0 => {}
                Err(Errno::INTR) => {}
                _ => return false,
            }
        }
    }

    /// Splices all of `length` bytes to `to`.
    pub(crate) fn splice_out(&self, to: impl AsFd, length: usize) -> io::Result<()> {
        let done = rustix::pipe::splice(self.reader.as_fd(), None, to, None, length, SpliceFlags::MOVE)?;
        if done == length { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// A pool of pipes.
#[derive(Debug)]
pub(crate) struct PipePool {
    capacity: usize,
    idle: Mutex<Vec<Pipe>>,
}

/// Maximum number of idle pipes: each costs two descriptors and up to a message of memory.
const MAX_POOLED_PIPES: usize = 8;

impl PipePool {
    /// Makes a pool with `ready` pipes: large ones need a privilege that threads may drop later.
    pub(crate) fn new(capacity: usize, ready: usize) -> Arc<Self> {
        let idle = (0..ready).map_while(|_| Pipe::new(capacity).ok()).collect();
        Arc::new(Self { capacity, idle: Mutex::new(idle) })
    }

    pub(crate) fn take(&self) -> io::Result<Pipe> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| Pipe::new(self.capacity), Ok)
    }

    /// Returns a pipe to the pool; remaining bytes in it are discarded.
    pub(crate) fn put(&self, pipe: Pipe) {
        if pipe.drain() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_POOLED_PIPES {
                idle.push(pipe);
            }
        }
    }
}
