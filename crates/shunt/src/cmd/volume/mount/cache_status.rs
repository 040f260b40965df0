//! The cache of a volume on this machine: `--cache-mode`, `--cache-size`, `pin`, and its part of `status`.

use std::sync::Arc;
use std::time::Duration;

use shunt_volume::replica::{CacheManager, CacheMode, CachePolicy, Replica};
use shunt_volumefs::VolumeFs;

use crate::args::{CacheModeArg, PinArgs, Size};
use crate::cmd::volume::mounted_path::MountedPath;
use crate::control::VolumeAsk;
use crate::error::{Result, failed, usage};
use crate::report::SpaceReport;
use crate::text::bytes;

/// Starts the cache manager with the policy of the command line.
pub fn start(replica: &Arc<Replica>, mode: CacheModeArg, size: Option<Size>) -> Result<CacheManager> {
    let role = match mode {
        CacheModeArg::Full => CacheMode::Full,
        CacheModeArg::Cached => CacheMode::Cached,
        CacheModeArg::OnDemand => CacheMode::OnDemand,
    };
    if size.is_some() && role != CacheMode::Cached {
        return Err(usage("--cache-size requires --cache-mode cached"));
    }
    let keep = CachePolicy { mode: role, limit: size.map(|Size(bytes)| bytes) };
    CacheManager::start(replica.clone(), keep)
        .map_err(|error| failed(format_args!("cannot start a thread: {error}")))
}

/// Pins files, or unpins them.
pub fn pin(args: &PinArgs, pinned: bool) -> Result<()> {
    for path in &args.paths {
        let mounted = MountedPath::of(path)?;
        mounted.request::<()>(
            &VolumeAsk::Pin { path: mounted.inside.clone(), pinned },
            Duration::from_secs(10),
        )?;
    }
    Ok(())
}

/// The state of the cache.
pub fn report(fs: &VolumeFs) -> SpaceReport {
    let here = fs.replica().cache_stats().unwrap_or_default();
    let counts = fs.replica().cache_counts();
    let mut report = SpaceReport {
        cache_hits: counts.hits,
        cache_misses: counts.misses,
        fetched_bytes: counts.fetched_bytes,
        evicted_files: counts.evicted_files,
        evicted_bytes: counts.evicted_bytes,
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
    let (misses, paths) = fs.replica().offline_misses().unwrap_or_default();
    report.offline_misses = misses;
    report.offline_miss_paths = paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    if let Some(from) = fs.fetcher() {
        let quality = from.quality();
        report.answer_ms = quality.latency.map(|answer| answer.as_secs_f64() * 1e3);
        report.bytes_per_second = quality.rate.map(|rate| rate as u64);
        report.slow = quality.is_slow;
        report.objects_unreachable = from.has_outage();
    }
    if let Some(cache_manager) = fs.cache_manager() {
        let CachePolicy { mode: role, limit } = cache_manager.policy();
        let name = match role {
            CacheMode::Full => "full",
            CacheMode::Cached => "cached",
            CacheMode::OnDemand => "on-demand",
        };
        name.clone_into(&mut report.cache_mode);
        report.cached_limit = limit;
        report.unevictable_bytes = cache_manager.unevictable_bytes();
        report.missing_files = cache_manager.missing_files();
    }
    report
}

/// The state of the cache as lines with labels.
pub fn lines(report: &SpaceReport) -> Vec<(&'static str, String)> {
    let mut cached = bytes(report.cached_bytes);
    if let Some(limit) = report.cached_limit {
        cached += &format!(" of {}", bytes(limit));
    }
    if !report.cache_mode.is_empty() {
        cached += &format!(" (mode: {})", report.cache_mode);
    }
    for (count, what) in [
        (report.pinned_bytes, "pinned"),
        (report.unsent_bytes, "not in the store"),
        (report.unevictable_bytes, "above the limit, unevictable"),
    ] {
        if count > 0 {
            cached += &format!("; {} {what}", bytes(count));
        }
    }
    if report.missing_files > 0 {
        cached += &format!("; {} files to download", report.missing_files);
    }
    let mut lines = vec![("cached", cached)];
    if let Some(ms) = report.answer_ms {
        lines.push(("store latency", format!("{ms:.1} ms")));
    }
    if let Some(rate) = report.bytes_per_second {
        lines.push(("download rate", format!("{}/s", bytes(rate))));
    }
    if report.slow {
        lines.push(("slow link", "contents are fetched on demand only".to_owned()));
    }
    if report.objects_unreachable {
        let text =
            "objects unreachable: contents that are not cached fail with ENETUNREACH; probed twice a second";
        lines.push(("store", text.to_owned()));
    }
    if report.offline_misses > 0 {
        lines.push(("offline misses", report.offline_misses.to_string()));
    }
    lines.extend(report.offline_miss_paths.iter().map(|path| ("", path.clone())));
    let pinned = report.pinned.iter().map(|path| if path.is_empty() { "." } else { path });
    lines.extend(pinned.map(|path| ("pinned", path.to_owned())));
    lines
}
