//! 4 KiB calls on a file in the page cache: the cost of the call path, with no device involved.

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::fio::{self, Job, PATTERNS};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::MountSetup;

pub const TMPFS: Workload = Workload {
    name: "cached-tmpfs",
    about: "4 KiB sync fio on a cached file, tmpfs",
    run: |bench| run(bench, "cached-tmpfs", Medium::Tmpfs),
};

pub const DISK: Workload = Workload {
    name: "cached-disk",
    about: "4 KiB sync fio on a cached file, disk",
    run: |bench| run(bench, "cached-disk", Medium::Disk),
};

fn run(bench: &Bench, name: &str, medium: Medium) -> Result<Vec<Row>> {
    let size = bench.size(512 << 20, 64 << 20);
    let setup =
        MountSetup { medium, descriptors: None, prepare: &|source| fio::lay_out(source, fio::FILE, size) };
    let cases = PATTERNS.map(|pattern| (pattern, Unit::MebibytesPerSecond));
    let peers = [Peer::NATIVE, Peer::BINDFS, Peer::LIBFUSE, Peer::SHUNT];
    let mut rows = interleave(bench, name, &cases, &peers, 5, setup, &mut |mount, _| {
        let job = |pattern| Job::cached(pattern, 4096, fio::FILE, size, bench.size(5, 1));
        Ok(PATTERNS.into_iter().map(|pattern| (pattern, job(pattern).run(mount))).collect())
    })?;
    for row in &mut rows {
        row.at_least("shunt", 0.80, "native");
        if row.case == "write" {
            row.at_least("shunt", 5.0, "libfuse");
        }
    }
    Ok(rows)
}
