//! A session of the framework connected to a mock kernel.

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::bounded;
use shunt_fuse::{Config, Device, FileSystem, Handle, NegotiationError, Session};
use shunt_fuse_abi::InitOut;

use crate::kernel::MockKernel;
use crate::offer::Offer;
use crate::pending::REPLY_TIMEOUT;

/// Maximum size of a WRITE in bytes: it fits in one message of a socket on any system.
const MAX_WRITE_BYTES: u32 = 64 << 10;

/// A file system that is being served, and the mock kernel that sends the requests.
#[derive(Debug)]
pub struct Served<F> {
    kernel: MockKernel,
    fs: Arc<F>,
    handle: Handle,
    init: InitOut,
}

impl<F> Deref for Served<F> {
    type Target = MockKernel;
    fn deref(&self) -> &MockKernel {
        &self.kernel
    }
}

impl<F: FileSystem> Served<F> {
    /// Serves `fs` to a kernel that offers all capabilities.
    ///
    /// # Panics
    /// The session does not start.
    pub fn new(fs: impl Into<Arc<F>>, config: Config) -> Self {
        Self::offered(&Offer::default(), fs, config)
            .unwrap_or_else(|error| panic!("cannot start the session: {error}"))
    }

    /// Serves `fs` to a kernel with this offer.
    ///
    /// # Errors
    /// The negotiation failed.
    ///
    /// # Panics
    /// The server does not reply.
    pub fn offered(offer: &Offer, fs: impl Into<Arc<F>>, config: Config) -> Result<Self, NegotiationError> {
        let fs = fs.into();
        let served = fs.clone();
        let config = config.max_write(MAX_WRITE_BYTES);
        let (begun, beginning) = bounded(1);
        let kernel = MockKernel::start(move |fd| {
            let device = Device::new(fd).expect("a socket is a valid device");
            match Session::<F>::negotiate(served, config, device) {
                Err(error) => drop(begun.send(Err(error))),
                Ok(session) => {
                    begun.send(Ok(session.handle())).ok();
                    session.run().expect("the session ends without an error");
                }
            }
        });
        let init = kernel.init(offer);
        let handle =
            beginning.recv_timeout(REPLY_TIMEOUT).expect("the session starts or reports an error")?;
        let init = init.expect("the session has replied to INIT");
        Ok(Self { kernel, fs, handle, init })
    }

    /// Returns the file system.
    pub fn fs(&self) -> &Arc<F> {
        &self.fs
    }

    /// Returns the session.
    pub fn session(&self) -> &Handle {
        &self.handle
    }

    /// Returns the reply to INIT.
    pub fn init_out(&self) -> &InitOut {
        &self.init
    }

    /// Finishes as [`MockKernel::finish`] does, and returns the file system.
    pub fn finish(self) -> Arc<F> {
        // A handle keeps threads of the session alive.
        drop(self.handle);
        self.kernel.finish();
        self.fs
    }
}
