//! Configuration of a mirror: source, cache mode, id mapping and passthrough.

use std::path::PathBuf;
use std::time::Duration;

use shunt_fuse::{Attributes, Expiry, FileType};

use crate::lower::{IdMap, ReadTimes};

/// Cache lifetime of names, attributes and listings in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    /// Only this mount changes the source: names (including negative entries), attributes and listings never
    /// expire.
    Exclusive,
    /// Others may change the source; change events invalidate the kernel caches within 100 ms.
    Coherent,
    /// Like `Coherent` where the kernel reports the changes of a whole file system, else `Timeout` of one second.
    Auto,
    /// Others may change the source; cached replies expire after this time.
    Timeout(Duration),
    /// Nothing is cached: every access reaches the daemon.
    None,
}

impl Default for CacheMode {
    /// One second, as FUSE file systems do.
    fn default() -> Self {
        Self::Timeout(Duration::from_secs(1))
    }
}

impl CacheMode {
    /// Returns the cache lifetime of replies that no change events invalidate.
    pub(crate) fn time(self) -> Expiry {
        match self {
            Self::Exclusive => Expiry::FOREVER,
            Self::Timeout(time) => Expiry::after(time),
            Self::None => Expiry::NEVER_CACHED,
            Self::Coherent | Self::Auto => Expiry::after(NO_EVENTS_TTL),
        }
    }
}

/// Cache lifetime where no change events arrive; one second, as is usual for network file systems.
pub(crate) const NO_EVENTS_TTL: Duration = Duration::from_secs(1);

/// Reports whether attributes must not be cached because they carry setuid or setgid. A write clears these bits on the
/// lower file, but a passthrough write bypasses the kernel's cached attributes, so the kernel would run the program
/// with the stale bits.
pub(crate) fn is_setid(attributes: &Attributes) -> bool {
    attributes.mode & 0o6000 != 0 && attributes.file_type() == FileType::Regular
}

/// Use of FUSE passthrough, by which the kernel reads and writes the lower files itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassthroughMode {
    /// Passthrough wherever it is possible.
    #[default]
    Auto,
    /// Passthrough also for opens with flags that the program may clear later; the kernel does not see that and the
    /// flags stay in force. See [`Config::trust_open_flags`](shunt_fuse::Config::trust_open_flags).
    Always,
    /// Never: all data goes through the daemon.
    Off,
}

/// Options of a [`Mirror`](crate::Mirror).
#[derive(Debug, Clone, Default)]
pub struct MirrorOptions {
    /// The source directory.
    pub source: PathBuf,
    /// Cache lifetime of replies in the kernel.
    pub cache: CacheMode,
    /// Refuse changes with EROFS.
    pub read_only: bool,
    /// Effect of reads on access times of the source.
    pub read_times: ReadTimes,
    /// Mapping of user ids between the source and the mount.
    pub uid_map: IdMap,
    /// Mapping of group ids between the source and the mount.
    pub gid_map: IdMap,
    /// Limit on inodes cached by the kernel. Above it the kernel is asked to drop the least recently used ones; inodes
    /// in use stay.
    pub max_inodes: Option<u64>,
    /// Use of FUSE passthrough.
    pub passthrough: PassthroughMode,
    /// The kernel holds inodes of an earlier daemon of the same source, which are opened again on first use. Node ids
    /// from the kernel are trusted: do not set this where they may be forged, as by a guest.
    pub resumes: bool,
    /// Watch for changes with `inotify(7)`, at most this many directories, even where fanotify could watch whole file
    /// systems.
    pub inotify: Option<usize>,
    /// Send every OPEN and OPENDIR to the daemon, because a policy decides there.
    pub always_opens: bool,
    /// Use passthrough for every eligible file, including small files that are read repeatedly: a kernel extension
    /// opens them without the daemon.
    pub passes_rereads: bool,
}

impl MirrorOptions {
    /// The default options for a source.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }
}
