//! The list of workloads.

use anyhow::{Result, bail};

use crate::workload::{
    Workload, build, cached, coherent, cold, daemon_data, descriptors, engine, ext4, fuser_file, killpriv,
    memory, mounts, opens, policy, tree, volume, volume_change, volume_cold, volume_load, volume_many,
    volume_nodes,
};

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
            bail!("no workload matches {part}; the workloads are {}", names.join(", "));
        }
    }
    let wanted = |workload: &&Workload| {
        parts.is_empty() || parts.iter().any(|part| workload.name.contains(part.as_str()))
    };
    Ok(ALL.iter().filter(wanted).collect())
}
