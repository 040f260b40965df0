//! Benchmarks against the kernel's own ext4, in the same boot, on identical disks and in turns. Results are ratios, which are
//! more portable than absolute figures.

mod reads;
mod writes;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::aligned::Aligned;
use super::disk::{Mount, run, spare_disk};

/// Number of rounds; each runs both implementations once.
const ROUNDS: usize = 5;

/// Size of the test file.
const SIZE: u64 = 64 << 20;
const PIECE: usize = 1 << 20;
const PAGE: usize = 4096;

/// A measurement of about a second on a mount.
struct Measure {
    name: &'static str,
    unit: &'static str,
    /// Fraction of the kernel's figure that must be reached.
    bar: Option<f64>,
    run: fn(&Path) -> f64,
}

/// Prepares two disks with the same content, for the kernel and for Shunt.
fn disks_alike(fill: fn(&Path)) -> Option<[PathBuf; 2]> {
    let disks = [spare_disk("kernel")?, spare_disk("shunt")?];
    for disk in &disks {
        // Leaves no lazy initialisation to run during a measurement.
        let now = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.to_str()?];
        run("mkfs.ext4", &now);
        fill(&Mount::kernel(disk, "/tmp/filled", "rw").0);
    }
    Some(disks)
}

fn open(path: &Path, write: bool, direct: bool) -> File {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    File::options().read(true).write(write).create(write).custom_flags(flags).open(path).unwrap()
}

/// Returns random pages of the file, the same each time.
fn random_pages(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_u64;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % (SIZE / PAGE as u64) * PAGE as u64
    };
    std::iter::repeat_with(next).take(count)
}

/// Returns a rate per second.
fn rate(amount: f64, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    amount / begun.elapsed().as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures both in turns, and prints the median of each and of the rounds' ratios. Returns the thresholds that were missed.
fn compare(measures: &[Measure], kernel: &Path, shunt: &Path) -> Vec<String> {
    let mut missed = Vec::new();
    println!(
        "| lab, median of {ROUNDS} rounds | kernel ext4 | extmap | ratio | min to max | threshold |\n|---|---|---|---|---|---|"
    );
    for measure in measures {
        let round = |n: usize| {
            // Alternates the order, so that neither always runs second.
            let [first, second] = if n.is_multiple_of(2) { [kernel, shunt] } else { [shunt, kernel] };
            let [one, other] = [first, second].map(measure.run);
            if n.is_multiple_of(2) { [one, other] } else { [other, one] }
        };
        let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(round).collect();
        let ratios: Vec<f64> = rounds.iter().map(|[kernel, shunt]| shunt / kernel).collect();
        let [kernel, shunt] = [0, 1].map(|who| median(rounds.iter().map(|round| round[who]).collect()));
        let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let max = ratios.iter().copied().fold(0.0, f64::max);
        let ratio = median(ratios);
        let bar = measure.bar.map_or(String::new(), |bar| format!("{bar:.1}"));
        println!(
            "| {}, {} | {kernel:.0} | {shunt:.0} | {ratio:.2} | {min:.2} to {max:.2} | {bar} |",
            measure.name, measure.unit
        );
        if measure.bar.is_some_and(|bar| ratio < bar) {
            missed.push(format!("{}: {ratio:.2} of {bar}", measure.name));
        }
    }
    missed
}
