//! TCP keepalive and user timeout, for connections to stores and gateways: detect a peer that became unreachable without closing
//! the connection. Data that are not acknowledged for ten seconds, or as long without a reply to probes, end it.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// Timeout for data or acknowledgements that are due, see tcp(7). It is how long a program that reads an uncached file waits
/// when the network fails silently.
pub const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time before the first keepalive probe.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Interval between keepalive probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Makes a TCP connection fail once the peer has acknowledged neither data nor probes for [`USER_TIMEOUT`]; a slow peer
/// acknowledges.
///
/// # Errors
/// An [`io::Error`] of `setsockopt(2)`.
pub fn end_when_silent(connection: impl AsFd) -> io::Result<()> {
    let connection = connection.as_fd();
    sockopt::set_tcp_user_timeout(connection, USER_TIMEOUT.as_millis() as u32)?;
    sockopt::set_tcp_keepidle(connection, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(connection, KEEPALIVE_INTERVAL)?;
    sockopt::set_socket_keepalive(connection, true)?;
    Ok(())
}
