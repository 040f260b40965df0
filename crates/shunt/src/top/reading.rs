//! One reading of all mounts of this machine: the mount table, and the reports of the daemons.

use std::collections::HashSet;
use std::time::Instant;

use shunt_fuse::mount::{Dev, MountInfo, fuse_mounts};

use crate::control::{self, QueryResult};
use crate::error::Result;
use crate::own_mounts;
use crate::report::Stat;
use crate::text::without_numbers;

/// The state of all mounts at one time.
#[derive(Debug)]
pub struct Reading {
    /// The time at which the daemons were asked.
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
    /// The report of its daemon, or the reason why there is none.
    pub stat: Result<Box<Stat>, Down>,
}

/// The reason why a mount has no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// No daemon that this user may query.
    NoDaemon,
    /// The daemon does not reply in time, for this reason.
    Silent(String),
}

/// Asks the daemons of all mounts, for two seconds in total.
///
/// # Errors
/// `/proc` is not mounted.
pub fn read() -> Result<Reading> {
    let mut mounts = fuse_mounts()?;
    mounts.retain(|info| own_mounts::kind(info).is_some());
    // A file system that is bound elsewhere, too, has one daemon, and is listed once.
    let mut seen = HashSet::new();
    mounts.retain(|info| seen.insert(info.dev));
    let asked: Vec<_> = mounts
        .iter()
        .map(|info| control::Mount { dev: info.dev, owner: own_mounts::owner(info).unwrap_or(u32::MAX) })
        .collect();
    let at = Instant::now();
    let answers = control::query_all_stats(&asked);
    Ok(Reading { at, mounts: mounts.iter().zip(answers).map(|(info, answer)| mount(info, answer)).collect() })
}

fn mount(info: &MountInfo, answer: QueryResult<Stat>) -> MountReading {
    MountReading {
        dev: info.dev,
        mountpoint: info.mountpoint.to_string_lossy().into_owned(),
        source: info.source.to_string_lossy().into_owned(),
        kind: own_mounts::kind(info).unwrap_or_default().to_owned(),
        stat: match answer {
            QueryResult::Answer(stat) => Ok(stat),
            QueryResult::NoDaemon => Err(Down::NoDaemon),
            QueryResult::Silent(_, error) => Err(Down::Silent(without_numbers(&error.to_string()))),
        },
    }
}
