//! The configuration of a session: the capabilities to negotiate, sizes and limits, and threads. A capability that is requested
//! but not required is optional: the session starts without it.

use std::fmt;
use std::time::Duration;

use shunt_fuse_abi::InitFlags;

/// The two modes of file data. The kernel does not allow both on one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Open files may be passed through to backing files; writes reach the server, or the backing file, at once.
    #[default]
    Passthrough,
    /// The kernel's write-back cache collects writes, and owns size and mtime meanwhile.
    Writeback,
}

/// The transport of requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// The faster one for the profile, where it is available.
    Auto,
    /// `/dev/fuse`: every kernel supports it, and another process can take over the session.
    #[default]
    Dev,
    /// Over io_uring (Linux 6.14 with the parameter `enable_uring` of the module `fuse`). The session ends with its process.
    Uring,
    /// The queues of a virtual machine's device: used by `virtiofs::Server` only, which is behind the feature `virtiofs`.
    Virtio,
}

impl Transport {
    /// The transport that `Auto` stands for, as measured for each profile.
    pub(crate) fn resolve(self, profile: Profile) -> Self {
        match (self, profile) {
            // Most of a round trip is spent in the kernel; and another process can take over the session.
            (Self::Auto, Profile::Passthrough) => Self::Dev,
            // Every name that is made or removed costs a round trip.
            (Self::Auto, Profile::Writeback) => Self::Uring,
            (chosen, _) => chosen,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Dev => "dev",
            Self::Uring => "uring",
            Self::Virtio => "virtio",
        })
    }
}

/// The place where the entries of io_uring queues keep the data of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RingBuffers {
    /// In a buffer of each entry.
    PerEntry,
    /// In a pool of buffers that the entries of a queue share (Linux 7.3).
    Pool,
    /// In such a pool, except for reads and writes of files opened with [`Opened::zero_copy`](crate::Opened::zero_copy), whose data
    /// stays in the kernel's pages (Linux 7.3, CAP_SYS_ADMIN). Per entry where it is not available.
    #[default]
    ZeroCopy,
}

impl fmt::Display for RingBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerEntry => "per-entry",
            Self::Pool => "pool",
            Self::ZeroCopy => "zero-copy",
        })
    }
}

/// The capabilities to request from the kernel, and how the session is served.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) profile: Profile,
    pub(crate) requested: InitFlags,
    pub(crate) required: InitFlags,
    pub(crate) max_write: u32,
    pub(crate) max_readahead: u32,
    pub(crate) max_background: u16,
    pub(crate) time_granularity: u32,
    pub(crate) max_stack_depth: u32,
    pub(crate) trusts_open_flags: bool,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) threads: usize,
    pub(crate) max_threads: usize,
    pub(crate) splice: bool,
    pub(crate) busy_poll: bool,
    pub(crate) transport: Transport,
    pub(crate) rings_ahead: bool,
    pub(crate) ring_buffers: RingBuffers,
    /// The rings of this session have been set up: FUSE over io_uring may be negotiated.
    pub(crate) rings_ready: bool,
}

/// Capabilities requested in every profile: each improves speed or correctness, and the framework itself fulfils every duty that
/// comes with it.
///
/// `ASYNC_DIO` is not among them: after a direct write the kernel drops the pages that were read meanwhile, but not after one in
/// the background (`io_submit(2)`, `io_uring`), so that buffered readers would see older data for as long as the page stays
/// cached.
const COMMON: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::ABORT_ERROR)
    .union(InitFlags::NO_OPEN_SUPPORT)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::CREATE_SUPP_GROUP)
    .union(InitFlags::HAS_EXPIRE_ONLY)
    .union(InitFlags::HAS_RESEND)
    .union(InitFlags::DIRECT_IO_ALLOW_MMAP)
    .union(InitFlags::HAS_IOCTL_DIR);

impl Config {
    /// Makes a configuration of this profile with all capabilities enabled that have no cost.
    ///
    /// Capabilities that change the meaning of requests must be requested by name with [`request`](Self::request) or
    /// [`require`](Self::require): `HANDLE_KILLPRIV_V2`, `POSIX_ACL`, `DONT_MASK`, `ATOMIC_O_TRUNC`, `CACHE_SYMLINKS`,
    /// `EXPORT_SUPPORT`, `POSIX_LOCKS`, `FLOCK_LOCKS`, `SECURITY_CTX`, `ALLOW_IDMAP`, `AUTO_INVAL_DATA`, `EXPLICIT_INVAL_DATA`,
    /// `DO_READDIRPLUS` with or without `READDIRPLUS_AUTO`, and `ASYNC_DIO` where no file is cached, ...
    pub fn new(profile: Profile) -> Self {
        let mode = match profile {
            Profile::Passthrough => InitFlags::PASSTHROUGH,
            Profile::Writeback => InitFlags::WRITEBACK_CACHE,
        };
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Self {
            profile,
            requested: COMMON | mode,
            required: InitFlags::empty(),
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            time_granularity: 1,
            max_stack_depth: 1,
            trusts_open_flags: false,
            request_timeout: None,
            threads: cores.clamp(1, 8),
            max_threads: 64.max(2 * cores),
            splice: true,
            busy_poll: true,
            transport: Transport::Dev,
            rings_ahead: false,
            ring_buffers: RingBuffers::default(),
            rings_ready: false,
        }
    }

    /// Requests capabilities. Those that are not granted are listed, each with the reason, in
    /// [`Negotiated::refused`](super::Negotiated::refused).
    pub fn request(mut self, capabilities: InitFlags) -> Self {
        self.requested |= capabilities;
        self
    }

    /// Requests capabilities without which the file system would be incorrect: if one is refused, the session does not start.
    pub fn require(mut self, capabilities: InitFlags) -> Self {
        self.requested |= capabilities;
        self.required |= capabilities;
        self
    }

    /// Removes capabilities from the request that are on by default.
    pub fn without(mut self, capabilities: InitFlags) -> Self {
        self.requested -= capabilities;
        self.required -= capabilities;
        self
    }

    /// Sets the maximum size of a WRITE in bytes. The kernel's limit is 1 MiB by default (`fs.fuse.max_pages_limit`).
    pub fn max_write(mut self, bytes: u32) -> Self {
        self.max_write = bytes.clamp(4096, 16 << 20);
        self
    }

    /// Sets the read-ahead window in bytes, 1 MiB by default: how far ahead of a program that reads in sequence the kernel
    /// reads, and how much a page fault of a mapped file reads.
    ///
    /// The kernel offers 128 KiB in INIT, of which a server may only take less. More is set in `/sys/class/bdi`, where root
    /// mounts; elsewhere the window is what the kernel offers.
    pub fn max_readahead(mut self, bytes: u32) -> Self {
        self.max_readahead = bytes;
        self
    }

    /// Sets the maximum number of background requests (read-ahead, write-back, RELEASE) that the kernel keeps in flight.
    pub fn max_background(mut self, requests: u16) -> Self {
        self.max_background = requests.max(1);
        self
    }

    /// Sets the granularity of timestamps in nanoseconds, 1 to 1,000,000,000.
    pub fn time_granularity(mut self, nanoseconds: u32) -> Self {
        self.time_granularity = nanoseconds.clamp(1, 1_000_000_000);
        self
    }

    /// Sets the maximum number of stacked file systems, this one included (1 or 2): with 1 this mount can be the lower layer of
    /// an overlay; with 2 its backing files may be on an overlay.
    pub fn max_stack_depth(mut self, depth: u32) -> Self {
        self.max_stack_depth = depth.clamp(1, 2);
        self
    }

    /// Allows passthrough for opens with O_APPEND or O_DIRECT too. The kernel's backing file keeps these flags when a program
    /// clears them by `fcntl(F_SETFL)`: it still appends, and fails with EINVAL where a call is not aligned. By default such
    /// opens use direct I/O.
    pub fn trust_open_flags(mut self) -> Self {
        self.trusts_open_flags = true;
        self
    }

    /// Makes the kernel abort the connection when a request is not answered within this time (rounded up to seconds, at least
    /// 15). Off by default; leave it off where a request may legitimately wait, as for a lock.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.requested |= InitFlags::REQUEST_TIMEOUT;
        self.request_timeout = Some(timeout);
        self
    }

    /// Sets the number of threads that read requests: one at first, up to `usual` (one per CPU by default, 8 at most) as the load
    /// grows, up to `limit` while handlers block. Over io_uring this limits the readers of `/dev/fuse` only: each entry of a queue
    /// has a thread of its own.
    pub fn threads(mut self, usual: usize, limit: usize) -> Self {
        self.threads = usual.clamp(1, 256);
        self.max_threads = limit.clamp(self.threads, 1024);
        self
    }

    /// Enables moving data by splice (on by default).
    pub fn splice(mut self, on: bool) -> Self {
        self.splice = on;
        self
    }

    /// Keeps idle CPUs polling instead of sleeping during bursts of requests (where `/dev/cpu_dma_latency` may be opened), and
    /// makes threads poll for the next request for some microseconds before they sleep. On by default: the wake-ups of kernel and
    /// server are most of a round trip.
    pub fn busy_poll(mut self, on: bool) -> Self {
        self.busy_poll = on;
        self
    }

    /// Sets the transport of requests ([`Transport::Dev`] by default). One that is not available falls back to `/dev/fuse`, and
    /// [`Handle::transport`](crate::Handle::transport) has the reason.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Makes every io_uring that the session may ever need before it mounts (off by default: most are never used). From then on
    /// the process may be forbidden to call `io_uring_setup`. Each ring costs a descriptor and some 10 KiB of kernel memory.
    pub fn rings_ahead(mut self, on: bool) -> Self {
        self.rings_ahead = on;
        self
    }

    /// Sets how the data of requests is kept with io_uring ([`RingBuffers::ZeroCopy`] by default).
    /// [`Handle::transport`](crate::Handle::transport) tells which one is in use: per entry, if the kernel does not offer it.
    pub fn ring_buffers(mut self, buffers: RingBuffers) -> Self {
        self.ring_buffers = buffers;
        self
    }

    /// Returns the maximum size of a reply or argument in bytes. A ring entry must have room for it even where WRITEs are small;
    /// a reader of `/dev/fuse` always has.
    pub(crate) fn largest_message(&self) -> u32 {
        if self.rings_ready {
            self.max_write.max(crate::transport::uring::MIN_PAYLOAD_BYTES)
        } else {
            self.max_write
        }
    }

    /// Returns the profile.
    pub fn profile(&self) -> Profile {
        self.profile
    }
}
