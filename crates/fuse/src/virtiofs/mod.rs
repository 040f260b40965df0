//! A server for virtual machines: virtiofs, over the protocol vhost-user.
//!
//! Unlike the kernel of a local mount, a guest's kernel cannot be notified of changes: there is no way to send it anything but
//! replies. No call of [`Caches`](crate::Caches) therefore has an effect (EOPNOTSUPP), and everything that others may change must
//! have finite cache times.

#[cfg(any(test, feature = "test-driver"))]
pub mod test_driver;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vhost::vhost_user::{Error as Protocol, Listener};
use vhost_user_backend::{Error, ShutdownHandle, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::session::FileSystem;
use crate::session::guest::Guest;
use crate::transport::virtio::{self, Device};
use crate::{Config, Handle};

/// Maximum length of a [tag](Server::tag) in bytes.
pub const MAX_TAG_BYTES: usize = virtio::TAG_BYTES;

/// Maximum number of request queues that a guest may use.
pub const REQUEST_QUEUES: usize = virtio::MAX_QUEUES - 1;

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
    listener: Mutex<Option<UnixListener>>,
    connection: Mutex<Option<ShutdownHandle>>,
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
        if let Some(listener) = &*self.0.listener.lock() {
            rustix::net::shutdown(listener.as_fd(), rustix::net::Shutdown::Both).ok();
        }
        if let Some(connection) = &*self.0.connection.lock() {
            connection.shutdown();
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

    /// Serves one emulator after the other until it is [stopped](Self::stop). An emulator may reconnect at any time; its guest
    /// then starts a new session.
    ///
    /// # Errors
    /// The socket cannot be used, or a thread cannot be started.
    pub fn serve(&self, listener: UnixListener) -> io::Result<()> {
        *self.stop.0.listener.lock() = Some(listener.try_clone()?);
        let mut listener = Listener::from(listener);
        while !self.stop.is_stopped() {
            let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
            let (threads, max_write) = (self.config.max_threads, self.config.max_write);
            let device = Device::new(self.guest.clone(), memory.clone(), threads, max_write, self.tag);
            let device = virtio::Shared::new(device);
            let mut daemon =
                VhostUserDaemon::new("shunt-vhost".to_owned(), device, memory).map_err(failed)?;
            match daemon.start(&mut listener) {
                Ok(()) => {}
                Err(_) if self.stop.is_stopped() => break,
                Err(error) => return Err(failed(error)),
            }
            tracing::info!("emulator connected");
            *self.stop.0.connection.lock() = daemon.shutdown_handle();
            if self.stop.is_stopped() {
                daemon.request_shutdown();
            }
            let ended = daemon.wait();
            *self.stop.0.connection.lock() = None;
            match ended {
                Ok(()) | Err(Error::HandleRequest(Protocol::Disconnected | Protocol::PartialMessage)) => {
                    tracing::info!("emulator disconnected");
                }
                Err(error) => tracing::warn!("emulator disconnected after an error: {error}"),
            }
            drop(daemon);
            self.guest.end();
        }
        Ok(())
    }
}

fn failed(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}
