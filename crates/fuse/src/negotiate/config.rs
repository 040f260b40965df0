//! What a session asks of the kernel.

use std::fmt;
use std::time::Duration;

use shunt_fuse_abi::InitFlags;

/// The two ways to carry file data. The kernel does not allow both on one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Open files may be handed to the kernel; writes reach the server, or the backing file, at once.
    #[default]
    Passthrough,
    /// The kernel collects writes in its page cache, and owns size and mtime meanwhile.
    Writeback,
}

/// How requests come from the kernel, and replies go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// What is faster for the profile, where it can be had.
    Auto,
    /// `/dev/fuse`: every kernel has it, and another process can take a session over.
    #[default]
    Dev,
    /// Over io_uring (Linux 6.14 with the parameter `enable_uring` of the module `fuse`). A session that lost its
    /// process is lost.
    Uring,
    /// The queues of a virtual machine's device: [`virtiofs::serve`](crate::virtiofs::serve), and nothing else.
    Virtio,
}

impl Transport {
    /// What `Auto` is: measured, for each profile.
    pub(crate) fn resolve(self, profile: Profile) -> Self {
        match (self, profile) {
            // What is left of a round trip is the kernel's; and another process can take it over.
            (Self::Auto, Profile::Passthrough) => Self::Dev,
            // Every name that is made or removed is a round trip.
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

/// What a session asks of the kernel, and how it is served.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) profile: Profile,
    pub(crate) wanted: InitFlags,
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
    pub(crate) wakeful: bool,
    pub(crate) transport: Transport,
    pub(crate) rings_ahead: bool,
    /// The rings of this session are set up: FUSE over io_uring may be negotiated.
    pub(crate) rings_ready: bool,
}

/// Asked for in every profile: each makes something faster or more correct and promises nothing that the framework
/// does not keep by itself.
///
/// `ASYNC_DIO` is not among them: after a direct write the kernel drops the pages that were read while it went on, but not after
/// one in the background (`io_submit(2)`, `io_uring`), so that buffered readers are shown older data for as long as the page stays.
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
    /// A session of this profile with everything on that costs nothing.
    ///
    /// What changes the meaning of requests is asked for by name with [`want`](Self::want) or
    /// [`require`](Self::require): `HANDLE_KILLPRIV_V2`, `POSIX_ACL`, `DONT_MASK`, `ATOMIC_O_TRUNC`, `CACHE_SYMLINKS`,
    /// `EXPORT_SUPPORT`, `POSIX_LOCKS`, `FLOCK_LOCKS`, `SECURITY_CTX`, `ALLOW_IDMAP`, `AUTO_INVAL_DATA`,
    /// `EXPLICIT_INVAL_DATA`, `DO_READDIRPLUS` with or without `READDIRPLUS_AUTO`, and `ASYNC_DIO` where no file is cached, ...
    pub fn new(profile: Profile) -> Self {
        let mode = match profile {
            Profile::Passthrough => InitFlags::PASSTHROUGH,
            Profile::Writeback => InitFlags::WRITEBACK_CACHE,
        };
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Self {
            profile,
            wanted: COMMON | mode,
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
            wakeful: true,
            transport: Transport::Dev,
            rings_ahead: false,
            rings_ready: false,
        }
    }

    /// Asks for capabilities. Those that cannot be had are listed, each with its reason, in
    /// [`Negotiated::refused`](super::Negotiated::refused).
    pub fn want(mut self, capabilities: InitFlags) -> Self {
        self.wanted |= capabilities;
        self
    }

    /// Asks for capabilities without which the file system would be wrong: refused, the session does not begin.
    pub fn require(mut self, capabilities: InitFlags) -> Self {
        self.wanted |= capabilities;
        self.required |= capabilities;
        self
    }

    /// Does not ask for capabilities that are on by default.
    pub fn without(mut self, capabilities: InitFlags) -> Self {
        self.wanted -= capabilities;
        self.required -= capabilities;
        self
    }

    /// Largest WRITE in bytes, 4 KiB to 1 MiB by default of the kernel (`fs.fuse.max_pages_limit`).
    pub fn max_write(mut self, bytes: u32) -> Self {
        self.max_write = bytes.clamp(4096, 16 << 20);
        self
    }

    /// Bytes that the kernel reads ahead.
    pub fn max_readahead(mut self, bytes: u32) -> Self {
        self.max_readahead = bytes;
        self
    }

    /// Background requests (read-ahead, write-back, RELEASE) that the kernel keeps under way at once.
    pub fn max_background(mut self, requests: u16) -> Self {
        self.max_background = requests.max(1);
        self
    }

    /// Granularity of timestamps in nanoseconds, 1 to 1,000,000,000.
    pub fn time_granularity(mut self, nanoseconds: u32) -> Self {
        self.time_granularity = nanoseconds.clamp(1, 1_000_000_000);
        self
    }

    /// How many stacking file systems, this one included, may lie on each other (1 or 2): with 1 this mount can be
    /// the lower layer of an overlay; with 2 its backing files may lie on an overlay.
    pub fn max_stack_depth(mut self, depth: u32) -> Self {
        self.max_stack_depth = depth.clamp(1, 2);
        self
    }

    /// Passes opens with O_APPEND or O_DIRECT through too. The kernel's backing file keeps these flags when a program takes them
    /// away by `fcntl(F_SETFL)`: it goes on appending, and fails (EINVAL) where a call is not aligned. By default such opens
    /// are served directly.
    pub fn trust_open_flags(mut self) -> Self {
        self.trusts_open_flags = true;
        self
    }

    /// The kernel aborts the connection where a request is not answered in this time (rounded up to seconds, at least
    /// 15). Off by default; leave it off where a request may rightly wait, as a lock does.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.wanted |= InitFlags::REQUEST_TIMEOUT;
        self.request_timeout = Some(timeout);
        self
    }

    /// Threads that read requests: one at first, up to `usual` (one per processor by default, 8 at most) as the load
    /// grows, up to `most` while handlers block. Over io_uring this bounds those that read `/dev/fuse` alone: each entry
    /// of a queue has a thread of its own.
    pub fn threads(mut self, usual: usize, most: usize) -> Self {
        self.threads = usual.clamp(1, 256);
        self.max_threads = most.clamp(self.threads, 1024);
        self
    }

    /// Whether data may move by splice (on by default).
    pub fn splice(mut self, on: bool) -> Self {
        self.splice = on;
        self
    }

    /// Whether idle processors poll instead of sleeping while requests flow (where `/dev/cpu_dma_latency` may be opened),
    /// and threads look for the next request for some microseconds before they sleep. On by default: the kernel's and the
    /// server's wake-ups are most of a round trip.
    pub fn wakeful(mut self, on: bool) -> Self {
        self.wakeful = on;
        self
    }

    /// How requests come from the kernel ([`Transport::Dev`] by default). What cannot be had is replaced by
    /// `/dev/fuse`, and [`Handle::transport`](super::Handle::transport) tells why.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Makes every io_uring that may ever be wanted before the mount is there (off by default: most never are). From then
    /// on `io_uring_setup` may be forbidden to this process. Each ring is a descriptor and some 10 KiB of the kernel's.
    pub fn rings_ahead(mut self, on: bool) -> Self {
        self.rings_ahead = on;
        self
    }

    /// What the largest reply or argument takes, in bytes. A ring entry must have room for it even where WRITEs are
    /// small; a reader of `/dev/fuse` always has.
    pub(crate) fn largest_message(&self) -> u32 {
        if self.rings_ready {
            self.max_write.max(crate::transport::uring::LEAST_PAYLOAD)
        } else {
            self.max_write
        }
    }

    /// The profile.
    pub fn profile(&self) -> Profile {
        self.profile
    }
}
