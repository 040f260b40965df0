//! A session of the framework under a mock kernel.

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::bounded;
use shunt_fuse::{Config, Device, FileSystem, Handle, NegotiationError, Session};
use shunt_fuse_abi::InitOut;

use crate::kernel::MockKernel;
use crate::offer::Offer;
use crate::pending::TIMEOUT;

/// Largest WRITE in bytes: what a socket takes in one message on any system.
const MAX_WRITE: u32 = 64 << 10;

/// A file system that is being served, and the kernel that asks it.
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
    /// Serves `fs` to a kernel that offers everything.
    ///
    /// # Panics
    /// Where the session does not begin.
    pub fn new(fs: impl Into<Arc<F>>, config: Config) -> Self {
        Self::offered(&Offer::default(), fs, config).unwrap_or_else(|error| panic!("no session: {error}"))
    }

    /// Serves `fs` to a kernel that offers this.
    ///
    /// # Errors
    /// Why the session does not begin.
    ///
    /// # Panics
    /// Where the server does not answer.
    pub fn offered(offer: &Offer, fs: impl Into<Arc<F>>, config: Config) -> Result<Self, NegotiationError> {
        let fs = fs.into();
        let served = fs.clone();
        let config = config.max_write(MAX_WRITE);
        let (begun, beginning) = bounded(1);
        let kernel = MockKernel::start(move |fd| {
            let device = Device::new(fd).expect("a socket");
            match Session::<F>::negotiate(served, config, device) {
                Err(error) => drop(begun.send(Err(error))),
                Ok(session) => {
                    begun.send(Ok(session.handle())).ok();
                    session.run().expect("a clean end");
                }
            }
        });
        let init = kernel.init(offer);
        let handle = beginning.recv_timeout(TIMEOUT).expect("a session, or why not")?;
        let init = init.expect("a session that begins has answered INIT");
        Ok(Self { kernel, fs, handle, init })
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<F> {
        &self.fs
    }

    /// The session.
    pub fn session(&self) -> &Handle {
        &self.handle
    }

    /// The answer to INIT.
    pub fn init_out(&self) -> &InitOut {
        &self.init
    }

    /// As [`MockKernel::finish`].
    pub fn finish(self) -> Arc<F> {
        // A handle keeps threads of the session alive.
        drop(self.handle);
        self.kernel.finish();
        self.fs
    }
}
