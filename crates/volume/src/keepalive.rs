//! Lines that went silent: nothing says that they did, so whoever waits has to find out.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// A line of which nothing was heard for so long, while something had to come, is none. It is what a program waits that
/// reads what is not here, when a network goes away without a word.
pub(crate) const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// A line on which nothing was to be heard is tried after so long,
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// and then so often.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Has a TCP connection end once the other machine has confirmed nothing for [`USER_TIMEOUT`], neither what was sent nor that
/// it is there; one that is slow confirms.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub(crate) fn end_when_silent(connection: impl AsFd) -> io::Result<()> {
    let connection = connection.as_fd();
    sockopt::set_tcp_user_timeout(connection, USER_TIMEOUT.as_millis() as u32)?;
    sockopt::set_tcp_keepidle(connection, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(connection, KEEPALIVE_INTERVAL)?;
    sockopt::set_socket_keepalive(connection, true)?;
    Ok(())
}
