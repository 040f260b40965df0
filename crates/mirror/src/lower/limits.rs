//! How many descriptors may be held, and for what.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Shares of RLIMIT_NOFILE. What is left over is for files that callers have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Directories kept open for lookups.
    pub dirs: usize,
    /// Listings that go on where the last request ended.
    pub listings: usize,
    /// Inodes that lost their last name while still known.
    pub nameless: usize,
    /// Inodes held by descriptor, where handles do not work.
    pub nodes: u64,
    descriptors: u64,
}

impl Limits {
    /// The shares of a limit.
    pub fn of(descriptors: u64) -> Self {
        let part = |share: u64, most: u64| (descriptors / share).clamp(8, most) as usize;
        Self {
            dirs: part(4, 1024),
            listings: part(16, 64),
            nameless: part(8, 4096),
            nodes: descriptors / 2,
            descriptors,
        }
    }

    /// Files kept open for requests that name the inode alone: who sends these opens nothing, and leaves the room.
    pub fn unopened(&self, handles: bool) -> usize {
        self.open(handles).min(1024)
    }

    /// Files and directories that callers may have open: what the shares leave, less a reserve of an eighth (64 at
    /// least) for the daemon itself and for what is opened for the length of a request.
    pub fn open(&self, handles: bool) -> usize {
        let shares = if handles { (self.dirs + self.nameless) as u64 } else { self.nodes };
        let kept = shares + self.listings as u64 + (self.descriptors / 8).max(64);
        self.descriptors.saturating_sub(kept).max(8) as usize
    }
}

/// Raises the soft limit of open descriptors to the hard one; tells the limit in force.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
    {
        return limit.maximum.unwrap_or(u64::MAX);
    }
    limit.current.unwrap_or(u64::MAX)
}
