//! File data read and written by the daemon, as for files that cannot use passthrough.

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::fio::{self, Job};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::MountSetup;

pub const WORKLOAD: Workload = Workload {
    name: "daemon-data",
    about: "4 KiB sync fio and 1 MiB sequential on a cached file with data through the daemon, tmpfs",
    run,
};

const CASES: [(&str, &str, u32); 6] = [
    ("read", "read", 4096),
    ("write", "write", 4096),
    ("randread", "randread", 4096),
    ("randwrite", "randwrite", 4096),
    ("read-1m", "read", 1 << 20),
    ("write-1m", "write", 1 << 20),
];

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let size = bench.size(512 << 20, 64 << 20);
    let setup = MountSetup {
        medium: Medium::Tmpfs,
        descriptors: None,
        prepare: &|source| fio::lay_out(source, fio::FILE, size),
    };
    let cases = CASES.map(|(case, ..)| (case, Unit::MebibytesPerSecond));
    let peers = [
        Peer::NATIVE,
        Peer::BINDFS,
        Peer::LIBFUSE_DAEMON,
        Peer::LIBFUSE_URING_DAEMON,
        Peer::SHUNT_DAEMON,
        Peer::SHUNT_URING_DAEMON,
    ];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &peers, 5, setup, &mut |mount, _| {
        let job = |pattern, block| Job::cached(pattern, block, fio::FILE, size, bench.size(5, 1));
        Ok(CASES.into_iter().map(|(case, pattern, block)| (case, job(pattern, block).run(mount))).collect())
    })?;
    for row in &mut rows {
        row.at_least("shunt-nopt", 1.0, "libfuse-nopt");
        if row.case == "randwrite" {
            row.at_least("shunt-uring-nopt", 1.2, "libfuse-uring-nopt");
        }
    }
    Ok(rows)
}
