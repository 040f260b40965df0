//! A peer with its own source directory, mounted and with its requests counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::context::{Bench, Medium};
use crate::model::Sample;
use crate::mounted::Mounted;
use crate::peer::{Peer, Program};
use crate::requests::Counter;
use crate::stat::Stat;

/// A peer's source and mount; unmounted and removed on drop.
#[derive(Debug)]
pub struct PeerMount {
    /// The peer.
    pub peer: Peer,
    /// The source directory, which the peer serves.
    pub source: PathBuf,
    /// The directory that workloads use: the mount point, or the source itself for native.
    pub root: PathBuf,
    // The mount must go before the source is removed: `Drop` takes it out first.
    mounted: Option<Mounted>,
    counter: Option<Counter>,
    shunt: Option<PathBuf>,
}

/// Parameters of a mount.
#[derive(Clone, Copy)]
pub struct MountSetup<'a> {
    /// The medium of the source: tmpfs or disk.
    pub medium: Medium,
    /// A limit on the daemon's open files.
    pub descriptors: Option<u32>,
    /// Fills the source before it is mounted.
    pub prepare: &'a dyn Fn(&Path) -> Result<()>,
}

impl PeerMount {
    /// Makes and fills the source, then mounts it.
    ///
    /// # Errors
    /// When the peer does not mount or the source cannot be filled.
    pub fn set(bench: &Bench, peer: Peer, setup: MountSetup<'_>) -> Result<Self> {
        let source = bench.source_dir(setup.medium).join(peer.name());
        fs::create_dir_all(&source)?;
        let mut mount =
            Self { peer, root: source.clone(), source, mounted: None, counter: None, shunt: None };
        (setup.prepare)(&mount.source)?;
        mount.mount(bench, setup.descriptors)?;
        Ok(mount)
    }

    fn mount(&mut self, bench: &Bench, descriptors: Option<u32>) -> Result<()> {
        if self.peer.program == Program::Native {
            return Ok(());
        }
        let at = bench.mount_point(self.peer);
        let mounted = bench.programs.start(self.peer, &self.source, &at, descriptors)?;
        if let Some(points) = bench.tracepoints {
            self.counter = Some(Counter::all(points, mounted.connection())?);
        }
        self.mounted = Some(mounted);
        self.root = at;
        self.shunt = bench.programs.shunt.clone().filter(|_| self.peer.program == Program::Shunt);
        Ok(())
    }

    /// Requests that the daemon answered since the mount: by the kernel's count, else by Shunt's own.
    pub fn requests(&self) -> Option<u64> {
        match &self.counter {
            Some(counter) => counter.read().ok(),
            None => self.stat().ok().map(|stat| stat.total()),
        }
    }

    /// Reads Shunt's statistics of this mount.
    ///
    /// # Errors
    /// On every other peer, and when the daemon does not answer.
    pub fn stat(&self) -> Result<Stat> {
        let shunt = self.shunt.as_ref().context("only shunt has statistics")?;
        Stat::read(shunt, &self.root)
    }

    /// The serving process. Shunt's own statistics take precedence, as its command may have forked.
    ///
    /// # Errors
    /// On native, which has none.
    pub fn daemon_pid(&self) -> Result<u32> {
        let started = self.mounted.as_ref().context("native has no daemon")?.pid();
        Ok(self.stat().ok().and_then(|stat| stat.pid).unwrap_or(started))
    }

    /// The daemon's process and connection; none for native.
    pub fn daemon(&self) -> Option<&Mounted> {
        self.mounted.as_ref()
    }

    /// Times `work` and counts its requests.
    ///
    /// # Errors
    /// The errors of `work`.
    pub fn time(&self, work: impl FnOnce(&Path) -> Result<()>) -> Result<Sample> {
        let before = self.requests();
        let start = Instant::now();
        work(&self.root)?;
        let seconds = start.elapsed().as_secs_f64();
        let requests = before.zip(self.requests()).map(|(before, after)| after.saturating_sub(before));
        Ok(Sample { value: seconds, seconds, requests })
    }

    /// Unmounts, keeping the source until drop.
    ///
    /// # Errors
    /// When the peer had to be unmounted by force.
    pub fn unmount(&mut self) -> Result<()> {
        self.counter = None;
        self.mounted.take().map_or(Ok(()), Mounted::end).with_context(|| format!("unmount {}", self.peer))
    }
}

impl Drop for PeerMount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            crate::progress::say(format_args!("cannot clean up: {error:#}"));
        }
        if let Err(error) = fs::remove_dir_all(&self.source) {
            crate::progress::say(format_args!("cannot clean up {}: {error}", self.source.display()));
        }
    }
}
