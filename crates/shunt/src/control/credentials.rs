//! The credentials of the process at the other end of a socket.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::process::Pid;

/// The process at the other end, at the time when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// None if it lives in a PID namespace that is not a descendant of this process's.
    pub pid: Option<Pid>,
    /// Its effective user.
    pub uid: u32,
}

/// Reads `SO_PEERCRED`.
///
/// rustix has this call too, but its type cannot represent the pid 0 of a process that this one cannot see.
pub fn of_peer(stream: &UnixStream) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = mem::size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to `peer`, which are integers.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if done != 0 || size as usize != mem::size_of_val(&peer) {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: Pid::from_raw(peer.pid), uid: peer.uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_us() {
        let (one, _other) = UnixStream::pair().unwrap();
        let credentials = of_peer(&one).unwrap();
        assert_eq!(credentials.pid, Some(rustix::process::getpid()));
        assert_eq!(credentials.uid, rustix::process::geteuid().as_raw());
    }
}
