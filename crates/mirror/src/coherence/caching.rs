//! Selection of the cache mode in force, with the reason for it.

use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;
use shunt_fuse::NodeId;

use crate::CacheMode;
use crate::lower::Lower;
use crate::lower::watch::Watch;
use crate::options::NO_EVENTS_TTL;

/// The cache mode of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caching {
    /// The mode in force: never [`CacheMode::Auto`].
    pub mode: CacheMode,
    /// Name of the mechanism that reports changes made by others, if the mode uses one.
    pub watcher: Option<&'static str>,
    /// The reason why `Auto` did not become `Coherent`.
    pub reason: Option<String>,
}

/// Counters of the events that report changes made by others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCounters {
    /// Number of events read, including events of inodes that were never looked up.
    pub events: u64,
    /// Number of times that events were lost and all caches were expired instead.
    pub overflows: u64,
}

/// Opens an engine together with the watch that the mode needs: fanotify on whole file systems if permitted, else
/// inotify on at most `inotify` directories. Returns the error of the watch if neither is available.
pub(crate) fn open(
    mode: CacheMode,
    inotify: Option<usize>,
    open: impl Fn(Option<Arc<Watch>>) -> Result<Lower, Errno>,
) -> Result<(Lower, Option<Errno>), Errno> {
    if !matches!(mode, CacheMode::Coherent | CacheMode::Auto) {
        return Ok((open(None)?, None));
    }
    if inotify.is_none()
        && let Ok(watch) = Watch::fanotify()
    {
        let lower = open(Some(Arc::new(watch)))?;
        // Unprivileged processes may create a fanotify group, but not mark file systems.
        if !lower.features().local || lower.is_watched(NodeId::ROOT, lower.moment()) {
            return Ok((lower, None));
        }
    }
    match Watch::inotify(inotify) {
        Ok(watch) => {
            let lower = open(Some(Arc::new(watch)))?;
            lower.watch_dir(NodeId::ROOT);
            Ok((lower, None))
        }
        Err(errno) => Ok((open(None)?, Some(errno))),
    }
}

impl Caching {
    /// Resolves the requested mode for a source.
    pub(crate) fn new(mode: CacheMode, lower: &Lower, refused: Option<Errno>) -> Self {
        if !matches!(mode, CacheMode::Coherent | CacheMode::Auto) {
            return Self { mode, watcher: None, reason: None };
        }
        let reason = if !lower.features().local {
            "the kernel does not report changes by other machines".to_owned()
        } else if let Some(errno) = refused {
            format!("neither fanotify nor inotify is available ({errno})")
        } else if let Some(watch) = lower.watch()
            && lower.is_watched(NodeId::ROOT, lower.moment())
        {
            return Self { mode: CacheMode::Coherent, watcher: Some(watch.name()), reason: None };
        } else {
            "the source cannot be watched".to_owned()
        };
        Self { mode: CacheMode::Timeout(NO_EVENTS_TTL), watcher: None, reason: Some(reason) }
    }
}

/// Formats the mode in the words of the command line.
impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            CacheMode::Exclusive => f.write_str("exclusive")?,
            CacheMode::Coherent | CacheMode::Auto => f.write_str("coherent")?,
            CacheMode::Timeout(time) => write!(f, "timeout={}", time.as_secs_f64())?,
            CacheMode::None => f.write_str("none")?,
        }
        if let Some(watcher) = self.watcher {
            write!(f, " by {watcher}")?;
        }
        if let Some(reason) = &self.reason {
            write!(f, ", not coherent: {reason}")?;
        }
        Ok(())
    }
}
