//! A blocking socket as hyper's transport. Its calls block the connection's own thread, so the connection needs no event loop, whose
//! system calls the sandboxes of daemons do not allow.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};

/// Bytes read at once. A request of Prometheus has some hundred bytes.
const READ_BYTES: usize = 4096;

/// A connection that ends at a deadline, however slowly the client sends or receives.
pub struct BlockingIo {
    stream: TcpStream,
    deadline: Instant,
}

impl BlockingIo {
    pub fn new(stream: TcpStream, timeout: Duration) -> Self {
        BlockingIo { stream, deadline: Instant::now() + timeout }
    }

    /// The time left; never zero, which would mean no timeout.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(left.max(Duration::from_millis(1)))
        }
    }
}

impl Read for BlockingIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_BYTES];
        let room = buffer.remaining().min(READ_BYTES);
        let left = self.left()?;
        self.stream.set_read_timeout(Some(left))?;
        let length = self.stream.read(&mut bytes[..room])?;
        buffer.put_slice(&bytes[..length]);
        Poll::Ready(Ok(()))
    }
}

impl Write for BlockingIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let left = self.left()?;
        self.stream.set_write_timeout(Some(left))?;
        Poll::Ready(self.stream.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(std::net::Shutdown::Write))
    }
}
