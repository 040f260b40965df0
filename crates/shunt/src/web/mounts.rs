//! The mounts with their statistics. Rates and latencies of an interval are differences of two replies, which the page computes.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::metrics::Source as _;
use crate::report::Stat;

use super::app::App;

/// All mounts.
pub fn list(app: &App) -> Value {
    let scrape = app.source.scrape();
    let mounts = scrape.mounts.iter().map(|mount| match &mount.stat {
        Some(stat) => of_stat(&mount.mountpoint, stat),
        None => json!({ "mountpoint": mount.mountpoint, "up": false }),
    });
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "allow_changes": app.settings.allow_changes,
        "version": env!("CARGO_PKG_VERSION"),
        "time_s": since_epoch.as_secs_f64(),
        "mounts": mounts.collect::<Vec<_>>(),
    })
}

fn of_stat(mountpoint: &str, stat: &Stat) -> Value {
    json!({
        "mountpoint": mountpoint,
        "up": true,
        "source": stat.source,
        "kind": stat.kind,
        "transport": stat.transport,
        "pid": stat.pid,
        "version": stat.version,
        "started_s": stat.started_s,
        "takeovers": stat.takeovers,
        "requests": stat.requests.values().map(|requests| requests.count).sum::<u64>(),
        "errors": stat.requests.values().map(|requests| requests.errors).sum::<u64>(),
        "waiting": stat.waiting,
        "read_bytes": stat.transferred.read_bytes,
        "written_bytes": stat.transferred.written_bytes,
        "latency": stat.total_latency(),
        "latency_bounds_us": stat.latency_bounds_us,
        "cpu_s": stat.cpu_s,
        "rss_bytes": stat.memory.rss_bytes,
        "passthrough": stat.passthrough.enabled,
        "passthrough_opens": stat.passthrough.opens,
        "volume": stat.volume,
    })
}
