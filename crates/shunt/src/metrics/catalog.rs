//! The catalogue of metrics. The table in the book (`docs/src/guide/monitoring.md`) has the same rows.

use crate::report::{Requests, Stat};

use super::gateway::GATEWAY;
use super::sample::{Family, Kind, Read, Sample, Unit, Value, integer, known, labelled, number, of_mount};
use super::volume::VOLUMES;

use Kind::{Counter, Gauge, Histogram, Info};
use Unit::{Bytes, None as Plain, Seconds};

/// All metrics.
pub fn families() -> impl Iterator<Item = &'static Family> {
    PROCESS.iter().chain(MOUNTS).chain(EXT4).chain(VOLUMES).chain(GATEWAY)
}

/// The process that answers the scrape.
const PROCESS: &[Family] = &[
    Family {
        name: "shunt_exporter",
        kind: Info,
        unit: Plain,
        labels: &["version"],
        help: "The program that answers the scrape",
        read: Read::Process(|| vec![labelled(env!("CARGO_PKG_VERSION"), Value::Integer(1))]),
    },
    Family {
        name: "shunt_mount_up",
        kind: Gauge,
        unit: Plain,
        labels: &[],
        help: "Whether the daemon of the mount answers (1) or not (0)",
        read: Read::Up,
    },
];

const MOUNTS: &[Family] = &[
    Family {
        name: "shunt_mount",
        kind: Info,
        unit: Plain,
        labels: &["source", "kind", "transport", "version"],
        help: "Source, kind and transport of the mount, and version of its daemon",
        read: Read::Mount(|stat| {
            let labels = [&stat.source, &stat.kind, &stat.transport, &stat.version];
            vec![Sample { labels: labels.map(String::clone).to_vec(), value: Value::Integer(1) }]
        }),
    },
    by_operation("shunt_requests", Counter, Plain, "Requests that the daemon answered", |stat| {
        each_operation(stat, |requests| Value::Integer(requests.count))
    }),
    by_operation("shunt_request_errors", Counter, Plain, "Requests answered with an error", |stat| {
        each_operation(stat, |requests| Value::Integer(requests.errors))
    }),
    by_operation(
        "shunt_request_duration",
        Histogram,
        Seconds,
        "Time from reading a request to its reply; the sum is at most an eighth off",
        |stat| {
            // A daemon of an earlier version reports no buckets.
            let bounds = &stat.latency_bounds_us;
            let known =
                stat.requests.iter().filter(|(_, requests)| requests.latency.len() == bounds.len() + 1);
            known
                .map(|(operation, requests)| {
                    let bounds = bounds.iter().map(|bound| bound / 1e6).chain([f64::INFINITY]);
                    let buckets = bounds.zip(requests.latency.iter().copied()).collect();
                    labelled(operation, Value::Histogram(buckets, requests.total_us / 1e6))
                })
                .collect()
        },
    ),
    of_mount("shunt_requests_waiting", Gauge, Plain, "Requests that wait in the daemon", |stat| {
        integer(stat.waiting)
    }),
    of_mount("shunt_requests_cancelled", Counter, Plain, "Requests that their callers cancelled", |stat| {
        integer(stat.cancelled)
    }),
    of_mount(
        "shunt_requests_malformed",
        Counter,
        Plain,
        "Messages of the kernel that could not be parsed",
        |stat| integer(stat.malformed),
    ),
    of_mount("shunt_read", Counter, Bytes, "File data that the daemon sent in replies to reads", |stat| {
        integer(stat.transferred.read_bytes)
    }),
    of_mount("shunt_written", Counter, Bytes, "File data that the daemon received in writes", |stat| {
        integer(stat.transferred.written_bytes)
    }),
    of_mount(
        "shunt_zero_copied",
        Counter,
        Bytes,
        "The part of data read and written in zero-copy requests",
        |stat| integer(stat.transferred.zero_copied_bytes),
    ),
    of_mount("shunt_opens", Counter, Plain, "Files opened or created through the daemon", |stat| {
        let opens =
            ["open", "create", "tmpfile"].iter().filter_map(|operation| stat.requests.get(*operation));
        integer(opens.map(|requests| requests.count.saturating_sub(requests.errors)).sum())
    }),
    of_mount(
        "shunt_passthrough_opens",
        Counter,
        Plain,
        "Opens whose data the kernel reads and writes itself",
        |stat| integer(stat.passthrough.opens),
    ),
    of_mount("shunt_passthrough_enabled", Gauge, Plain, "Whether passthrough is on (1) or off (0)", |stat| {
        integer(stat.passthrough.enabled.into())
    }),
    of_mount(
        "shunt_passthrough_backing_files",
        Gauge,
        Plain,
        "Files registered with the kernel for passthrough",
        |stat| integer(stat.passthrough.backing_files),
    ),
    by_operation(
        "shunt_extension_hits",
        Counter,
        Plain,
        "Requests that the extension answered in the kernel, without the daemon",
        |stat| extension(stat, |counts| counts.answered),
    ),
    by_operation(
        "shunt_extension_misses",
        Counter,
        Plain,
        "Requests that the extension passed to the daemon",
        |stat| extension(stat, |counts| counts.passed + counts.refused),
    ),
    of_mount(
        "shunt_cache_overflows",
        Counter,
        Plain,
        "How often all cached names expired because too many notifications were queued",
        |stat| integer(stat.cache.overflows),
    ),
    of_mount(
        "shunt_watch_events",
        Counter,
        Plain,
        "Changes of the source by others that the watch reported",
        |stat| known(stat.cache.watch.as_ref().map(|watch| watch.events as f64)),
    ),
    of_mount("shunt_watch_overflows", Counter, Plain, "How often events of the watch were lost", |stat| {
        known(stat.cache.watch.as_ref().map(|watch| watch.overflows as f64))
    }),
    of_mount("shunt_takeovers", Counter, Plain, "Daemons of the mount that ended before this one", |stat| {
        integer(stat.takeovers)
    }),
    of_mount("shunt_takeover_pause", Gauge, Seconds, "Time without a daemon at the last takeover", |stat| {
        known(stat.takeover.as_ref().map(|takeover| takeover.pause_ms / 1e3))
    }),
    of_mount("shunt_inodes", Gauge, Plain, "Inodes that the kernel has looked up", |stat| {
        integer(stat.memory.nodes)
    }),
    of_mount("shunt_open_inodes", Gauge, Plain, "Inodes that are open", |stat| {
        integer(stat.memory.open_nodes)
    }),
    of_mount("shunt_daemon_start_time", Gauge, Seconds, "Start of the daemon, since 1970", |stat| {
        known(Some(stat.started_s).filter(|time| *time > 0.0))
    }),
    of_mount("shunt_daemon_cpu", Counter, Seconds, "Processor time of the daemon", |stat| number(stat.cpu_s)),
    of_mount("shunt_daemon_resident_memory", Gauge, Bytes, "Resident memory of the daemon", |stat| {
        integer(stat.memory.rss_bytes)
    }),
    of_mount("shunt_daemon_open_fds", Gauge, Plain, "Open file descriptors of the daemon", |stat| {
        integer(stat.memory.descriptors)
    }),
    of_mount("shunt_daemon_threads", Gauge, Plain, "Threads that read requests", |stat| {
        integer(stat.threads)
    }),
];

const EXT4: &[Family] = &[
    of_mount(
        "shunt_ext4_commits",
        Counter,
        Plain,
        "Commits that wrote metadata, to the journal if there is one",
        |stat| known(stat.ext4.map(|ext4| ext4.commits as f64)),
    ),
    of_mount(
        "shunt_ext4_metadata_reads",
        Counter,
        Plain,
        "Metadata blocks read because they were not cached",
        |stat| known(stat.ext4.map(|ext4| ext4.metadata_reads as f64)),
    ),
    of_mount(
        "shunt_ext4_corruptions",
        Counter,
        Plain,
        "Operations that failed because metadata is corrupt",
        |stat| known(stat.ext4.map(|ext4| ext4.corruptions as f64)),
    ),
    of_mount(
        "shunt_ext4_io_errors",
        Counter,
        Plain,
        "Operations that failed because the device failed",
        |stat| known(stat.ext4.map(|ext4| ext4.io_errors as f64)),
    ),
    of_mount(
        "shunt_ext4_aborted",
        Gauge,
        Plain,
        "Whether an error made the file system read-only (1)",
        |stat| known(stat.ext4.map(|ext4| f64::from(u8::from(ext4.mounted_writable && !ext4.writable)))),
    ),
];

const fn by_operation(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    read: fn(&Stat) -> Vec<Sample>,
) -> Family {
    Family { labels: &["operation"], ..of_mount(name, kind, unit, help, read) }
}

fn each_operation(stat: &Stat, value: fn(&Requests) -> Value) -> Vec<Sample> {
    stat.requests.iter().map(|(operation, requests)| labelled(operation, value(requests))).collect()
}

fn extension(stat: &Stat, value: fn(&crate::report::OpcodeCounts) -> u64) -> Vec<Sample> {
    let counts = stat.extension.as_ref().and_then(|extension| extension.counts.as_ref());
    let counts = counts.into_iter().flatten();
    counts.map(|(operation, counts)| labelled(operation, Value::Integer(value(counts)))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let mut names = BTreeSet::new();
        for family in families() {
            let name = family.full_name();
            assert!(name.starts_with("shunt_") && !family.help.ends_with('.'), "{name}");
            assert!(
                !["_total", "_info", "_count", "_sum", "_bucket"]
                    .iter()
                    .any(|end| family.name.ends_with(end))
            );
            assert!(names.insert(name.clone()), "{name}");
        }
    }

    /// A row of the book: `| name | type | labels | meaning |`.
    #[test]
    fn the_book_lists_each_metric() {
        let page = include_str!("../../../../docs/src/guide/monitoring.md");
        let rows: BTreeSet<String> = page
            .lines()
            .filter(|line| line.starts_with("| `shunt_"))
            .map(|line| line.split('|').skip(1).take(3).map(str::trim).collect::<Vec<_>>().join(" | "))
            .collect();
        let expected: BTreeSet<String> = families()
            .map(|family| {
                let subject = match family.read {
                    Read::Mount(_) | Read::Up => Some("mount"),
                    Read::Gateway(_) => Some("volume"),
                    Read::Process(_) => None,
                };
                let labels = subject.into_iter().chain(family.labels.iter().copied());
                let labels: Vec<_> = labels.map(|label| format!("`{label}`")).collect();
                format!("`{}` | {} | {}", family.full_name(), family.kind.name(), labels.join(", "))
            })
            .collect();
        let missing: Vec<_> = expected.difference(&rows).collect();
        let unknown: Vec<_> = rows.difference(&expected).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "missing: {missing:#?}\nunknown: {unknown:#?}");
    }
}
