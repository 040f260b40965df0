//! The only workload that fuser's example supports: 4 KiB reads of its single, small, read-only file.

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::fio::{self, Job};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::{FUSER_FILE, FUSER_FILE_SIZE, Peer};
use crate::peer_mount::MountSetup;

pub const WORKLOAD: Workload = Workload {
    name: "fuser-file",
    about: "4 KiB sync fio reads of the cached file of 120 KiB that fuser's example serves",
    run,
};

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let setup = MountSetup {
        medium: Medium::Tmpfs,
        descriptors: None,
        prepare: &|source| fio::lay_out(source, FUSER_FILE, FUSER_FILE_SIZE),
    };
    let cases = [("read", Unit::MebibytesPerSecond), ("randread", Unit::MebibytesPerSecond)];
    let peers = [Peer::NATIVE, Peer::FUSER, Peer::LIBFUSE, Peer::SHUNT];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &peers, 5, setup, &mut |mount, _| {
        let size = FUSER_FILE_SIZE / 4096 * 4096;
        let job = |pattern| Job::cached(pattern, 4096, FUSER_FILE, size, bench.size(5, 1));
        Ok(cases.into_iter().map(|(pattern, _)| (pattern, job(pattern).run(mount))).collect())
    })?;
    for row in &mut rows {
        row.at_least("shunt", 0.80, "native");
    }
    Ok(rows)
}
