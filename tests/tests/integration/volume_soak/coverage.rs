//! Coverage counters of a run.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn at_least(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub struct Coverage {
    pub rounds: Count,
    pub operations: Count,
    pub synced: Count,
    pub synced_bytes: Count,
    pub killed_nodes: Count,
    pub killed_gateways: Count,
    pub stopped_databases: Count,
    pub killed_stores: Count,
    pub partitions: Count,
    pub bad_lines: Count,
    pub offline: Count,
    pub conflicts: Count,
    pub unseen: Count,
    pub doubted: Count,
    pub slowest_ms: Count,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (&self.rounds, "rounds"),
            (&self.operations, "operations"),
            (&self.synced, "fsyncs of new contents"),
            (&self.synced_bytes, "bytes fsynced"),
            (&self.killed_nodes, "nodes killed"),
            (&self.killed_gateways, "gateways killed"),
            (&self.stopped_databases, "databases stopped"),
            (&self.killed_stores, "object stores killed"),
            (&self.partitions, "partitions"),
            (&self.bad_lines, "slow or silent lines"),
            (&self.offline, "times offline by wish"),
            (&self.conflicts, "conflicts"),
            (&self.unseen, "files done away with unseen"),
            (&self.doubted, "contents in doubt"),
            (&self.slowest_ms, "ms the slowest operation"),
        ];
        for (n, (count, what)) in all.iter().enumerate() {
            write!(f, "{}{} {what}", if n == 0 { "" } else { ", " }, count.get())?;
        }
        Ok(())
    }
}
