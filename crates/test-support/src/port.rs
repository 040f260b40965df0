//! Ports for servers that need a fixed one, or that restart on the same port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::turn::{self, Turn};

/// Start of the range. The kernel assigns none of these ports by itself: its range begins at 32768 unless configured otherwise.
const FIRST_PORT: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

/// Locks of the reserved ports, held until the process ends.
static RESERVED: Mutex<Vec<Turn>> = Mutex::new(Vec::new());

/// Reserves a free port, which no other test on this machine gets before this process ends.
///
/// A port chosen by the kernel is not enough: once the socket that found it is closed, any other connection may get it.
///
/// If there is none.
pub fn reserve() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Processes that start in sequence begin at different ports.
    let start = (std::process::id() % u32::from(PORT_COUNT)) as u16;
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < PORT_COUNT, "no port is free");
        let port = FIRST_PORT + (start + tried) % PORT_COUNT;
        let Some(turn) = turn::try_lock_exclusive(&format!("port-{port}")) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            RESERVED.lock().expect("nobody panicked").push(turn);
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;

    #[test]
    fn a_reserved_port_is_given_to_nobody_else() {
        let ours = reserve();
        assert_ne!(reserve(), ours);
        // Like another process that begins at the same port.
        let peer = Peer::start(|_| {
            let lock = turn::try_lock_exclusive(&format!("port-{ours}"));
            assert!(lock.is_none(), "{ours} is free for others");
        });
        peer.done();
    }

    #[test]
    fn a_port_in_use_is_passed_over() {
        let next = reserve() + 1;
        let _server = TcpListener::bind((Ipv4Addr::LOCALHOST, next));
        assert_ne!(reserve(), next);
    }
}
