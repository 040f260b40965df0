//! A mounted image: how each implementation is started and stopped.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::implementation::Implementation;
use crate::context::Bench;
use crate::job;
use crate::mounted::Mounted;
use crate::peer::{UringSwitch, guarded};
use crate::requests::Counter;

/// A mounted image.
#[derive(Debug)]
pub enum Serving {
    /// Mounted by the kernel, at this path.
    Kernel(PathBuf),
    /// Mounted by a daemon that runs in the foreground.
    Daemon(Mounted, Option<Counter>),
}

impl Serving {
    /// Mounts `image` at `at`.
    ///
    /// # Errors
    /// When the program is missing or does not mount.
    pub fn start(bench: &Bench, implementation: Implementation, image: &Path, at: &Path) -> Result<Self> {
        let words: Vec<_> = match implementation {
            Implementation::Kernel => {
                std::fs::create_dir_all(at)?;
                job::run(Command::new("mount").args(["-o", "loop"]).args([image, at]))?;
                return Ok(Self::Kernel(at.to_owned()));
            }
            Implementation::Fuse2fs => vec!["fuse2fs".into(), "-f".into(), image.into(), at.into()],
            Implementation::Shunt | Implementation::ShuntUring => {
                let program =
                    bench.programs.shunt.as_ref().context("no shunt binary; give its path with --shunt")?;
                let transport = if implementation == Implementation::ShuntUring { "uring" } else { "dev" };
                let mut words: Vec<_> = vec![program.into()];
                words.extend(["ext4", "--transport", transport].map(Into::into));
                words.extend([image.into(), at.into()]);
                words
            }
        };
        let _uring = (implementation == Implementation::ShuntUring).then(UringSwitch::on).transpose()?;
        let mounted = Mounted::start(&mut guarded(&words, None), at)?;
        let counter =
            bench.tracepoints.map(|points| Counter::all(points, mounted.connection())).transpose()?;
        Ok(Self::Daemon(mounted, counter))
    }

    /// Requests answered so far; none for the kernel or without tracepoints.
    pub fn requests(&self) -> Option<u64> {
        match self {
            Self::Kernel(_) => None,
            Self::Daemon(_, counter) => counter.as_ref()?.read().ok(),
        }
    }

    /// The daemon's process id; none for the kernel.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Kernel(_) => None,
            Self::Daemon(mounted, _) => Some(mounted.pid()),
        }
    }

    /// Unmounts.
    ///
    /// # Errors
    /// When the mount stays busy.
    pub fn end(self) -> Result<()> {
        match self {
            Self::Kernel(at) => {
                job::run(Command::new("umount").arg(&at))?;
                std::fs::remove_dir(&at)?;
                Ok(())
            }
            Self::Daemon(mounted, _) => mounted.end(),
        }
    }
}
