//! An ext4 image in memory: the kernel, `fuse2fs` and Shunt run the same workload on images of their own.

use std::path::Path;

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::fio::{self, Job};
use crate::image::{Image, Implementation, Names};
use crate::kernel_source;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;
use crate::{interleave, job, process};

pub const DATA: Workload = Workload {
    name: "ext4-data",
    about: "ext4 image in memory: fio, cold, warm and with O_DIRECT",
    run: data,
};

pub const NAMES: Workload = Workload {
    name: "ext4-names",
    about: "ext4 image in memory: 50,000 files in one directory, and a tree of 29,900 files",
    run: names,
};

pub const MOUNT: Workload =
    Workload { name: "ext4-mount", about: "mount an ext4 image of 1 TiB", run: mount };

const GIB: u64 = 1 << 30;

/// A case of file data: its job, the state of the caches before it, and its threshold.
struct DataCase {
    case: &'static str,
    /// The smallest accepted fraction of the kernel's rate.
    min_ratio: f64,
    caches: CacheState,
    job: fn(&Bench, u64) -> Job<'static>,
}

/// The state of the caches when a case begins.
#[derive(Clone, Copy)]
enum CacheState {
    /// As the case before left them.
    Any,
    /// Remounted with all caches dropped.
    Cold,
    /// The file is in the page cache.
    Warm,
}

const MIB: u32 = 1 << 20;

fn sized(pattern: &'static str, block: u32, bench: &Bench, size: u64) -> Job<'static> {
    Job { repeat: false, ..Job::cached(pattern, block, fio::FILE, size, bench.size(10, 2)) }
}

const DATA_CASES: [DataCase; 12] = [
    DataCase {
        case: "write-new-1m",
        min_ratio: 0.80,
        caches: CacheState::Any,
        job: |b, size| Job { new: true, fsync_on_close: true, ..sized("write", MIB, b, size) },
    },
    DataCase {
        case: "overwrite-1m",
        min_ratio: 0.50,
        caches: CacheState::Any,
        job: |b, size| Job { fsync_on_close: true, ..sized("write", MIB, b, size) },
    },
    DataCase {
        case: "read-cold-1m",
        min_ratio: 0.50,
        caches: CacheState::Cold,
        job: |b, size| sized("read", MIB, b, size),
    },
    DataCase {
        case: "read-warm-1m",
        min_ratio: 0.90,
        caches: CacheState::Warm,
        job: |b, size| sized("read", MIB, b, size),
    },
    DataCase {
        case: "randread-cold-4k",
        min_ratio: 1.0,
        caches: CacheState::Cold,
        job: |b, size| sized("randread", 4096, b, size),
    },
    DataCase {
        case: "randread-warm-4k",
        min_ratio: 0.90,
        caches: CacheState::Warm,
        job: |b, size| sized("randread", 4096, b, size),
    },
    DataCase {
        case: "randwrite-4k",
        min_ratio: 0.60,
        caches: CacheState::Any,
        job: |b, size| Job { fsync_on_close: true, ..sized("randwrite", 4096, b, size) },
    },
    DataCase {
        case: "direct-read-1m",
        min_ratio: 0.40,
        caches: CacheState::Cold,
        job: |b, size| Job { direct: true, ..sized("read", MIB, b, size) },
    },
    DataCase {
        case: "direct-write-1m",
        min_ratio: 0.40,
        caches: CacheState::Any,
        job: |b, size| Job { direct: true, ..sized("write", MIB, b, size) },
    },
    DataCase {
        case: "direct-read-4k",
        min_ratio: 1.0,
        caches: CacheState::Any,
        job: |b, size| Job { direct: true, ..sized("randread", 4096, b, size) },
    },
    DataCase {
        case: "direct-write-4k",
        min_ratio: 0.90,
        caches: CacheState::Any,
        job: |b, size| Job { direct: true, ..sized("randwrite", 4096, b, size) },
    },
    DataCase {
        case: "read-4-jobs",
        min_ratio: 0.70,
        caches: CacheState::Warm,
        job: |b, size| Job { jobs: 4, ..sized("randread", 4096, b, size) },
    },
];

/// The kernel's page cache uses large folios for ext4, but pages of 4 KiB for FUSE and tmpfs. A file of tmpfs, which needs no
/// server, therefore shows the upper bound of any FUSE file system on a warm file.
const SMALL_PAGES: &str = "tmpfs";

fn data(bench: &Bench) -> Result<Vec<Row>> {
    let size = bench.size(2 * GIB, 64 << 20);
    let mut small_pages = Vec::new();
    let mut rows: Vec<Row> =
        DATA_CASES.iter().map(|data| Row::new(DATA.name, data.case, Unit::MebibytesPerSecond)).collect();
    rounds(bench, DATA.name, &Implementation::ALL, &mut rows, &mut |implementation, record| {
        let mut image = Image::make(bench, implementation, bench.size(6 * GIB, GIB))?;
        for data in &DATA_CASES {
            // Reads from the page cache send no request, so the transport makes no difference.
            if implementation == Implementation::ShuntUring && matches!(data.caches, CacheState::Warm) {
                continue;
            }
            match data.caches {
                CacheState::Any => {}
                CacheState::Cold => image.remount_cold()?,
                CacheState::Warm => {
                    drop(job::shell(&image.root, "cat \"$1\" > /dev/null", &[fio::FILE.as_ref()])?)
                }
            }
            record(data.case, (data.job)(bench, size).measure(&image.root, || image.requests())?);
        }
        if implementation == Implementation::Kernel {
            drop(image);
            small_pages.extend(warm_in_memory(bench, size)?);
        }
        Ok(())
    })?;
    for (case, sample) in small_pages {
        if let Some(row) = rows.iter_mut().find(|row| row.case == case) {
            row.record(SMALL_PAGES, Ok(sample));
            row.finish(&bench.round_trips);
        }
    }
    for (row, data) in rows.iter_mut().zip(&DATA_CASES) {
        row.at_least("shunt", data.min_ratio, "kernel");
        if !matches!(data.caches, CacheState::Warm) {
            row.at_least("shunt-uring", data.min_ratio, "kernel");
        }
    }
    Ok(rows)
}

/// Runs the warm cases on a file of tmpfs.
fn warm_in_memory(bench: &Bench, size: u64) -> Result<Vec<(&'static str, Sample)>> {
    let directory = bench.source_dir(Medium::Tmpfs);
    fio::lay_out(&directory, fio::FILE, size)?;
    let warm = DATA_CASES.iter().filter(|data| matches!(data.caches, CacheState::Warm));
    let samples: Result<Vec<_>> =
        warm.map(|data| Ok((data.case, (data.job)(bench, size).measure(&directory, || None)?))).collect();
    std::fs::remove_file(directory.join(fio::FILE))?;
    samples
}

/// The unit of a step: files per second, or seconds.
enum Measure {
    PerSecond(u32),
    Seconds,
}

type Work<'a> = Box<dyn Fn(&Path) -> Result<()> + 'a>;

struct Step<'a> {
    case: &'static str,
    measure: Measure,
    /// The image is remounted before, with all caches dropped.
    cold: bool,
    work: Work<'a>,
}

fn names(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.size(50_000, 2_000);
    let many = Names(count);
    let archive = kernel_source::first(bench, bench.size(29_900, 2_000))?;
    let shell = |script: &'static str| -> Work<'_> {
        let archive = archive.clone();
        Box::new(move |root| job::shell(root, script, &[archive.as_os_str()]).map(drop))
    };
    let rate = Measure::PerSecond;
    let seconds = || Measure::Seconds;
    // fsync of the directory commits what the daemon holds back, where `sync -f` does not reach it.
    let untar = "mkdir tree; tar -xf \"$1\" -C tree; sync -f tree; sync tree";
    let read = "find tree -type f -print0 | xargs -0 cat > /dev/null";
    let steps = [
        Step { case: "create", measure: rate(count), cold: false, work: Box::new(|root| many.create(root)) },
        Step { case: "stat-cold", measure: rate(count), cold: true, work: Box::new(|root| many.stat(root)) },
        Step { case: "ls", measure: seconds(), cold: true, work: shell("ls -lU many > /dev/null") },
        Step { case: "unlink", measure: rate(count), cold: false, work: Box::new(|root| many.unlink(root)) },
        Step { case: "untar-sync", measure: seconds(), cold: false, work: shell(untar) },
        Step { case: "find-cold", measure: seconds(), cold: true, work: shell("find tree > /dev/null") },
        Step { case: "du-cold", measure: seconds(), cold: true, work: shell("du -s tree > /dev/null") },
        Step { case: "read-cold", measure: seconds(), cold: true, work: shell(read) },
        Step { case: "rm", measure: seconds(), cold: false, work: shell("rm -rf tree") },
    ];
    let mut rows: Vec<Row> = steps
        .iter()
        .map(|step| {
            let unit = match step.measure {
                Measure::PerSecond(_) => Unit::PerSecond,
                Measure::Seconds => Unit::Seconds,
            };
            Row::new(NAMES.name, step.case, unit)
        })
        .collect();
    rows.push(Row::new(NAMES.name, "peak-memory", Unit::Mebibytes));
    rounds(bench, NAMES.name, &Implementation::ALL, &mut rows, &mut |implementation, record| {
        let mut image = Image::make(bench, implementation, bench.size(6 * GIB, GIB))?;
        for step in &steps {
            if step.cold {
                image.remount_cold()?;
            }
            let sample = image.time(&step.work)?;
            let value = match step.measure {
                Measure::PerSecond(count) => f64::from(count) / sample.seconds,
                Measure::Seconds => sample.seconds,
            };
            record(step.case, Sample { value, ..sample });
        }
        if let Some(peak) = image.peak_memory() {
            let value = peak as f64 / f64::from(MIB);
            record("peak-memory", Sample { value, seconds: 0.0, requests: None });
        }
        Ok(())
    })?;
    for row in &mut rows {
        for peer in ["shunt", "shunt-uring"] {
            match row.case.as_str() {
                "create" => row.at_least_or_near_floor(peer, 0.40, "kernel", 1.3),
                "stat-cold" => row.at_least_or_near_floor(peer, 0.20, "kernel", 1.3),
                "unlink" => row.at_least_or_near_floor(peer, 0.30, "kernel", 1.3),
                "untar-sync" => row.at_most(peer, 3.0, "kernel"),
                "rm" => row.at_most(peer, 4.0, "kernel"),
                "peak-memory" => row.limit(peer, 128.0),
                _ => row.at_most(peer, 2.0, "kernel"),
            }
        }
    }
    Ok(rows)
}

fn mount(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = vec![Row::new(MOUNT.name, "mount-1-tib", Unit::Seconds)];
    rounds(bench, MOUNT.name, &Implementation::ONE_TRANSPORT, &mut rows, &mut |implementation, record| {
        let mut image = Image::sparse(bench, implementation, bench.size(1024 * GIB, 64 * GIB))?;
        process::drop_caches()?;
        record("mount-1-tib", image.mount()?);
        Ok(())
    })?;
    rows[0].limit("shunt", 0.2);
    Ok(rows)
}

type Record<'a> = dyn FnMut(&'static str, Sample) + 'a;

/// Runs each implementation in turn, with one image at a time: more would not fit into memory.
fn rounds(
    bench: &Bench,
    workload: &str,
    implementations: &[Implementation],
    rows: &mut [Row],
    work: &mut dyn FnMut(Implementation, &mut Record<'_>) -> Result<()>,
) -> Result<()> {
    let mut implementations: Vec<Implementation> =
        implementations.iter().copied().filter(|implementation| implementation.is_available(bench)).collect();
    for round in 0..bench.rounds(3) {
        let mut remaining = Vec::new();
        for implementation in implementations {
            say(format_args!("{workload}: round {}: {implementation}", round + 1));
            let done = work(implementation, &mut |case, sample| {
                if let Some(row) = rows.iter_mut().find(|row| row.case == case) {
                    row.record(&implementation.to_string(), Ok(sample));
                }
            });
            match done {
                Ok(()) => remaining.push(implementation),
                Err(error) => interleave::fail(rows, implementation, &error)?,
            }
        }
        implementations = remaining;
    }
    for row in rows {
        row.finish(&bench.round_trips);
    }
    Ok(())
}
