//! A cold file on the disk that is larger than the memory its page cache may use, fsynced on close: synchronous calls, then
//! libaio.

use anyhow::Result;

use super::Workload;
use crate::cgroup::MemoryGroup;
use crate::context::{Bench, Medium};
use crate::fio::{self, Job, PATTERNS};
use crate::interleave::interleave;
use crate::model::{Row, Unit};
use crate::peer::Peer;
use crate::peer_mount::MountSetup;
use crate::process;

pub const SYNC: Workload = Workload {
    name: "cold",
    about: "4 KiB sync fio on a cold file larger than the memory limit, fsync on close, disk",
    run: |bench| run(bench, "cold", None),
};

pub const AIO: Workload = Workload {
    name: "aio",
    about: "4 KiB libaio fio with O_DIRECT at queue depth 32 on a file larger than the memory limit, disk",
    run: |bench| run(bench, "aio", Some(32)),
};

/// The ratios that the kernel's passthrough series was posted with, in the order of [`PATTERNS`].
const MIN_RATIOS: [f64; 4] = [0.97, 0.81, 0.76, 0.81];

fn run(bench: &Bench, name: &str, aio_depth: Option<u32>) -> Result<Vec<Row>> {
    let size: u64 = bench.size(1 << 30, 96 << 20);
    let memory: u64 = bench.size(256 << 20, 48 << 20);
    let group = MemoryGroup::new(memory)?;
    let setup = MountSetup {
        medium: Medium::Disk,
        descriptors: None,
        prepare: &|source| fio::lay_out(source, fio::FILE, size),
    };
    let cases = PATTERNS.map(|pattern| (pattern, Unit::MebibytesPerSecond));
    // Passthrough of O_DIRECT opens is requested explicitly; by default the daemon handles such opens.
    let (passing, other) = match aio_depth {
        Some(_) => (Peer::SHUNT_ALWAYS, &[Peer::SHUNT][..]),
        None => (Peer::SHUNT, &[][..]),
    };
    let peers = [&[Peer::NATIVE, Peer::BINDFS, Peer::LIBFUSE, passing][..], other].concat();
    let mut rows = interleave(bench, name, &cases, &peers, 5, setup, &mut |mount, _| {
        // The daemon's page cache, filled on the client's behalf, counts against the same limit.
        if mount.daemon().is_some() {
            group.add(mount.daemon_pid()?)?;
        }
        let mut outcomes = Vec::new();
        for pattern in PATTERNS {
            process::drop_caches()?;
            let job = Job {
                repeat: false,
                aio_depth,
                fsync_on_close: true,
                group: Some(&group),
                ..Job::cached(pattern, 4096, fio::FILE, size, bench.size(20, 2))
            };
            outcomes.push((pattern, job.run(mount)));
        }
        Ok(outcomes)
    })?;
    for (row, min_ratio) in rows.iter_mut().zip(MIN_RATIOS) {
        row.at_least(&passing.name(), min_ratio, "native");
    }
    Ok(rows)
}
