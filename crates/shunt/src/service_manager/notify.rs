//! Notifications to the service manager. The socket is connected before the process is sandboxed, which may forbid it later.
//! Without a service manager all of these do nothing.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

use sd_notify::NotifyState;

static SOCKET: OnceLock<UnixDatagram> = OnceLock::new();

/// Reports whether a service manager started this process and expects reports of its state.
pub fn is_present() -> bool {
    SOCKET.get().is_some()
}

/// Connects to the service manager. Only for the main process of a service: a daemon in the background is none.
pub fn connect() {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let connected = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        Ok(socket)
    });
    match connected {
        Ok(socket) => drop(SOCKET.set(socket)),
        // There is no log yet.
        Err(error) => eprintln!(
            "shunt: cannot connect to the service manager at {}: {error}; check NOTIFY_SOCKET",
            path.display()
        ),
    }
}

/// Sends states. A service manager that cannot be reached must not stop the service.
pub(super) fn send(states: &[NotifyState<'_>]) {
    let Some(socket) = SOCKET.get() else { return };
    let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
    if let Err(error) = socket.send(lines.join("\n").as_bytes()) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

/// The mount is served; `line` describes it.
pub fn ready(line: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(&one_line(line))]);
}

/// Runs a reload between its two notifications.
pub fn reloading(reload: impl FnOnce()) {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    send(&states);
    reload();
    send(&[NotifyState::Ready]);
}

/// The service ends.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// The mount is being left to the next process.
pub fn restarting() {
    send(&[NotifyState::Stopping, NotifyState::Status("leaving the mount to the next process")]);
}

/// A state is one line.
fn one_line(line: &str) -> String {
    line.replace(['\n', '\r'], " ")
}
