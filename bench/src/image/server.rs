//! Who serves an image.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::job;
use crate::mounted::Mounted;
use crate::peer::guarded;
use crate::requests::Counter;

/// Who serves an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The kernel's own ext4, through a loop device.
    Kernel,
    /// Debian's `fuse2fs`.
    Fuse2fs,
    /// The binary under test.
    Shunt,
}

impl Server {
    /// The measure first.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Fuse2fs, Self::Shunt];
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Fuse2fs => "fuse2fs",
            Self::Shunt => "shunt",
        })
    }
}

/// A mounted image.
#[derive(Debug)]
pub enum Serving {
    /// By the kernel, at this place.
    Kernel(PathBuf),
    /// By a daemon in the foreground.
    Daemon(Mounted, Option<Counter>),
}

impl Serving {
    /// Mounts `image` at `at`.
    ///
    /// # Errors
    /// When the program is missing or does not mount.
    pub fn start(bench: &Bench, server: Server, image: &Path, at: &Path) -> Result<Self> {
        let words: Vec<_> = match server {
            Server::Kernel => {
                std::fs::create_dir_all(at)?;
                job::run(Command::new("mount").args(["-o", "loop"]).args([image, at]))?;
                return Ok(Self::Kernel(at.to_owned()));
            }
            Server::Fuse2fs => vec!["fuse2fs".into(), "-f".into(), image.into(), at.into()],
            Server::Shunt => {
                let program = bench.programs.shunt.as_ref().context("--shunt names no binary")?;
                vec![program.into(), "ext4".into(), image.into(), at.into()]
            }
        };
        let mounted = Mounted::start(&mut guarded(&words, None), at)?;
        let counter =
            bench.tracepoints.map(|points| Counter::all(points, mounted.connection())).transpose()?;
        Ok(Self::Daemon(mounted, counter))
    }

    /// Requests answered so far, where they are counted.
    pub fn requests(&self) -> Option<u64> {
        match self {
            Self::Kernel(_) => None,
            Self::Daemon(_, counter) => counter.as_ref()?.read().ok(),
        }
    }

    /// The daemon's process id.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Kernel(_) => None,
            Self::Daemon(mounted, _) => Some(mounted.pid()),
        }
    }

    /// Unmounts.
    ///
    /// # Errors
    /// When it stays busy.
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
