//! Power failures: whichever unflushed writes are lost, the file system is consistent, synced data is present, and no file
//! contains data of another.
//!
//! Workloads are all short sequences of operations on a recording device. The engine recovers every prefix of the writes, and
//! samples of the possible contents between two flushes; e2fsck checks the results. Needs mkfs.ext4 and e2fsck, and no root. In
//! CI (`CI=true`) their absence is a failure.
//!
//! `CRASH_TIME` (seconds) extends the run to more workloads; `CRASH_STATE` names a file with the number at which the last run
//! stopped.

mod device_errors;
mod engine;
mod image;
mod model;
mod ops;
mod power_cuts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shunt_ext4::device::Recorder;
use shunt_ext4::{Filesystem, MemoryDevice};

use image::Checker;
use power_cuts::{PowerCut, Rng};

/// Statistics of a run.
#[derive(Default)]
struct Statistics {
    workloads: AtomicU64,
    cuts: AtomicU64,
    replayed: AtomicU64,
}

/// Recovers from one power failure, and checks the result.
fn survives(
    run: &engine::Run,
    cut: &PowerCut,
    checker: &mut Checker,
    counts: &Statistics,
) -> Result<(), String> {
    let states = run.states_at(cut.after);
    let to_text = |error: shunt_ext4::Error| error.to_string();
    counts.cuts.fetch_add(1, Ordering::Relaxed);
    // Open for reading, with the journal replayed in memory.
    let device = Arc::new(MemoryDevice::new(cut.image.clone()));
    let fs = Filesystem::open(device.clone()).map_err(to_text)?;
    let seen = engine::look(&fs).map_err(to_text)?;
    model::is_one_of(&seen, states).map_err(|why| format!("opened read-only: {why}"))?;
    counts.replayed.fetch_add(fs.recovered().is_some_and(|done| done.blocks > 0).into(), Ordering::Relaxed);
    drop(fs);
    // Open for writing, which empties the journal and frees orphans.
    let fs = Filesystem::open_writable(device.clone()).map_err(to_text)?;
    let after = engine::look(&fs).map_err(to_text)?;
    if after != seen {
        return Err("opened for writing, the tree differs from the read-only one".into());
    }
    fs.close().map_err(to_text)?;
    checker.is_clean(&device.bytes())
}

fn cut_workload(
    number: u64,
    base: &[u8],
    samples: usize,
    checker: &mut Checker,
    counts: &Statistics,
) -> Result<(), String> {
    let ops = ops::workload(number);
    let run = engine::run(base, &ops);
    counts.workloads.fetch_add(1, Ordering::Relaxed);
    let mut result = Ok(());
    let lasts = |mark| run.makes_last(mark);
    power_cuts::each(base, &run.events, lasts, samples, &mut Rng::new(number), |cut| {
        if result.is_ok() {
            result = survives(&run, &cut, checker, counts).map_err(|why| {
                let kept = checker.keep(&cut.image);
                format!("workload {number} {:?}, cut after event {}: {why}\n  {kept}", run.ops, cut.after)
            });
        }
    });
    result
}

/// Returns the workload at which the last extended run stopped.
fn resumed() -> u64 {
    let state = std::env::var_os("CRASH_STATE").and_then(|path| std::fs::read_to_string(path).ok());
    state.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn every_power_cut_leaves_a_consistent_file_system() {
    let Some(images) = image::bases() else { return };
    let time = std::env::var("CRASH_TIME").ok().and_then(|time| time.parse().ok());
    let end = Instant::now() + Duration::from_secs(time.unwrap_or(20));
    let counts = Statistics::default();
    let next = AtomicU64::new(resumed());
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    // A short run takes those of one operation and a scattered part of longer ones. An extended run takes all of them in turn.
    let all = ops::long() + ops::count(1) + ops::count(2) + ops::count(3);
    let number_of = |turn: u64| match time {
        None if turn >= ops::long() + ops::count(1) => turn.wrapping_mul(7_368_787) % all,
        _ => turn,
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut checker = Checker::new();
            while Instant::now() < end {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let number = number_of(turn);
                let base = match number < ops::long() {
                    true => &images[image::FULL],
                    false => &images[turn as usize % images.len()],
                };
                cut_workload(number, base, 2, &mut checker, &counts)?;
            }
            Ok(())
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().filter_map(|one| one.join().unwrap().err()).collect()
    });
    let [workloads, cuts, replayed] = [&counts.workloads, &counts.cuts, &counts.replayed]
        .map(|count: &AtomicU64| count.load(Ordering::Relaxed));
    println!("{workloads} workloads, {cuts} cuts, {replayed} of them with a journal to replay");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    if let Some(path) = std::env::var_os("CRASH_STATE") {
        std::fs::write(path, format!("{}\n", next.into_inner())).unwrap();
    }
    // Slow machines complete less, but none completes nothing.
    assert!(cuts > 100 && replayed > cuts / 20, "{cuts} cuts, {replayed} replayed");
}

/// The superblock always has the recovery flag while the journal is in use: otherwise, e2fsck reports damage.
#[test]
fn journal_in_use_is_always_flagged() {
    let Some(images) = image::bases() else { return };
    let mut checker = Checker::new();
    for base in &images {
        let device = Arc::new(Recorder::new(MemoryDevice::new(base.clone())));
        Filesystem::open_writable(device.clone()).unwrap().close().unwrap();
        let mut in_use = 0;
        power_cuts::each(
            base,
            &device.events(),
            |_| false,
            2,
            &mut Rng::new(1),
            |cut| {
                let header = checker.header(&cut.image);
                let line = |name| header.lines().find(|line| line.starts_with(name)).unwrap_or_default();
                if line("Journal start:").split_whitespace().last().is_some_and(|start| start != "0") {
                    let features = line("Filesystem features:");
                    assert!(features.contains("needs_recovery"), "after event {}: {features}", cut.after);
                    in_use += 1;
                }
            },
        );
        assert_eq!(in_use > 0, checker.header(base).contains("has_journal"));
    }
}

#[test]
fn torn_superblock_is_repaired() {
    let Some(images) = image::bases() else { return };
    // With checksums, and long enough for a checkpoint at the end.
    let run = engine::run(&images[0], &ops::workload(ops::long()));
    let mut mended = 0;
    // Restored from the journal or, if that has no copy, confirmed by a backup.
    power_cuts::within_superblocks(&images[0], &run.events, |cut| {
        survives(&run, &cut, &mut Checker::new(), &Statistics::default()).unwrap();
        mended += 1;
    });
    assert!(mended > 4, "{mended} superblocks repaired");
    // A superblock that differs from its backups counts as damaged.
    let mut damaged = images[0].clone();
    damaged[1024 + 0x78] ^= 1;
    let opened = Filesystem::open_writable(Arc::new(MemoryDevice::new(damaged)));
    assert!(opened.is_err_and(|error| error.to_string().contains("superblock: checksum")));
}

#[test]
fn failing_device_keeps_synced_changes() {
    let Some(images) = image::bases() else { return };
    let mut checker = Checker::new();
    let end = Instant::now() + Duration::from_secs(15);
    let mut faults = 0;
    for turn in 0_u64.. {
        if Instant::now() > end {
            break;
        }
        let ops =
            ops::workload(turn.wrapping_mul(7_368_787) % (ops::count(1) + ops::count(2) + ops::count(3)));
        let base = &images[turn as usize % images.len()];
        for way in device_errors::FAILURE_MODES {
            for n in 0.. {
                match device_errors::survives(base, &ops, n, way, &mut checker) {
                    Ok(true) => faults += 1,
                    Ok(false) => break,
                    Err(why) => panic!("{ops:?}, failure {way:?} of write {n}: {why}"),
                }
            }
        }
    }
    println!("{faults} faults");
    assert!(faults > 50, "{faults} faults");
}
