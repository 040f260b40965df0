//! A connection to a daemon, accepted only from the owner of the socket's directory, with a deadline.
//!
//! Root queries the daemons of all users, so each of them may be hostile: it may forge a socket, replace it by a link, accept no
//! connection, or send one byte a second.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;

use super::credentials::of_peer;
use super::dir::{SocketDir, SocketName};
use crate::files;

/// A connection with a deadline.
#[derive(Debug)]
pub struct Stream {
    stream: UnixStream,
    deadline: Instant,
    /// The daemon's process, as the kernel reports it; none if it lives in a PID namespace that this process cannot see.
    pub pid: Option<Pid>,
}

impl Stream {
    /// Connects.
    ///
    /// # Errors
    /// `ConnectionRefused` if the daemon died, `TimedOut` if it accepts no connection, `PermissionDenied` if a user other than
    /// the directory's owner listens, and the errors of opening the socket.
    pub fn connect(dir: &SocketDir, name: &SocketName, deadline: Instant) -> io::Result<Self> {
        let socket = dir.socket(name)?;
        let ours =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // With a full backlog connect blocks, up to this timeout.
        set_socket_timeout(&ours, Timeout::Send, Some(left(deadline)?))?;
        // By descriptor: the name may be replaced after it was looked up.
        let address = SocketAddrUnix::new(files::path_of(&socket))?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&ours, &address))
            .map_err(|errno| if errno == rustix::io::Errno::AGAIN { silent() } else { errno.into() })?;
        let stream = UnixStream::from(ours);
        // The credentials of the listening process, from the time when it began to listen.
        let peer = of_peer(&stream)?;
        if peer.uid != dir.owner {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the socket belongs to a process of another user",
            ));
        }
        Ok(Stream { stream, deadline, pid: peer.pid })
    }

    /// Shuts down the writing side.
    #[cfg(test)]
    pub fn end(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buffer).map_err(in_time)
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(buffer).map_err(in_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time left until the deadline. Never zero, which would mean no timeout.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(silent()) } else { Ok(left.max(Duration::from_millis(1))) }
}

fn in_time(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { silent() } else { error }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no reply in time: the process is stopped or blocked")
}
