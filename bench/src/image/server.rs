//! The implementations that serve an image, and how each is started and stopped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::job;
use crate::mounted::Mounted;
use crate::peer::{UringSwitch, guarded};
use crate::requests::Counter;

/// An implementation that serves an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The kernel's own ext4, through a loop device.
    Kernel,
    /// Debian's `fuse2fs`.
    Fuse2fs,
    /// The binary under test, over `/dev/fuse`.
    Shunt,
    /// The binary under test, over io_uring.
    ShuntUring,
}

impl Server {
    /// All implementations; the kernel, which the others are measured against, first.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Fuse2fs, Self::Shunt, Self::ShuntUring];

    /// The implementations for workloads where the transport makes no difference.
    pub const ONE_TRANSPORT: [Self; 3] = [Self::Kernel, Self::Fuse2fs, Self::Shunt];
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Fuse2fs => "fuse2fs",
            Self::Shunt => "shunt",
            Self::ShuntUring => "shunt-uring",
        })
    }
}

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
    pub fn start(bench: &Bench, server: Server, image: &Path, at: &Path) -> Result<Self> {
        let words: Vec<_> = match server {
            Server::Kernel => {
                std::fs::create_dir_all(at)?;
                job::run(Command::new("mount").args(["-o", "loop"]).args([image, at]))?;
                return Ok(Self::Kernel(at.to_owned()));
            }
            Server::Fuse2fs => vec!["fuse2fs".into(), "-f".into(), image.into(), at.into()],
            Server::Shunt | Server::ShuntUring => {
                let program = bench.programs.shunt.as_ref().context("--shunt names no binary")?;
                let transport = if server == Server::ShuntUring { "uring" } else { "dev" };
                let mut words: Vec<_> = vec![program.into()];
                words.extend(["ext4", "--transport", transport].map(Into::into));
                words.extend([image.into(), at.into()]);
                words
            }
        };
        let _uring = (server == Server::ShuntUring).then(UringSwitch::on).transpose()?;
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
