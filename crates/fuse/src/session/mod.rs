//! A session: one connection to a kernel, from INIT to the last request.

mod config;
mod dispatch;
mod executor;
pub(crate) mod interrupt;
mod latency;
mod load;
mod modes;
mod negotiate;
mod readers;
mod ring;
mod serve;
pub(crate) mod statistics;
pub(crate) mod task;
mod transport;

pub(crate) use serve::{Bytes, Message};

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InitFlags, OutHeader, ParseContext};
use zerocopy::IntoBytes;

pub use config::{Config, Profile};
pub use negotiate::{Negotiated, NegotiationError, PROTOCOL, Refusal};
pub use statistics::{OperationStatistics, Snapshot};
pub use transport::{Transport, TransportInUse};

use crate::api::{FileSystem, NodeId, Opened};
use crate::cache::write_out::Mountpoint;
use crate::cache::{Caches, Notifier};
use crate::passthrough::Passthrough;
use crate::transport::device::Device;
use crate::transport::pipe::PipePool;
use executor::Executor;
use interrupt::{EarlyInterrupts, Waiting};
use modes::Modes;
use negotiate::{Circumstances, Outcome, negotiate};
use readers::Readers;
use ring::Rings;
use statistics::Statistics;

/// What all threads of a session share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Arc<Device>,
    pub(crate) negotiated: Negotiated,
    pub(crate) parse: ParseContext,
    pub(crate) statistics: Statistics,
    pub(crate) waiting: Waiting,
    /// Interrupts of requests whose handlers have not yet shown whether they wait.
    pub(crate) early_interrupts: EarlyInterrupts,
    pub(crate) executor: Executor,
    pub(crate) notifier: Notifier,
    pub(crate) modes: Modes,
    pub(crate) readers: Readers,
    pub(crate) rings: Rings,
    transport: Mutex<TransportInUse>,
    pub(crate) pipes: Option<Arc<PipePool>>,
    passthrough: Option<Passthrough>,
    destroyed: AtomicBool,
}

impl Shared {
    /// Counts an open and makes its reply.
    pub(crate) fn open_reply(&self, node: NodeId, opened: &Opened) -> abi::OpenOut {
        let may_skip_flush = !self.negotiated.has(InitFlags::POSIX_LOCKS);
        let out = self.modes.open(node, opened, may_skip_flush);
        if out.backing_id != 0 {
            self.statistics.passthrough_open();
        }
        out
    }

    /// Runs the file system's last call once, whoever comes first: DESTROY or the end of the session.
    pub(crate) fn destroy(&self, call: impl FnOnce()) {
        if !self.destroyed.swap(true, Ordering::AcqRel) {
            call();
        }
    }
}

/// What handlers, and everyone else, can do with a running session.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    caches: Caches,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("negotiated", &self.shared.negotiated).finish_non_exhaustive()
    }
}

impl Handle {
    fn new(shared: Arc<Shared>) -> Self {
        Self { caches: Caches::new(shared.clone()), shared }
    }

    /// What was agreed with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.shared.negotiated
    }

    /// The kernel's caches.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Backing files, where passthrough is in force; else [`Negotiated::refusal`] tells why not.
    pub fn passthrough(&self) -> Option<&Passthrough> {
        self.shared.passthrough.as_ref()
    }

    /// Counts and latencies so far.
    pub fn statistics(&self) -> Snapshot {
        self.shared.statistics.snapshot()
    }

    /// Requests whose handlers wait.
    pub fn waiting_requests(&self) -> usize {
        self.shared.waiting.len()
    }

    /// Threads that read requests, those of ring queues included.
    pub fn threads(&self) -> usize {
        self.shared.readers.threads() + self.shared.rings.threads()
    }

    /// How requests come in, from the start of serving on.
    pub fn transport(&self) -> TransportInUse {
        self.shared.transport.lock().clone()
    }

    /// Bursts of requests for which processors were kept awake; see [`Config::wakeful`].
    pub fn wakeful_bursts(&self) -> u64 {
        self.shared.readers.bursts()
    }

    /// Inodes that are open.
    pub fn open_nodes(&self) -> usize {
        self.shared.modes.open_nodes()
    }

    /// How often so many notifications were asked for at once that every name was expired instead.
    pub fn notification_overflows(&self) -> u64 {
        self.shared.notifier.overflows()
    }

    /// How the session reaches its own mount, for [`Caches::write_out`]. The descriptor is closed after each use.
    pub fn set_mountpoint(
        &self,
        open_root: impl Fn() -> io::Result<std::os::fd::OwnedFd> + Send + Sync + 'static,
    ) {
        self.shared.notifier.set_mountpoint(Mountpoint(Arc::new(open_root)));
    }
}

/// A connection that has been negotiated and waits to be served.
pub struct Session<F> {
    fs: Arc<F>,
    handle: Handle,
    config: Config,
    rings: Option<ring::Prepared>,
}

impl<F> std::fmt::Debug for Session<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<F: FileSystem> Session<F> {
    /// Waits for the kernel's INIT, answers it, and starts the file system.
    ///
    /// # Errors
    /// Those of [`NegotiationError`]. The connection cannot be used afterwards.
    pub fn negotiate(
        fs: impl Into<Arc<F>>,
        config: Config,
        device: Device,
    ) -> Result<Self, NegotiationError> {
        let fs = fs.into();
        let device = Arc::new(device);
        let (negotiated, rings, transport) = handshake(&device, &config)?;
        let has = |capability| negotiated.has(capability);
        let pipes = (config.splice && device.is_kernel())
            .then(|| PipePool::new(config.max_write as usize + 2 * 4096, 2));
        let notifier = Notifier::new(device.clone());
        notifier.set_expires_names(has(InitFlags::HAS_EXPIRE_ONLY));
        notifier.set_expires_all(negotiated.minor >= 44);
        let shared = Arc::new(Shared {
            parse: ParseContext { setxattr_ext: has(InitFlags::SETXATTR_EXT), minor: negotiated.minor },
            statistics: Statistics::default(),
            waiting: Waiting::default(),
            early_interrupts: EarlyInterrupts::default(),
            executor: Executor::new(config.max_threads, has(InitFlags::PASSTHROUGH)),
            notifier,
            modes: Modes::default(),
            readers: Readers::new(config.threads, config.max_threads),
            rings: Rings::default(),
            transport: Mutex::new(transport),
            pipes,
            passthrough: has(InitFlags::PASSTHROUGH).then(|| Passthrough::new(device.clone())),
            destroyed: AtomicBool::new(false),
            negotiated,
            device,
        });
        let handle = Handle::new(shared);
        fs.start(&handle).map_err(NegotiationError::Start)?;
        Ok(Self { fs, handle, config, rings })
    }

    /// A handle that outlives the session.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The file system.
    pub fn file_system(&self) -> &Arc<F> {
        &self.fs
    }

    /// Serves until the mount is gone.
    ///
    /// # Errors
    /// Those of starting threads and of the device.
    pub fn run(self) -> io::Result<()> {
        let shared = &self.handle.shared;
        let result = readers::serve(&self.fs, &self.handle, &self.config, self.rings);
        shared.notifier.close();
        shared.waiting.cancel_all();
        shared.destroy(|| self.fs.destroy());
        result
    }
}

/// Reads INIT and answers it.
fn handshake(
    device: &Device,
    config: &Config,
) -> Result<(Negotiated, Option<ring::Prepared>, TransportInUse), NegotiationError> {
    // The kernel refuses to hand out a request to a reader with less room than its largest.
    let mut buffer = vec![0; (config.max_write as usize + 8192).max(1 << 20)];
    let circumstances = Circumstances {
        may_register_backing_files: crate::privilege::has_sys_admin(),
        local_device: device.is_kernel(),
    };
    loop {
        let length = loop {
            match device.receive(&mut buffer) {
                Ok(length) => break length,
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(errno) => return Err(NegotiationError::NoInit(errno.into())),
            }
        };
        let request = abi::Request::parse(&buffer[..length], &ParseContext::default())
            .map_err(|error| NegotiationError::NotInit(error.to_string()))?;
        let abi::Operation::Init { arg } = request.operation else {
            return Err(NegotiationError::NotInit(request.operation.opcode().name().to_owned()));
        };
        let reply = |error: i32, body: &[u8]| {
            let len = (OutHeader::SIZE + body.len()) as u32;
            let header = OutHeader { len, error, unique: request.header.unique };
            device.send(&header, &[body]).map_err(NegotiationError::NoInit)
        };
        let (rings, transport) = transport::choose(config, device, &arg);
        let config = &match &rings {
            Some(rings) => rings.adapt(config),
            None => config.clone(),
        };
        match negotiate(&arg, config, circumstances) {
            Ok(Outcome::Agreed(out, negotiated)) => {
                reply(0, out.as_bytes())?;
                return Ok((negotiated, rings, transport));
            }
            Ok(Outcome::AskAgain(out)) => reply(0, out.as_bytes())?,
            Err(error) => {
                reply(-Errno::PROTO.raw_os_error(), &[]).ok();
                return Err(error);
            }
        }
    }
}
