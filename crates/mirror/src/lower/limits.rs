//! Partition of the descriptor limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Shares of RLIMIT_NOFILE. The rest is for files that callers have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Directories cached for lookups.
    pub dirs: usize,
    /// Idle listings that the next request continues.
    pub listings: usize,
    /// Unlinked inodes that the client still knows.
    pub unlinked: usize,
    /// Inodes held by descriptor, if handles do not work.
    pub nodes: u64,
    descriptors: u64,
}

impl Limits {
    /// Computes the shares of a limit.
    pub(super) fn of(descriptors: u64) -> Self {
        let part = |share: u64, max: u64| (descriptors / share).clamp(8, max) as usize;
        Self {
            dirs: part(4, 1024),
            listings: part(16, 64),
            unlinked: part(8, 4096),
            nodes: descriptors / 2,
            descriptors,
        }
    }

    /// Number of descriptors cached for requests without OPEN, whose callers then need none of their own.
    pub(super) fn no_open(&self, handles: bool) -> usize {
        self.open(handles).min(1024)
    }

    /// Number of files and directories that callers may have open: what the shares leave, less a reserve of one eighth
    /// (at least 64) for the daemon itself and for descriptors that live only for one request.
    pub(super) fn open(&self, handles: bool) -> usize {
        let shares = if handles { (self.dirs + self.unlinked) as u64 } else { self.nodes };
        let kept = shares + self.listings as u64 + (self.descriptors / 8).max(64);
        self.descriptors.saturating_sub(kept).max(8) as usize
    }
}

/// Raises the soft limit of open descriptors to the hard limit; returns the limit in force.
pub(super) fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
    {
        return limit.maximum.unwrap_or(u64::MAX);
    }
    limit.current.unwrap_or(u64::MAX)
}
