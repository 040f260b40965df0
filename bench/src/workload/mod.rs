//! The workloads: one file each.

mod build;
mod cached;
mod coherent;
mod cold;
mod daemon_data;
mod descriptors;
mod engine;
mod ext4;
mod fuser_file;
mod killpriv;
mod memory;
mod mounts;
mod opens;
mod policy;
mod tree;
mod volume;
mod volume_change;
mod volume_cold;
mod volume_load;
pub mod volume_many;
mod volume_nodes;

use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::model::Row;

/// One workload.
#[derive(Debug)]
pub struct Workload {
    /// The name, which `--only` matches.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// Measures it on every peer.
    pub run: fn(&Bench) -> Result<Vec<Row>>,
}

/// All workloads, in the order in which they run.
pub const ALL: &[Workload] = &[
    cached::TMPFS,
    cached::DISK,
    fuser_file::WORKLOAD,
    cold::SYNC,
    cold::AIO,
    killpriv::WORKLOAD,
    daemon_data::WORKLOAD,
    coherent::WORKLOAD,
    tree::SMALL,
    tree::WHOLE,
    descriptors::WORKLOAD,
    build::WORKLOAD,
    memory::WORKLOAD,
    opens::WORKLOAD,
    policy::WORKLOAD,
    policy::CALLER,
    mounts::WORKLOAD,
    ext4::DATA,
    ext4::NAMES,
    ext4::MOUNT,
    engine::WORKLOAD,
    volume::WORKLOAD,
    volume_cold::WORKLOAD,
    volume_change::WORKLOAD,
    volume_nodes::WORKLOAD,
    volume_many::WORKLOAD,
    volume_load::WORKLOAD,
];

/// The workloads whose name contains one of `parts`; all when there are none.
///
/// # Errors
/// When a part matches nothing.
pub fn choose(parts: &[String]) -> Result<Vec<&'static Workload>> {
    for part in parts {
        if !ALL.iter().any(|workload| workload.name.contains(part.as_str())) {
            let names: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
            bail!("no workload named {part}; there are {}", names.join(", "));
        }
    }
    let wanted = |workload: &&Workload| {
        parts.is_empty() || parts.iter().any(|part| workload.name.contains(part.as_str()))
    };
    Ok(ALL.iter().filter(wanted).collect())
}
