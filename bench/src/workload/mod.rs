//! The workloads, one file each, and what they have in common. `suite` lists them.

pub mod build;
pub mod cached;
pub mod coherent;
pub mod cold;
pub mod daemon_data;
pub mod descriptors;
pub mod engine;
pub mod ext4;
pub mod fuser_file;
pub mod killpriv;
pub mod memory;
pub mod mounts;
pub mod opens;
pub mod policy;
pub mod tree;
pub mod volume;
pub mod volume_change;
pub mod volume_cold;
pub mod volume_load;
pub mod volume_many;
pub mod volume_nodes;

use anyhow::Result;

use crate::context::Bench;
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
