//! The figures that `shunt top` shows of a mount: the changes between two readings. As JSON it is a contract: fields may be added, never
//! changed.

use std::collections::BTreeMap;

use serde::Serialize;
use shunt_fuse::mount::Dev;

use super::callers::{self, ProcessView};
use super::kinds::{CacheView, Ext4View, VolumeView};
use super::latency::{Latency, difference};
use super::processes::Processes;
use super::rate::rate;
use super::reading::{MountReading, Reading};
use crate::control::QueryResult;
use crate::report::{Requests, Stat};
use crate::text::without_numbers;

/// All mounts, as `shunt top --once --json` prints them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// Seconds between the two readings; none in the first one.
    pub interval_s: Option<f64>,
    /// The mounts.
    pub mounts: Vec<MountView>,
}

/// A mount.
#[derive(Clone, Debug, Serialize)]
pub struct MountView {
    /// The device number of the file system.
    #[serde(skip)]
    pub dev: Dev,
    /// The mount point. Bytes that are not UTF-8 are replaced, here and below.
    pub mountpoint: String,
    /// The source.
    pub source: String,
    /// The kind: `mirror`, ...
    pub kind: String,
    /// `up`, `silent` (its daemon does not reply in time) or `dead` (no daemon that this user may query).
    pub state: &'static str,
    /// The reason why its daemon does not reply.
    pub reason: Option<String>,
    /// The daemon and its figures; none if it does not reply.
    #[serde(flatten)]
    pub up: Option<Box<UpView>>,
}

/// The figures of a mount whose daemon replies. Rates are per second since the earlier reading. They are none if there is no earlier
/// one, or another daemon served then.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UpView {
    /// The daemon.
    pub daemon: DaemonView,
    /// Rates of all requests.
    pub rates: Option<Rates>,
    /// Latency of all requests since the earlier reading; none without requests.
    pub latency: Option<Latency>,
    /// Passthrough of file data.
    pub passthrough: PassthroughView,
    /// Caching.
    pub cache: CacheView,
    /// The operations that were requested since the daemon started.
    pub operations: BTreeMap<String, OperationView>,
    /// The processes that sent requests since the earlier reading, the busiest first.
    pub callers: Vec<ProcessView>,
    /// The volume, for mounts of volumes.
    pub volume: Option<VolumeView>,
    /// The file system on the image, for mounts of ext4.
    pub ext4: Option<Ext4View>,
}

/// The daemon of a mount.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DaemonView {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// `dev` or `uring`.
    pub transport: String,
    /// Seconds since it began to serve.
    pub uptime_s: f64,
    /// Its processor time since the earlier reading, in percent of one processor.
    pub cpu_percent: Option<f64>,
    /// Its resident memory.
    pub rss_bytes: u64,
    /// Its open file descriptors.
    pub descriptors: u64,
    /// Its threads that wait for requests.
    pub threads: u64,
    /// Requests that wait in it now.
    pub waiting: u64,
    /// Daemons of this mount that ended before this one.
    pub takeovers: u64,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Requests that the daemon answered.
    pub operations_per_s: f64,
    /// Requests answered with an error.
    pub errors_per_s: f64,
    /// File data in replies to reads, without that of passed-through files.
    pub read_bytes_per_s: f64,
    /// File data of writes, without that of passed-through files.
    pub written_bytes_per_s: f64,
    /// Files opened or created.
    pub opens_per_s: f64,
}

/// Passthrough of file data.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PassthroughView {
    /// It is on.
    pub enabled: bool,
    /// The reason why it is off.
    pub reason: Option<String>,
    /// Share of the opens that were passed through since the earlier reading, 0 to 1; without opens since then, since the daemon started.
    /// None without any.
    pub share: Option<f64>,
    /// Backing files registered with the kernel.
    pub backing_files: u64,
}

/// An operation. Rates are 0 if they are not known.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationView {
    /// Requests since the daemon started.
    pub count: u64,
    /// Failed requests since the daemon started.
    pub errors: u64,
    /// Requests per second.
    pub per_s: f64,
    /// Failed requests per second.
    pub errors_per_s: f64,
    /// Latency since the earlier reading; none without requests.
    pub latency: Option<Latency>,
    /// The longest time of a request since the daemon started, in microseconds.
    pub max_us: f64,
}

impl View {
    /// Compares a reading with the one before.
    pub fn between(before: Option<&Reading>, now: &Reading, processes: &mut Processes) -> View {
        processes.begin();
        let mounts = now.mounts.iter().map(|mount| {
            let same = |other: &&MountReading| other.dev == mount.dev;
            MountView::of(
                mount,
                before.and_then(|before| before.mounts.iter().find(same)?.report()),
                processes,
            )
        });
        View {
            mounts: mounts.collect(),
            interval_s: before.map(|before| now.at.saturating_duration_since(before.at).as_secs_f64()),
        }
    }
}

impl MountView {
    fn of(mount: &MountReading, before: Option<&Stat>, processes: &mut Processes) -> Self {
        let (state, reason) = match &mount.stat {
            QueryResult::Answer(_) => ("up", None),
            QueryResult::NoDaemon => ("dead", Some("no daemon of this user serves it".to_owned())),
            QueryResult::Silent(_, error) => ("silent", Some(without_numbers(&error.to_string()))),
        };
        MountView {
            dev: mount.dev,
            mountpoint: mount.mountpoint.clone(),
            source: mount.source.clone(),
            kind: mount.kind.clone(),
            state,
            reason,
            up: mount.report().map(|stat| Box::new(UpView::of(stat, before, processes))),
        }
    }

    /// The rates, if they are known.
    pub fn rates(&self) -> Option<&Rates> {
        self.up.as_ref()?.rates.as_ref()
    }

    /// The latency of all requests, if there were any.
    pub fn latency(&self) -> Option<&Latency> {
        self.up.as_ref()?.latency.as_ref()
    }
}

impl UpView {
    fn of(now: &Stat, before: Option<&Stat>, processes: &mut Processes) -> Self {
        // After a takeover the counters begin at zero.
        let before = before.filter(|before| before.pid == now.pid && before.started_s == now.started_s);
        // The clock of the daemon: it may have replied late to one of the queries.
        let seconds = before.map_or(1.0, |before| (now.uptime_s - before.uptime_s).max(1e-3));
        let operations: BTreeMap<String, OperationView> = now
            .requests
            .iter()
            .map(|(name, requests)| {
                let earlier = before.map(|stat| stat.requests.get(name).cloned().unwrap_or_default());
                (name.clone(), operation(requests, earlier.as_ref(), &now.latency_bounds_us, seconds))
            })
            .collect();
        let of_all = |read: fn(&OperationView) -> f64| operations.values().map(read).sum();
        let per_s = |read: fn(&Stat) -> u64| rate(now, before, seconds, read);
        let rates = before.map(|_| Rates {
            operations_per_s: of_all(|operation| operation.per_s),
            errors_per_s: of_all(|operation| operation.errors_per_s),
            read_bytes_per_s: per_s(|stat| stat.transferred.read_bytes),
            written_bytes_per_s: per_s(|stat| stat.transferred.written_bytes),
            opens_per_s: per_s(opens),
        });
        UpView {
            daemon: DaemonView {
                pid: now.pid,
                version: now.version.clone(),
                transport: now.transport.clone(),
                uptime_s: now.uptime_s,
                cpu_percent: before.map(|before| (now.cpu_s - before.cpu_s).max(0.0) / seconds * 100.0),
                rss_bytes: now.memory.rss_bytes,
                descriptors: now.memory.descriptors,
                threads: now.threads,
                waiting: now.waiting,
                takeovers: now.takeovers,
            },
            rates,
            latency: before.and_then(|before| {
                Latency::of(
                    &now.latency_bounds_us,
                    &difference(&now.total_latency(), &before.total_latency()),
                )
            }),
            passthrough: PassthroughView {
                enabled: now.passthrough.enabled,
                reason: now.passthrough.reason.clone(),
                share: share(now, before),
                backing_files: now.passthrough.backing_files,
            },
            cache: CacheView::of(now, before),
            operations,
            callers: before
                .map_or_else(Vec::new, |before| callers::processes(now, before, seconds, processes)),
            volume: now.volume.as_ref().map(|volume| VolumeView::of(volume, before, seconds)),
            ext4: now.ext4.as_ref().map(|ext4| Ext4View::of(ext4, before, seconds)),
        }
    }
}

fn operation(now: &Requests, before: Option<&Requests>, bounds_us: &[f64], seconds: f64) -> OperationView {
    let per_s = |read: fn(&Requests) -> u64| rate(now, before, seconds, read);
    OperationView {
        count: now.count,
        errors: now.errors,
        per_s: per_s(|requests| requests.count),
        errors_per_s: per_s(|requests| requests.errors),
        latency: before.and_then(|before| Latency::of(bounds_us, &difference(&now.latency, &before.latency))),
        max_us: now.max_us,
    }
}

/// Successful opens.
fn opens(stat: &Stat) -> u64 {
    let opens = ["open", "create", "tmpfile"].iter().filter_map(|operation| stat.requests.get(*operation));
    opens.map(|requests| requests.count.saturating_sub(requests.errors)).sum()
}

fn share(now: &Stat, before: Option<&Stat>) -> Option<f64> {
    let total = opens(now);
    let recent = before.map(|before| {
        (total.saturating_sub(opens(before)), now.passthrough.opens.saturating_sub(before.passthrough.opens))
    });
    let (opens, passed) = recent.filter(|(opens, _)| *opens > 0).unwrap_or((total, now.passthrough.opens));
    // The counters are not read at one instant.
    (opens > 0).then(|| (passed as f64 / opens as f64).min(1.0))
}

#[cfg(test)]
pub mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::report::counters::Transferred;

    /// A report of a daemon that runs for so long, after so many reads, half of which were slow, and opens, half of which were passed
    /// through.
    pub fn stat(uptime_s: f64, reads: u64) -> Stat {
        let mut stat = Stat { pid: 4, started_s: 1.0, kind: "mirror".into(), ..Stat::default() };
        stat.latency_bounds_us = vec![10.0, 20.0];
        let latency = vec![reads / 2, 0, reads / 2];
        let read = Requests { count: reads, errors: reads / 10, latency, ..Requests::default() };
        stat.requests.insert("read".into(), read);
        stat.requests.insert("open".into(), Requests { count: reads, ..Requests::default() });
        stat.passthrough.opens = reads / 2;
        stat.transferred = Transferred { read_bytes: reads * 4096, ..Transferred::default() };
        stat.cpu_s = reads as f64 / 1e3;
        stat.uptime_s = uptime_s;
        stat
    }

    /// A reply to a query.
    pub fn up(stat: Stat) -> QueryResult<Stat> {
        QueryResult::Answer(Box::new(stat))
    }

    /// A daemon that does not reply, for this reason.
    pub fn silent(reason: &str) -> QueryResult<Stat> {
        QueryResult::Silent(None, std::io::Error::other(reason.to_owned()))
    }

    /// A reading with mounts `/m0`, `/m1`, ...
    pub fn reading(at: Instant, stats: Vec<QueryResult<Stat>>) -> Reading {
        let mounts = stats.into_iter().enumerate().map(|(number, stat)| MountReading {
            dev: Dev { major: 0, minor: number as u32 },
            mountpoint: format!("/m{number}"),
            source: "/source".into(),
            kind: "mirror".into(),
            stat,
        });
        Reading { at, mounts: mounts.collect() }
    }

    #[test]
    fn rates_are_differences() {
        let start = Instant::now();
        let before = reading(start, vec![up(stat(1.0, 100))]);
        // Its reply was late, and covers two seconds.
        let now = reading(start + Duration::from_secs(1), vec![up(stat(3.0, 300))]);
        let view = View::between(Some(&before), &now, &mut Processes::default());
        assert_eq!(view.interval_s, Some(1.0));
        let rates = view.mounts[0].rates().unwrap();
        assert_eq!((rates.operations_per_s, rates.errors_per_s, rates.opens_per_s), (200.0, 10.0, 100.0));
        assert_eq!(rates.read_bytes_per_s, 409_600.0);
        let up = view.mounts[0].up.as_ref().unwrap();
        assert_eq!((up.passthrough.share, up.daemon.cpu_percent), (Some(0.5), Some(10.0)));
        let read = &up.operations["read"];
        assert_eq!((read.count, read.per_s), (300, 100.0));
        assert_eq!(read.latency.unwrap(), Latency { p50_us: 10.0, p99_us: 20.0 });
    }

    #[test]
    fn a_mount_that_just_came_or_was_taken_over_has_no_rates() {
        let start = Instant::now();
        let next = Stat { pid: 5, ..stat(1.0, 100) };
        let before = reading(start, vec![up(stat(9.0, 300))]);
        let now = reading(start, vec![up(next), up(stat(1.0, 1))]);
        let view = View::between(Some(&before), &now, &mut Processes::default());
        assert!(view.mounts.iter().all(|mount| mount.up.is_some() && mount.rates().is_none()));
        assert!(View::between(None, &now, &mut Processes::default()).mounts[0].rates().is_none());
    }

    #[test]
    fn a_mount_without_a_reply_has_a_reason() {
        let now = reading(Instant::now(), vec![QueryResult::NoDaemon, silent("stuck")]);
        let view = View::between(None, &now, &mut Processes::default());
        assert_eq!((view.mounts[0].state, view.mounts[1].state), ("dead", "silent"));
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["mounts"][1]["reason"], "stuck");
        assert!(json["mounts"][1].get("rates").is_none());
    }
}
