//! The cache of a volume on this machine: `--role`, `--cache-size`, `pin`, and its part of `status`.

use std::sync::Arc;
use std::time::Duration;

use shunt_volume::replica::{CacheManager, CacheMode, CachePolicy, Replica};
use shunt_volumefs::VolumeFs;

use crate::args::{PinArgs, RoleArg, Size};
use crate::cmd::volume::mounted_path::Place;
use crate::control::VolumeAsk;
use crate::error::{Result, failed, usage};
use crate::report::SpaceReport;
use crate::text::{bytes, printable};

/// Starts the cache manager with the policy of the command line.
pub fn start(replica: &Arc<Replica>, role: RoleArg, size: Option<Size>) -> Result<CacheManager> {
    let role = match role {
        RoleArg::Complete => CacheMode::Complete,
        RoleArg::Cached => CacheMode::Cached,
        RoleArg::Remote => CacheMode::Remote,
    };
    if size.is_some() && role != CacheMode::Cached {
        return Err(usage("--cache-size is for --role cached"));
    }
    let keep = CachePolicy { role, limit: size.map(|Size(bytes)| bytes) };
    CacheManager::start(replica.clone(), keep)
        .map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}

/// Pins files, or unpins them.
pub fn pin(args: &PinArgs, pinned: bool) -> Result<()> {
    for path in &args.paths {
        let place = Place::of(path)?;
        place.ask::<()>(&VolumeAsk::Pin { path: place.inside.clone(), pinned }, Duration::from_secs(10))?;
    }
    Ok(())
}

/// The state of the cache.
pub fn report(fs: &VolumeFs) -> SpaceReport {
    let here = fs.replica().cache_stats().unwrap_or_default();
    let mut report = SpaceReport {
        cached_bytes: here.bytes,
        pinned_bytes: here.pinned,
        unsent_bytes: here.changed,
        ..SpaceReport::default()
    };
    report.pinned = fs
        .replica()
        .pinned_paths()
        .unwrap_or_default()
        .iter()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    let (unmet, paths) = fs.replica().offline_misses().unwrap_or_default();
    report.unmet = unmet;
    report.unmet_paths = paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    if let Some(from) = fs.from_store() {
        let quality = from.quality();
        report.answer_ms = quality.answer.map(|answer| answer.as_secs_f64() * 1e3);
        report.bytes_per_second = quality.rate.map(|rate| rate as u64);
        report.slow = quality.is_slow;
        report.contents_away = from.is_gone();
    }
    if let Some(tender) = fs.tender() {
        let CachePolicy { role, limit } = tender.keep();
        let name = match role {
            CacheMode::Complete => "complete",
            CacheMode::Cached => "cached",
            CacheMode::Remote => "remote",
        };
        name.clone_into(&mut report.role);
        report.cached_limit = limit;
        report.stuck_bytes = tender.unevictable_bytes();
        report.awaited_files = tender.missing_files();
    }
    report
}

/// The state of the cache as text.
pub fn lines(report: &SpaceReport) -> String {
    let mut line = format!("here     {}", bytes(report.cached_bytes));
    if let Some(limit) = report.cached_limit {
        line += &format!(" of {}", bytes(limit));
    }
    line += &format!(", as {}", report.role);
    for (count, what) in [
        (report.pinned_bytes, "pinned"),
        (report.unsent_bytes, "not in the store"),
        (report.stuck_bytes, "too much, but open, pinned or not in the store"),
    ] {
        if count > 0 {
            line += &format!("; {} {what}", bytes(count));
        }
    }
    if report.awaited_files > 0 {
        line += &format!("; {} files are to come", report.awaited_files);
    }
    line += "\n";
    let answer = report.answer_ms.map(|ms| format!("answers in {ms:.1} ms"));
    let rate = report.bytes_per_second.map(|rate| format!("{}/s", bytes(rate)));
    let link = [answer, rate].into_iter().flatten().collect::<Vec<_>>().join(", ");
    if !link.is_empty() {
        let slow = if report.slow { "; slow: only what is asked for comes" } else { "" };
        line += &format!("link     {link}{slow}\n");
    }
    if report.contents_away {
        line += "away     contents: what is not here cannot be read until their store is back; it is asked twice a second\n";
    }
    if report.unmet > 0 {
        line +=
            &format!("missed   {} times, what is not here while the store is out of reach\n", report.unmet);
    }
    for path in &report.unmet_paths {
        line += &format!("         {}\n", printable(path));
    }
    for path in &report.pinned {
        line += &format!("pinned   {}\n", printable(if path.is_empty() { "." } else { path }));
    }
    line
}
