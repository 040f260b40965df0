//! Which mode is in force, and why.

use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;
use shunt_fuse::NodeId;

use crate::CacheMode;
use crate::lower::Lower;
use crate::lower::watch::Watch;
use crate::options::UNHEARD;

/// How a source is cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caching {
    /// What is in force: never [`CacheMode::Auto`].
    pub mode: CacheMode,
    /// What tells of changes that others make, where the mode asks for it.
    pub watcher: Option<&'static str>,
    /// Why it is not coherent, where it was to be if possible.
    pub reason: Option<String>,
}

/// What was heard of changes that others made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// Events, those of things that nobody asked for included.
    pub events: u64,
    /// How often events were lost, and everything was expired instead.
    pub overflows: u64,
}

/// Opens an engine with somebody to hear of changes, where the mode wants one: of whole file systems if that may be, else
/// of directories, at most `inotify` where that is given. The last is why there is nobody.
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
        // Whoever is not privileged may have a listener, but not for file systems.
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
    /// What comes of a mode with a source.
    pub(crate) fn new(mode: CacheMode, lower: &Lower, refused: Option<Errno>) -> Self {
        if !matches!(mode, CacheMode::Coherent | CacheMode::Auto) {
            return Self { mode, watcher: None, reason: None };
        }
        let reason = if !lower.features().local {
            "changes that other machines make are not told".to_owned()
        } else if let Some(errno) = refused {
            format!("neither fanotify nor inotify can be had ({errno})")
        } else if let Some(watch) = lower.watch()
            && lower.is_watched(NodeId::ROOT, lower.moment())
        {
            return Self { mode: CacheMode::Coherent, watcher: Some(watch.name()), reason: None };
        } else {
            "the source cannot be watched".to_owned()
        };
        Self { mode: CacheMode::Timeout(UNHEARD), watcher: None, reason: Some(reason) }
    }
}

/// In the words of the command line.
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
