//! The measured programs: the native directory, the peers, and Shunt.

mod fuser;
mod guarded;
mod start;
mod uring;

use std::fmt;
use std::path::PathBuf;

pub use guarded::guarded;
pub use uring::UringSwitch;

pub use fuser::{FILE_SIZE as FUSER_FILE_SIZE, SERVED_FILE as FUSER_FILE, install as install_fuser};

/// The program behind a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The source directory itself.
    Native,
    /// Debian's `bindfs`.
    Bindfs,
    /// The passthrough example of the crate `fuser`; serves one read-only file.
    Fuser,
    /// libfuse's `passthrough_hp`.
    Libfuse,
    /// The binary under test.
    Shunt,
}

/// A program and the options it is run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The program.
    pub program: Program,
    /// Transport io_uring instead of reading `/dev/fuse`.
    pub uring: bool,
    /// Without passthrough: the daemon reads and writes file data.
    pub daemon_data: bool,
    /// With passthrough also for files opened with O_DIRECT.
    pub always_passes: bool,
    /// The value of Shunt's `--cache`.
    pub cache: Cache,
    /// With the rules of `policy.toml`.
    pub policy: bool,
}

/// The cache mode of Shunt: its assumption about other writers of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// `exclusive`: there are no other writers.
    Exclusive,
    /// `timeout=1`: changes of other writers become visible within a second.
    Timeout,
    /// `coherent`: Shunt watches the source and invalidates what other writers change.
    Coherent,
}

impl Peer {
    const fn of(program: Program) -> Self {
        Self {
            program,
            uring: false,
            daemon_data: false,
            always_passes: false,
            cache: Cache::Exclusive,
            policy: false,
        }
    }

    /// The source directory.
    pub const NATIVE: Self = Self::of(Program::Native);
    /// Debian's `bindfs`.
    pub const BINDFS: Self = Self::of(Program::Bindfs);
    /// fuser's example.
    pub const FUSER: Self = Self::of(Program::Fuser);
    /// libfuse's example.
    pub const LIBFUSE: Self = Self::of(Program::Libfuse);
    /// libfuse's example over io_uring.
    pub const LIBFUSE_URING: Self = Self { uring: true, ..Self::LIBFUSE };
    /// libfuse's example, data through the daemon.
    pub const LIBFUSE_DAEMON: Self = Self { daemon_data: true, ..Self::LIBFUSE };
    /// libfuse's example, data through the daemon over io_uring.
    pub const LIBFUSE_URING_DAEMON: Self = Self { daemon_data: true, ..Self::LIBFUSE_URING };
    /// Shunt with its default options.
    pub const SHUNT: Self = Self::of(Program::Shunt);
    /// Shunt, with passthrough whatever flags a file is opened with.
    pub const SHUNT_ALWAYS: Self = Self { always_passes: true, ..Self::SHUNT };
    /// Shunt, data through the daemon.
    pub const SHUNT_DAEMON: Self = Self { daemon_data: true, ..Self::SHUNT };
    /// Shunt, which lets the kernel cache names for a second.
    pub const SHUNT_TIMEOUT: Self = Self { cache: Cache::Timeout, ..Self::SHUNT };
    /// Shunt, which watches the source for changes.
    pub const SHUNT_COHERENT: Self = Self { cache: Cache::Coherent, ..Self::SHUNT };
    /// Shunt with the rules of a policy.
    pub const SHUNT_POLICY: Self = Self { policy: true, ..Self::SHUNT };
    /// Shunt over io_uring.
    pub const SHUNT_URING: Self = Self { uring: true, ..Self::SHUNT };
    /// Shunt, data through the daemon over io_uring.
    pub const SHUNT_URING_DAEMON: Self = Self { daemon_data: true, ..Self::SHUNT_URING };

    /// The peers of workloads on whole trees: native first, then the others, then Shunt on both transports.
    pub const TREES: [Self; 7] = [
        Self::NATIVE,
        Self::BINDFS,
        Self::LIBFUSE,
        Self::LIBFUSE_URING,
        Self::SHUNT,
        Self::SHUNT_DAEMON,
        Self::SHUNT_URING,
    ];

    /// The peer's name in tables; also a file name.
    pub fn name(self) -> String {
        let base = match self.program {
            Program::Native => "native",
            Program::Bindfs => "bindfs",
            Program::Fuser => "fuser",
            Program::Libfuse => "libfuse",
            Program::Shunt => "shunt",
        };
        let uring = if self.uring { "-uring" } else { "" };
        let data = match (self.daemon_data, self.always_passes) {
            (true, _) => "-nopt",
            (false, true) => "-always",
            (false, false) => "",
        };
        let cache = match self.cache {
            Cache::Exclusive => "",
            Cache::Timeout => "-timeout",
            Cache::Coherent => "-coherent",
        };
        let policy = if self.policy { "-policy" } else { "" };
        format!("{base}{uring}{data}{cache}{policy}")
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// The programs found on this machine.
#[derive(Debug, Default)]
pub struct Programs {
    /// Debian's `bindfs`.
    pub bindfs: Option<PathBuf>,
    /// fuser's example.
    pub fuser: Option<PathBuf>,
    /// libfuse's example.
    pub libfuse: Option<PathBuf>,
    /// The binary under test.
    pub shunt: Option<PathBuf>,
}

impl Programs {
    /// The binary of a program; none for native and for a program that was not found.
    pub fn path(&self, program: Program) -> Option<&PathBuf> {
        match program {
            Program::Native => None,
            Program::Bindfs => self.bindfs.as_ref(),
            Program::Fuser => self.fuser.as_ref(),
            Program::Libfuse => self.libfuse.as_ref(),
            Program::Shunt => self.shunt.as_ref(),
        }
    }
}
