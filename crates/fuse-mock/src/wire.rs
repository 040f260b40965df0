//! The socket that replaces `/dev/fuse`.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{
    Timeout, set_socket_send_buffer_size, set_socket_send_buffer_size_force, set_socket_timeout,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use shunt_fuse::Errno;

/// Buffer size for the largest message of either side, with some margin.
pub(crate) const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Size of the socket's buffer, as the kernel accounts for it (about 800 bytes for a small message).
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Makes a pair of connected sockets that keep message boundaries.
pub(crate) fn pair(patience: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for end in [&ours, &theirs] {
        // Without the privilege the system's limit applies, which is enough for messages of 64 KiB.
        set_socket_send_buffer_size_force(end, SOCKET_BUFFER_BYTES)
            .or_else(|_| set_socket_send_buffer_size(end, SOCKET_BUFFER_BYTES))?;
    }
    set_socket_timeout(&ours, Timeout::Send, Some(patience))?;
    Ok((ours, theirs))
}

/// Sends one message.
pub(crate) fn send(fd: &OwnedFd, message: &[u8]) -> Result<(), Errno> {
    loop {
        match rustix::net::send(fd, message, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

/// Waits for one message; `None` once the peer has closed it.
pub(crate) fn receive<'a>(fd: &OwnedFd, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = loop {
        match rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((length, _)) => break length,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    };
    buffer.get(..length)
}

/// Shuts down both directions, or only the one of replies.
pub(crate) fn shut(fd: &OwnedFd, both: bool) {
    rustix::net::shutdown(fd, if both { Shutdown::Both } else { Shutdown::Read }).ok();
}
