//! The context of a workload: programs, directories, sizes and counters of one run.
//!
//! [`Bench::prepare`] finds the programs, mounts the scratch file systems and measures the empty round trips; dropping the context
//! unmounts them again. It names no workload and no report, so that both can be built on it.

mod prepare;

use std::fs;
use std::path::PathBuf;

use crate::model::RoundTrips;
use crate::peer::{Peer, Program, Programs};
use crate::requests::Tracepoints;
use crate::scratch::Tmpfs;

/// The medium that holds the source directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Memory.
    Tmpfs,
    /// The file system under `--out`.
    Disk,
}

/// The context of a workload: programs, paths, sizes and the round trips measured at the start.
#[derive(Debug)]
pub struct Bench {
    /// The programs found on this machine.
    pub programs: Programs,
    /// The empty round trips measured in this run.
    pub round_trips: RoundTrips,
    /// Tracepoints for counting requests; none when the kernel does not offer them.
    pub tracepoints: Option<Tracepoints>,
    /// Small sizes and one round: a check of the harness, not a measurement.
    pub quick: bool,
    only_peers: Vec<String>,
    rounds: Option<u32>,
    files: Option<u32>,
    out: PathBuf,
    // Dropped last: unmounted after every other field is gone.
    _tmpfs: Vec<Tmpfs>,
    _lock: fs::File,
}

impl Bench {
    /// The directory for sources on this medium.
    pub fn source_dir(&self, medium: Medium) -> PathBuf {
        self.out.join(match medium {
            Medium::Tmpfs => "tmpfs",
            Medium::Disk => "disk",
        })
    }

    /// The directory of files kept between runs: downloads and the archives made from them.
    pub fn cache(&self) -> PathBuf {
        self.out.join("cache")
    }

    /// The file that the figures of the run are written to.
    pub fn results_path(&self) -> PathBuf {
        self.out.join("results.json")
    }

    /// The mount point of a peer.
    pub fn mount_point(&self, peer: Peer) -> PathBuf {
        self.mount_point_named(&peer.name())
    }

    /// The mount point of this name.
    pub fn mount_point_named(&self, name: &str) -> PathBuf {
        self.out.join("mnt").join(name)
    }

    /// Reports whether `--peer` selects this name.
    pub fn selects(&self, name: &str) -> bool {
        self.only_peers.is_empty() || self.only_peers.iter().any(|part| name.contains(part.as_str()))
    }

    /// Filters `peers` to those that are installed and selected by `--peer`; native is always included.
    pub fn present<'a>(&'a self, peers: &'a [Peer]) -> impl Iterator<Item = Peer> + 'a {
        peers.iter().copied().filter(|peer| {
            peer.program == Program::Native
                || (self.selects(&peer.name()) && self.programs.path(peer.program).is_some())
        })
    }

    /// The number of rounds: the user's `--rounds`, else one when quick, else `usual`.
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// The number of files to make: the user's `--files`, else as [`size`](Self::size).
    pub fn files(&self, full: u32, quick: u32) -> u32 {
        self.files.unwrap_or(self.size(full, quick))
    }

    /// Picks `quick` or `full`, by `--quick`.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
