//! What is mirrored, and how.

use std::path::PathBuf;
use std::time::Duration;

use shunt_fuse::mount::Atime;
use shunt_fuse::{Attributes, Expiry, FileType};

use crate::lower::IdMap;

/// How long the kernel may use what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    /// Only this mount changes the source: names (absent ones too), attributes and listings are cached for ever.
    Exclusive,
    /// Others may change the source; the kernel tells us, and their changes are seen within 100 ms.
    Coherent,
    /// As `Coherent` where the kernel tells of the changes of a whole file system, else `Timeout` of one second.
    Auto,
    /// Others may change the source; their changes are seen after this time.
    Timeout(Duration),
    /// Everything is asked for every time.
    None,
}

impl Default for CacheMode {
    /// One second, as FUSE file systems do.
    fn default() -> Self {
        Self::Timeout(Duration::from_secs(1))
    }
}

impl CacheMode {
    /// How long what was read may be cached where no events are heard.
    pub(crate) fn time(self) -> Expiry {
        match self {
            Self::Exclusive => Expiry::FOREVER,
            Self::Timeout(time) => Expiry::after(time),
            Self::None => Expiry::NEVER_CACHED,
            Self::Coherent | Self::Auto => Expiry::after(UNHEARD),
        }
    }
}

/// How long what nobody tells the changes of is cached: as file systems on a network do by habit.
pub(crate) const UNHEARD: Duration = Duration::from_secs(1);

/// Whether attributes must not be cached at all, as they carry setuid or setgid: a write clears these bits on the lower
/// file, and the kernel, which passes the write by, goes on with the bits that it cached. It would run the program with
/// them.
pub(crate) fn is_setid(attributes: &Attributes) -> bool {
    attributes.mode & 0o6000 != 0 && attributes.file_type() == FileType::Regular
}

/// Whether the kernel reads and writes the lower files itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassthroughMode {
    /// Where it can.
    #[default]
    Auto,
    /// Also where an open has flags that the program may take away later, which then stay in force: see
    /// [`Config::trust_open_flags`](shunt_fuse::Config::trust_open_flags).
    Always,
    /// Never: all data goes through the daemon.
    Off,
}

/// How reads through the mirror change access times of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadTimes {
    /// When; `None`: as the mount of the source has it.
    pub atime: Option<Atime>,
    /// Not those of directories.
    pub nodiratime: bool,
}

impl ReadTimes {
    /// Whether no read is to be noted.
    pub(crate) fn never(self) -> bool {
        self.atime == Some(Atime::Never)
    }
}

/// What is mirrored, and how.
#[derive(Debug, Clone, Default)]
pub struct MirrorOptions {
    /// The directory shown.
    pub source: PathBuf,
    /// How long the kernel may use what it was told.
    pub cache: CacheMode,
    /// Refuse changes with EROFS.
    pub read_only: bool,
    /// How reads change access times of the source.
    pub read_times: ReadTimes,
    /// Users shown under other numbers.
    pub uid_map: IdMap,
    /// Groups shown under other numbers.
    pub gid_map: IdMap,
    /// Inodes that the kernel is to hold at most; those not used lately are asked back. Inodes in use stay.
    pub max_inodes: Option<u64>,
    /// Whether the kernel reads and writes the lower files itself.
    pub passthrough: PassthroughMode,
    /// The kernel holds inodes that an earlier daemon showed it from the same source; they are found again as it asks
    /// for them. It is believed that it was told of them: not where ids may be forged, as by a guest.
    pub resumes: bool,
    /// Hear of changes by `inotify(7)`, of at most so many directories, also where whole file systems could be heard.
    pub inotify: Option<usize>,
    /// Ask for every open and every listing: something is decided there.
    pub always_opens: bool,
    /// Pass through every file that can be, small ones that are read again and again too: an extension in the kernel
    /// opens them without the daemon.
    pub passes_rereads: bool,
}

impl MirrorOptions {
    /// The defaults, for a source.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }
}
