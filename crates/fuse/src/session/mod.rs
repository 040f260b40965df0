//! A session: one connection to a kernel, from INIT to the last request. It negotiates the protocol, starts the file system, and
//! serves requests on several threads until the file system is unmounted or the connection is aborted. With a guardian, the next
//! server can resume it.

mod append;
mod busy_poll;
mod caches;
mod callers;
mod dispatch;
mod drain;
mod executor;
mod filesystem;
mod forward;
#[cfg(feature = "virtiofs")]
pub(crate) mod guest;
pub(crate) mod intent;
pub(crate) mod interrupt;
mod iomode;
mod load;
mod pm_qos;
mod readers;
mod replay;
mod request;
mod ring;
mod serve;
mod single_client;
pub(crate) mod statistics;
pub(crate) mod task;
mod transport;
mod waiting;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InitFlags, OutHeader, ParseContext, Wire};

pub use append::append_once;
pub use caches::{Caches, Caching};
pub use callers::CallerStatistics;
pub use filesystem::{Answer, FileSystem};
pub use request::Request;
pub use statistics::{OperationStatistics, Snapshot, latency_bounds};
pub use transport::TransportInUse;

use crate::api::Opened;
use crate::cache::write_out::Mountpoint;
use crate::cache::{Listener, Notifier};
use crate::guardian::Guardian;
use crate::guardian::fd_store::{DescriptorClass, StoredDescriptors};
use crate::id::{FileHandle, NodeId};
use crate::negotiate::{Circumstances, Config, Negotiated, NegotiationError, Outcome, negotiate};
use crate::passthrough::{Backing, Passthrough};
use crate::takeover::{OpenKind, OpenRecord, Takeover};
use crate::transport::device::Device;
use crate::transport::pipe::PipePool;
use executor::Executor;
use interrupt::EarlyInterrupts;
use iomode::Modes;
use pm_qos::LatencyRequest;
use readers::Readers;
use ring::Rings;
use statistics::Statistics;
use waiting::WaitingTasks;

/// State shared by all threads of a session.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Arc<Device>,
    pub(crate) negotiated: Negotiated,
    pub(crate) parse: ParseContext,
    pub(crate) statistics: Statistics,
    pub(crate) callers: callers::Callers,
    pub(crate) waiting: WaitingTasks,
    /// Interrupts of requests whose handlers have not yet waited.
    pub(crate) early_interrupts: EarlyInterrupts,
    pub(crate) executor: Executor,
    pub(crate) notifier: Notifier,
    pub(crate) listener: Listener,
    pub(crate) modes: Modes,
    pub(crate) readers: Readers,
    pub(crate) rings: Rings,
    transport: Mutex<TransportInUse>,
    pub(crate) pipes: Option<Arc<PipePool>>,
    pub(crate) takeover: Option<Arc<Takeover>>,
    passthrough: Option<Passthrough>,
    /// Backing files that an earlier server kept, until the file system takes them.
    kept_backings: Mutex<Vec<(NodeId, Backing)>>,
    destroyed: AtomicBool,
}

impl Shared {
    /// Counts an open and makes its reply. `flags` are the caller's.
    pub(crate) fn open_reply(&self, opener: u64, node: NodeId, flags: u32, opened: &Opened) -> abi::OpenOut {
        let may_skip_flush = !self.negotiated.has(InitFlags::POSIX_LOCKS);
        let mut out = self.modes.open(node, opened, flags, may_skip_flush);
        // When a connection is aborted the kernel does not wait for transfers in flight. The pages of its cache stay valid, but
        // direct I/O hands out the caller's own memory, which would change after the call has failed. O_DIRECT that is set later,
        // by fcntl(2), cannot be seen here.
        let is_direct =
            flags & libc::O_DIRECT as u32 != 0 || out.open_flags & abi::OpenOutFlags::DIRECT_IO.bits() != 0;
        if is_direct || !self.rings.zero_copy() {
            out.open_flags &= !abi::OpenOutFlags::IO_URING_ZERO_COPY.bits();
        }
        if out.backing_id != 0 {
            self.statistics.passthrough_open();
        }
        self.write_down(OpenKind::File, opener, node, flags, &out);
        out
    }

    /// Records an open file or directory for the next server.
    pub(crate) fn write_down(
        &self,
        kind: OpenKind,
        opener: u64,
        node: NodeId,
        flags: u32,
        out: &abi::OpenOut,
    ) {
        if let Some(takeover) = &self.takeover {
            takeover.opened(kind, &OpenRecord::new(opener, node, flags, out));
        }
    }

    /// Records that a file was closed; `backing` is the result of [`Modes::release`].
    pub(crate) fn closed(&self, handle: FileHandle, backing: Option<Backing>) {
        match &self.takeover {
            Some(takeover) => takeover.closed(OpenKind::File, handle, || drop(backing)),
            None => drop(backing),
        }
    }

    /// Records that a directory was closed.
    pub(crate) fn closed_directory(&self, handle: FileHandle) {
        if let Some(takeover) = &self.takeover {
            takeover.closed(OpenKind::Directory, handle, || ());
        }
    }

    /// Restores the opens of an earlier server. The kernel's view of them did not change.
    fn adopt_opens(&self) {
        let Some(takeover) = &self.takeover else { return };
        // Inodes that a file system shows for the same file may share a registration, which ends with the last of them.
        let mut adopted = HashMap::new();
        let mut adopt = |node: NodeId, id: u32| {
            let passthrough = self.passthrough.as_ref().filter(|_| id != 0)?;
            Some(adopted.entry(id).or_insert_with(|| passthrough.adopt(node, id)).clone())
        };
        for file in takeover.files() {
            self.modes.adopt(file.node, adopt(file.node, file.backing));
        }
        let kept = takeover.kept_backings().into_iter();
        self.kept_backings.lock().extend(kept.filter_map(|(node, id)| Some((node, adopt(node, id)?))));
        if self.passthrough.is_some() {
            // Most ids are not registered.
            takeover.close_stray_backings(|id| {
                self.device.close_backing(id).ok();
            });
        }
    }

    /// Runs the file system's last call once, at DESTROY or at the end of the session, whichever comes first.
    pub(crate) fn destroy(&self, call: impl FnOnce()) {
        if !self.destroyed.swap(true, Ordering::AcqRel) {
            call();
        }
    }
}

/// A handle on a running session, for handlers and for other threads.
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

    /// Returns the FUSE device, for programs that attach to the connection in the kernel. Reading or writing it breaks the
    /// session.
    pub fn device(&self) -> std::os::fd::BorrowedFd<'_> {
        self.shared.device.as_fd()
    }

    /// Returns the negotiated features.
    pub fn negotiated(&self) -> &Negotiated {
        &self.shared.negotiated
    }

    /// Returns the handle on the kernel's caches.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Returns the registry of backing files, where passthrough is enabled; otherwise [`Negotiated::refusal`] has the reason.
    pub fn passthrough(&self) -> Option<&Passthrough> {
        self.shared.passthrough.as_ref()
    }

    /// Returns the state of this session that survives the process, where a successor is to follow it.
    pub fn takeover(&self) -> Option<&Takeover> {
        self.shared.takeover.as_deref()
    }

    /// Takes the backing files that an earlier server [kept](Takeover::keep_backing). A file system whose program in the kernel
    /// opens files calls this at its start.
    pub fn take_kept_backings(&self) -> Vec<(NodeId, Backing)> {
        std::mem::take(&mut *self.shared.kept_backings.lock())
    }

    /// Returns counts and latencies.
    pub fn statistics(&self) -> Snapshot {
        self.shared.statistics.snapshot()
    }

    /// Returns the threads that sent requests, at most 256 of the recent ones, in no order.
    pub fn callers(&self) -> Vec<CallerStatistics> {
        self.shared.callers.snapshot()
    }

    /// Returns the number of requests whose handlers wait.
    pub fn waiting_requests(&self) -> usize {
        self.shared.waiting.len()
    }

    /// Returns the number of threads that read requests, including those of ring queues.
    pub fn threads(&self) -> usize {
        self.shared.readers.threads() + self.shared.rings.threads()
    }

    /// Returns the transport of requests, valid from the start of serving.
    pub fn transport(&self) -> TransportInUse {
        self.shared.transport.lock().clone()
    }

    /// Returns the number of bursts of requests for which CPUs were kept awake; see [`Config::busy_poll`].
    pub fn wakeful_bursts(&self) -> u64 {
        self.shared.readers.bursts()
    }

    /// Returns the number of open inodes.
    pub fn open_nodes(&self) -> usize {
        self.shared.modes.open_nodes()
    }

    /// Returns how often the notification queue overflowed into expiring every name.
    pub fn notification_overflows(&self) -> u64 {
        self.shared.notifier.overflows()
    }

    /// Sets the access to the session's own mount, for [`Caches::write_out`]. The descriptor is closed after each use.
    pub(crate) fn set_mountpoint(
        &self,
        open_root: impl Fn() -> io::Result<std::os::fd::OwnedFd> + Send + Sync + 'static,
    ) {
        self.shared.notifier.set_mountpoint(Mountpoint(Arc::new(open_root)));
    }
}

/// A connection that has been negotiated and has no file system yet: requests wait in the kernel.
pub(crate) struct Agreed {
    handle: Handle,
    rings: Option<ring::PreparedRings>,
    processors: LatencyRequest,
}

impl std::fmt::Debug for Agreed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agreed").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// A connection that has been negotiated and waits to be served.
pub struct Session<F> {
    fs: Arc<F>,
    agreed: Agreed,
}

impl<F> std::fmt::Debug for Session<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("agreed", &self.agreed).finish_non_exhaustive()
    }
}

/// The connection to the kernel and the negotiated features.
struct Connection {
    device: Arc<Device>,
    negotiated: Negotiated,
    rings: Option<ring::PreparedRings>,
    transport: TransportInUse,
}

impl Agreed {
    /// Waits for the kernel's INIT and answers it. `guardian` starts a successor if this server ends.
    ///
    /// # Errors
    /// Any [`NegotiationError`]. The connection cannot be used afterwards.
    pub(crate) fn negotiate(
        config: &Config,
        device: Device,
        guardian: Option<Arc<Guardian>>,
    ) -> Result<Self, NegotiationError> {
        let guardian = guardian.filter(|guardian| guardian.may_restart());
        let (negotiated, rings, transport) = handshake(&device, config, guardian.is_some())?;
        let takeover = guardian.and_then(|guardian| {
            if rings.is_some() {
                tracing::info!("no takeover after a crash: the transport is io_uring");
                return None;
            }
            if !negotiated.has(InitFlags::HAS_RESEND) {
                tracing::info!(
                    "no takeover after a crash: this kernel cannot resend requests (needs Linux 6.9)"
                );
                return None;
            }
            Takeover::begin(guardian, &negotiated, &device)
                .inspect_err(|error| tracing::warn!("no takeover after a crash: {error}"))
                .ok()
        });
        let connection = Connection { device: Arc::new(device), negotiated, rings, transport };
        Ok(Self::new(config, connection, takeover.map(Arc::new)))
    }

    /// Continues the session of an earlier server.
    ///
    /// # Errors
    /// The handed-over state is not a session of this file system.
    pub(crate) fn resume(
        config: &Config,
        guardian: Arc<Guardian>,
        held: StoredDescriptors,
        takeovers: u32,
    ) -> Result<Self, NegotiationError> {
        let (devices, mut held): (StoredDescriptors, StoredDescriptors) =
            held.into_iter().partition(|(key, _)| key.class == DescriptorClass::Device);
        let mut devices = devices.into_values();
        let device = devices.next().ok_or_else(|| {
            let error =
                io::Error::new(io::ErrorKind::InvalidData, "the guardian handed over no FUSE connection");
            NegotiationError::Start(error)
        })?;
        let device = Arc::new(Device::new(device).map_err(NegotiationError::Start)?);
        let clones = devices.map(|clone| Device::new(clone).map(Arc::new));
        let clones = clones.collect::<io::Result<_>>().map_err(NegotiationError::Start)?;
        let (takeover, mut negotiated) =
            Takeover::resume(guardian, &mut held, clones, takeovers).map_err(NegotiationError::Start)?;
        negotiated.refused = crate::negotiate::refused_earlier(config.requested - negotiated.granted);
        let refusal = negotiated.refusal(config.required);
        if let Some(refusal) = refusal {
            return Err(NegotiationError::Required(refusal.clone()));
        }
        let takeover = Arc::new(takeover);
        let connection = Connection { device, negotiated, rings: None, transport: TransportInUse::dev(None) };
        Ok(Self::new(config, connection, Some(takeover)))
    }

    fn new(config: &Config, connection: Connection, takeover: Option<Arc<Takeover>>) -> Self {
        let Connection { device, negotiated, rings, transport } = connection;
        let has = |capability| negotiated.has(capability);
        let pipes = (config.splice && device.is_kernel())
            .then(|| PipePool::new(config.max_write as usize + 2 * 4096, 2));
        let notifier = Notifier::new(device.clone());
        notifier.set_expires_names(has(InitFlags::HAS_EXPIRE_ONLY));
        notifier.set_expires_all(negotiated.minor >= 44);
        let shared = Arc::new(Shared {
            parse: ParseContext { setxattr_ext: has(InitFlags::SETXATTR_EXT), minor: negotiated.minor },
            statistics: Statistics::default(),
            callers: callers::Callers::default(),
            waiting: WaitingTasks::default(),
            early_interrupts: EarlyInterrupts::default(),
            executor: Executor::new(config.max_threads, has(InitFlags::PASSTHROUGH)),
            notifier,
            listener: Listener::default(),
            modes: Modes::new(config.trusts_open_flags),
            readers: Readers::new(config.threads, config.max_threads),
            rings: Rings::default(),
            transport: Mutex::new(transport),
            pipes,
            takeover,
            passthrough: has(InitFlags::PASSTHROUGH).then(|| Passthrough::new(device.clone())),
            kept_backings: Mutex::default(),
            destroyed: AtomicBool::new(false),
            negotiated,
            device,
        });
        shared.adopt_opens();
        Self { handle: Handle::new(shared), rings, processors: LatencyRequest::new(config.busy_poll) }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Sets up what takes the privileges that the process may drop before it serves. Called once the mount exists.
    pub(crate) fn use_privileges(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.add_queues(&self.handle.shared.device);
        }
    }

    /// Starts the file system.
    ///
    /// # Errors
    /// The error of [`FileSystem::start`].
    pub(crate) fn start<F: FileSystem>(self, fs: Arc<F>) -> Result<Session<F>, NegotiationError> {
        fs.start(&self.handle).map_err(NegotiationError::Start)?;
        Ok(Session { fs, agreed: self })
    }
}

impl<F: FileSystem> Session<F> {
    /// Waits for the kernel's INIT, answers it, and starts the file system.
    ///
    /// # Errors
    /// Any [`NegotiationError`]. The connection cannot be used afterwards.
    pub fn negotiate(
        fs: impl Into<Arc<F>>,
        config: Config,
        device: Device,
    ) -> Result<Self, NegotiationError> {
        Agreed::negotiate(&config, device, None)?.start(fs.into())
    }

    /// Has the kernel resend the requests that an earlier server had read. Called once, before this one reads its first request:
    /// requests read from there on are its own and must not be resent.
    pub(crate) fn continue_requests(&self) -> Result<(), NegotiationError> {
        let device = &self.agreed.handle.shared.device;
        device.notify(&abi::notify::resend()).map_err(|errno| NegotiationError::Start(io::Error::from(errno)))
    }

    /// Ends the session: no further notifications or replies.
    fn end(&self) {
        let shared = &self.agreed.handle.shared;
        shared.notifier.close();
        shared.waiting.cancel_all();
        shared.destroy(|| self.fs.destroy());
    }

    /// Returns a handle, which may outlive the session.
    pub fn handle(&self) -> Handle {
        self.agreed.handle.clone()
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &Arc<F> {
        &self.fs
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// Errors of starting threads and of the device.
    pub fn run(mut self) -> io::Result<()> {
        let (rings, processors) = (self.agreed.rings.take(), std::mem::take(&mut self.agreed.processors));
        let result = readers::serve(&self.fs, &self.agreed.handle, rings, processors);
        self.end();
        result
    }
}

/// Reads INIT and answers it. `survives`: another server is to continue the session.
fn handshake(
    device: &Device,
    config: &Config,
    survives: bool,
) -> Result<(Negotiated, Option<ring::PreparedRings>, TransportInUse), NegotiationError> {
    // The kernel refuses a read with a buffer smaller than its largest request.
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
        let (rings, transport) = transport::choose(config, device, &arg, survives);
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
