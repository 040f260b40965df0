//! Many inodes with few descriptors: a daemon that holds one descriptor per inode fails here.

use std::path::Path;

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::MountSetup;
use crate::{job, kernel_source};

pub const WORKLOAD: Workload = Workload {
    name: "descriptors",
    about: "untar 100,000 files with at most 1024 open files for the daemon",
    run,
};

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let archive = kernel_source::generated(bench, bench.size(100_000, 5_000))?;
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: Some(1024), prepare: &|_| Ok(()) };
    let cases = [("untar", Unit::Seconds)];
    let peers = [Peer::NATIVE, Peer::BINDFS, Peer::LIBFUSE, Peer::SHUNT];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &peers, 1, setup, &mut |mount, _| {
        let untar = |root: &Path| {
            job::shell(root, "tar -xf \"$1\"", &[archive.as_os_str()])?;
            Ok(())
        };
        Ok(vec![("untar", mount.time(untar))])
    })?;
    rows[0].works("shunt");
    Ok(rows)
}
