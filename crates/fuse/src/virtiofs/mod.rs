//! A server for virtual machines: virtiofs, over the protocol vhost-user.
//!
//! Unlike the kernel of a local mount, a guest's kernel cannot be notified of changes: there is no way to send it anything but
//! replies. No call of [`Caches`](crate::Caches) therefore has an effect (EOPNOTSUPP), and everything that others may change must
//! have finite cache times.

mod connection;
#[cfg(test)]
mod takeover_tests;
#[cfg(any(test, feature = "test-driver"))]
pub mod test_driver;
mod worker;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vhost::vhost_user::{BackendReqHandler, Error as Protocol};

use crate::guardian::{self, Guardian, GuardianError, HandOver};
use crate::session::FileSystem;
use crate::session::guest::Guest;
use crate::transport::virtio::{self, Device};
use crate::{Config, Handle, NegotiationError};

/// Maximum length of a [tag](Server::tag) in bytes.
pub const MAX_TAG_BYTES: usize = virtio::TAG_BYTES;

/// Maximum number of request queues that a guest may use.
pub const REQUEST_QUEUES: usize = virtio::MAX_QUEUES - 1;

/// The source of the connections of emulators.
#[derive(Debug)]
pub struct Connections(ConnectionSource);

#[derive(Debug)]
enum ConnectionSource {
    /// The socket itself. A connection ends with this process.
    Socket(UnixListener),
    /// The guardian, which holds the connections and hands each over to one server after the other.
    Guardian(OwnedFd),
}

impl From<UnixListener> for Connections {
    fn from(socket: UnixListener) -> Self {
        Self(ConnectionSource::Socket(socket))
    }
}

impl Connections {
    fn try_clone(&self) -> io::Result<OwnedFd> {
        match &self.0 {
            ConnectionSource::Socket(socket) => socket.as_fd().try_clone_to_owned(),
            ConnectionSource::Guardian(end) => end.try_clone(),
        }
    }

    /// Waits for the next emulator; `None` once there is none any more.
    fn accept(&self) -> io::Result<Option<UnixStream>> {
        match &self.0 {
            ConnectionSource::Socket(socket) => socket.accept().map(|(stream, _)| Some(stream)),
            ConnectionSource::Guardian(end) => Ok(guardian::accept_connection(end.as_fd())),
        }
    }
}

/// Listens on a socket for the emulators of virtual machines, and serves one at a time.
pub struct Server<F> {
    guest: Arc<Guest<F>>,
    config: Config,
    tag: Option<[u8; virtio::TAG_BYTES]>,
    stop: Stop,
}

impl<F> std::fmt::Debug for Server<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// Stops a [`Server`], from any thread.
#[derive(Clone)]
pub struct Stop(Arc<Stopping>);

#[derive(Default)]
struct Stopping {
    stopped: AtomicBool,
    source: Mutex<Option<OwnedFd>>,
    connection: Mutex<Option<UnixStream>>,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stop").field(&self.0.stopped).finish()
    }
}

impl Stop {
    /// Accepts no further connection, and closes the current one.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        if let Some(source) = &*self.0.source.lock() {
            rustix::net::shutdown(source, rustix::net::Shutdown::Both).ok();
        }
        if let Some(connection) = &*self.0.connection.lock() {
            connection.shutdown(Shutdown::Both).ok();
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }
}

impl<F: FileSystem> Server<F> {
    /// Makes a server. `make` returns a file system for each session, which begins whenever a guest mounts; `began` is called
    /// with the handle of each.
    ///
    /// The threads of `config` are those for requests that take long, or that arrive many at once; settings of `/dev/fuse` are
    /// ignored.
    pub fn new(
        config: Config,
        make: impl Fn() -> io::Result<F> + Send + Sync + 'static,
        began: impl Fn(&Handle) + Send + Sync + 'static,
    ) -> Self {
        let guest = Arc::new(Guest::new(Box::new(make), Box::new(began), config.clone()));
        Self { guest, config, tag: None, stop: Stop(Arc::default()) }
    }

    /// Sets the name by which the guest mounts the file system, for emulators that ask (QEMU has its own): 1 to [`MAX_TAG_BYTES`]
    /// bytes. `None` where the length is not in that range.
    pub fn tag(mut self, tag: &[u8]) -> Option<Self> {
        let mut name = [0; virtio::TAG_BYTES];
        name.get_mut(..tag.len()).filter(|room| !room.is_empty())?.copy_from_slice(tag);
        self.tag = Some(name);
        Some(self)
    }

    /// Returns a handle that stops the server.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Has the guardian accept the emulators that connect to `socket`, which listens at `path`, and leaves everything to the next
    /// server when this one ends. Returns the connections to [serve](Self::serve). From here on the guardian accepts only the state
    /// of sessions, and a limited number of files.
    ///
    /// # Errors
    /// The guardian has exited, or no descriptor is available.
    pub fn guard(
        &self,
        guardian: &Arc<Guardian>,
        socket: &UnixListener,
        path: &Path,
    ) -> Result<Connections, GuardianError> {
        let end = guardian.relay(socket.as_fd(), path)?;
        guardian.arm()?;
        guardian.confine()?;
        self.guest.set_guardian(guardian.clone());
        Ok(Connections(ConnectionSource::Guardian(end)))
    }

    /// Continues what the last server left: the connection of the emulator, and the session of its guest, if there was one. Then
    /// `fs` is the file system that resumes it. Returns the connections to [serve](Self::serve).
    ///
    /// # Errors
    /// The state is of another version, or is not a session of this file system.
    pub fn resume(&mut self, fs: Option<F>, hand_over: HandOver) -> Result<Connections, NegotiationError> {
        let HandOver { guardian, mut descriptors, takeovers, .. } = hand_over;
        let guardian = Arc::new(guardian);
        self.guest.set_guardian(guardian.clone());
        let end = descriptors.remove(&guardian::fd_store::GUEST_CONNECTIONS);
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "the guardian handed over no connection");
        let end = end.ok_or_else(|| NegotiationError::Start(missing()))?;
        if let Some(fs) = fs {
            self.guest.resume(Arc::new(fs), descriptors, takeovers)?;
        }
        guardian.taken_over().map_err(|error| NegotiationError::Start(io::Error::other(error)))?;
        Ok(Connections(ConnectionSource::Guardian(end)))
    }

    /// Ends the guardian together with this server: no other one follows.
    pub fn end_guardian(&self) {
        self.guest.end_guardian();
    }

    /// Serves one emulator after the other until it is [stopped](Self::stop). An emulator may reconnect at any time; its guest
    /// then starts a new session.
    ///
    /// # Errors
    /// The socket cannot be used, or a thread cannot be started.
    pub fn serve(&self, connections: impl Into<Connections>) -> io::Result<()> {
        let connections = connections.into();
        *self.stop.0.source.lock() = Some(connections.try_clone()?);
        while !self.stop.is_stopped() {
            let stream = match connections.accept() {
                Ok(Some(stream)) => stream,
                _ if self.stop.is_stopped() => break,
                Ok(None) => {
                    return Err(io::Error::other("the guardian has ended, and the connection with it"));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            tracing::info!("emulator connected");
            *self.stop.0.connection.lock() = Some(stream.try_clone()?);
            if self.stop.is_stopped() {
                break;
            }
            match self.serve_emulator(stream)? {
                Protocol::Disconnected | Protocol::PartialMessage | Protocol::SocketBroken(_) => {
                    tracing::info!("emulator disconnected");
                }
                _ if self.stop.is_stopped() => {}
                error => tracing::warn!("emulator disconnected after an error: {error}"),
            }
            *self.stop.0.connection.lock() = None;
            if !self.stop.is_stopped() {
                self.guest.end();
            }
        }
        Ok(())
    }

    /// Serves one emulator until its connection ends; returns how it ended.
    fn serve_emulator(&self, stream: UnixStream) -> io::Result<Protocol> {
        let memory = connection::no_memory();
        let (threads, max_write) = (self.config.max_threads, self.config.max_write);
        let device = Device::new(self.guest.clone(), memory.clone(), threads, max_write, self.tag);
        let state = connection::Connection::new(virtio::Shared::new(device), memory)?;
        let state = Arc::new(std::sync::Mutex::new(state));
        let mut messages = BackendReqHandler::from_stream(stream, state.clone());
        loop {
            if let Err(error) = messages.handle_request() {
                state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).stop();
                return Ok(error);
            }
        }
    }
}
