//! One reading of all mounts of this machine: the mount table, and the reports of the daemons.

use std::collections::HashSet;
use std::time::Instant;

use shunt_fuse::mount::{Dev, MountInfo};

use crate::control::{self, QueryResult};
use crate::error::Result;
use crate::own_mounts;
use crate::report::Stat;

/// The state of all mounts at one time.
#[derive(Debug)]
pub struct Reading {
    /// The time at which the daemons were queried.
    pub at: Instant,
    /// The mounts, each file system once, oldest first.
    pub mounts: Vec<MountReading>,
}

/// A mount in a reading.
#[derive(Debug)]
pub struct MountReading {
    /// The device number of the file system, which identifies it among live ones.
    pub dev: Dev,
    /// The mount point.
    pub mountpoint: String,
    /// The source.
    pub source: String,
    /// The kind: `mirror`, ...
    pub kind: String,
    /// The report of its daemon.
    pub stat: QueryResult<Stat>,
}

impl MountReading {
    /// The report, if there is one.
    pub fn report(&self) -> Option<&Stat> {
        match &self.stat {
            QueryResult::Answer(stat) => Some(stat),
            QueryResult::NoDaemon | QueryResult::Silent(..) => None,
        }
    }
}

/// Queries the daemons of all mounts, for two seconds in total.
///
/// # Errors
/// `/proc` is not mounted.
pub fn read() -> Result<Reading> {
    let mut mounts = own_mounts::all()?;
    // A file system that is bound elsewhere, too, has one daemon, and is listed once.
    let mut seen = HashSet::new();
    mounts.retain(|info| seen.insert(info.dev));
    let targets: Vec<_> = mounts.iter().map(own_mounts::query_target).collect();
    let at = Instant::now();
    let answers = control::query_all_stats(&targets);
    Ok(Reading { at, mounts: mounts.iter().zip(answers).map(|(info, answer)| mount(info, answer)).collect() })
}

fn mount(info: &MountInfo, stat: QueryResult<Stat>) -> MountReading {
    let source = match &stat {
        QueryResult::Answer(stat) => own_mounts::source(info, &stat.source),
        _ => info.source.to_string_lossy().into_owned(),
    };
    MountReading {
        dev: info.dev,
        mountpoint: info.mountpoint.to_string_lossy().into_owned(),
        source,
        kind: own_mounts::kind(info).unwrap_or_default().to_owned(),
        stat,
    }
}
