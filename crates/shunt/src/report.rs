//! The daemon's report about its mount. As JSON it is a contract: fields may be added, never changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub mod counters;
pub mod renamed;

use counters::{Caller, Ext4Report, Transferred};
use renamed::{Renamed, serde_with_former_names, set_both, set_both_words};

/// One mount, as `shunt list --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The mount point. Bytes that are not UTF-8 are replaced, here and below.
    pub mountpoint: String,
    /// The source that it shows.
    pub source: String,
    /// The file system: `mirror`, ...
    pub kind: String,
    /// The process that serves it. None if no daemon could be queried: it died, or belongs to another user.
    pub pid: Option<u32>,
    /// `dev` or `uring`.
    pub transport: Option<String>,
    /// The reason why the requested transport is not in use.
    #[serde(default)]
    pub transport_reason: Option<String>,
    /// Kernel passthrough of file data is on.
    pub passthrough: Option<bool>,
}

/// The statistics of a mount, as `shunt stat --json` shows them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// The mount point.
    pub mountpoint: String,
    /// The source that it shows.
    pub source: String,
    /// The file system.
    pub kind: String,
    /// The process that serves it.
    pub pid: u32,
    /// The version of that process.
    pub version: String,
    /// `dev` or `uring`.
    pub transport: String,
    /// The reason why the requested transport is not in use.
    #[serde(default)]
    pub transport_reason: Option<String>,
    /// With `uring`, where the data of requests is kept: `per-entry`, `pool` or `zero-copy`.
    #[serde(default)]
    pub transport_buffers: Option<String>,
    /// Seconds since this daemon began to serve.
    pub uptime_s: f64,
    /// The time when this daemon began to serve, in seconds since 1970.
    #[serde(default)]
    pub started_s: f64,
    /// Processor time of this daemon, in seconds.
    #[serde(default)]
    pub cpu_s: f64,
    /// Daemons of this mount that ended before this one.
    #[serde(default)]
    pub takeovers: u64,
    /// How this daemon took over, if it is not the first.
    #[serde(default)]
    pub takeover: Option<TookOver>,
    /// The reason why no daemon can take over from this one; none if one can.
    #[serde(default)]
    pub no_takeover: Option<String>,
    /// Threads that wait for requests.
    pub threads: u64,
    /// Bursts of requests during which idle processors polled.
    #[serde(default)]
    pub wakeful_bursts: u64,
    /// Requests queued in the daemon now.
    pub waiting: u64,
    /// Requests given up by their callers.
    pub cancelled: u64,
    /// Messages of the kernel that could not be parsed.
    #[serde(default)]
    pub malformed: u64,
    /// File data that passed through the daemon.
    #[serde(default)]
    pub transferred: Transferred,
    /// Upper bounds of the buckets in [`Requests::latency`], in microseconds.
    #[serde(default)]
    pub latency_bounds_us: Vec<f64>,
    /// Requests by operation. An operation without requests is absent.
    pub requests: BTreeMap<String, Requests>,
    /// Failed requests by operation. An operation without failures is absent.
    pub errors: BTreeMap<String, u64>,
    /// Operations that the kernel never asked for.
    pub never_asked: Vec<String>,
    /// The state of passthrough, and what it saved.
    pub passthrough: Passthrough,
    /// Directories of the source that are mounted on the mount: paths below the mount point.
    #[serde(default)]
    pub grafts: Vec<PathBuf>,
    /// The enforcer of the rules of its policy, and the reason if it is not the kernel.
    #[serde(default)]
    pub rules: Option<String>,
    /// The caching by the kernel.
    pub cache: Cache,
    /// The memory of the daemon.
    pub memory: Memory,
    /// The result of the negotiation with the kernel.
    pub negotiated: Negotiated,
    /// The extension that answers in the kernel, if one was requested.
    #[serde(default)]
    pub extension: Option<Extension>,
    /// The threads that sent requests in the last minute, at most 64: first those that are active, then by their requests.
    #[serde(default)]
    pub callers: Vec<Caller>,
    /// The inode number of `/proc/self/ns/pid` of the daemon: the PID namespace of the ids of the callers. None if it is unknown.
    #[serde(default)]
    pub pid_namespace: Option<u64>,
    /// The volume, for mounts of volumes.
    #[serde(default)]
    pub volume: Option<VolumeReport>,
    /// The file system on the image, for mounts of ext4.
    #[serde(default)]
    pub ext4: Option<Ext4Report>,
}

impl Stat {
    /// The latency histogram of all requests, in the buckets of [`Stat::latency_bounds_us`] and one of the slower ones.
    pub fn total_latency(&self) -> Vec<u64> {
        let mut sum = vec![0; self.latency_bounds_us.len() + 1];
        for requests in self.requests.values() {
            // A daemon of an earlier version reports no buckets.
            sum.iter_mut().zip(&requests.latency).for_each(|(sum, count)| *sum += count);
        }
        sum
    }
}

/// A volume, as `shunt volume status --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// The name of this machine in it.
    pub node: String,
    /// Its cache directory on this machine.
    pub cache: String,
    /// `online`, `offline` (on request), `unreachable` or `stopped`: the last two retry by themselves.
    pub state: String,
    /// The reason why it is not online.
    pub reason: Option<String>,
    /// This machine has the role `read`: it cannot change the volume.
    #[serde(default)]
    pub read_only: bool,
    /// Connected to the other machines, with close-to-open consistency: an open sees what another connected machine closed
    /// before.
    #[serde(default)]
    pub connected: bool,
    /// Number of other machines that are connected.
    #[serde(default)]
    pub peers: u32,
    /// The former name of `peers`.
    #[serde(default)]
    pub others: u32,
    /// Write leases of this machine: changes that other machines wait for when they access the files.
    #[serde(default)]
    pub leases: u64,
    /// Changes of this machine that the store does not have yet.
    pub pending: u64,
    /// Pending changes that wait for a conflict to be resolved, or for a file to be closed.
    #[serde(default)]
    pub blocked: u64,
    /// The former name of `blocked`.
    #[serde(default)]
    pub held: u64,
    /// Changes sent since the mount.
    pub sent: u64,
    /// Changes of other machines received since the mount.
    pub received: u64,
    /// Directories that present conflicts.
    #[serde(default)]
    pub conflicts: u64,
    /// Objects that the kernel has looked up.
    pub objects_known: u64,
    /// Usage and limits.
    #[serde(default)]
    pub quota: QuotaReport,
    /// The state of the cache.
    #[serde(flatten)]
    pub space: SpaceReport,
}

impl Renamed for VolumeReport {
    fn set_both_names(&mut self) {
        set_both(&mut self.peers, &mut self.others);
        set_both(&mut self.blocked, &mut self.held);
    }
}

/// Usage and limits of a volume and its users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaReport {
    /// Usage of the whole volume.
    pub held: UsageReport,
    /// Usage by user; of many, those with limits and those with the largest usage.
    pub users: Vec<UsageReport>,
    /// Number of users with any usage.
    pub user_count: u64,
}

/// The usage of a user or of the volume, and its limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The user, by its number in the volume; none for the volume.
    pub user: Option<u32>,
    /// Total size of the files.
    pub bytes: u64,
    /// Number of files, directories and all other objects.
    pub objects: u64,
    /// Limit of the bytes.
    pub limit_bytes: Option<u64>,
    /// Limit of the objects.
    pub limit_objects: Option<u64>,
}

/// The cache of a volume on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct SpaceReport {
    /// `full`, `cached` or `on-demand`.
    pub cache_mode: String,
    /// The former name of `cache_mode`: `complete`, `cached` or `remote`.
    pub role: String,
    /// Cached bytes.
    pub cached_bytes: u64,
    /// Limit of the cached bytes, for files that can be evicted.
    pub cached_limit: Option<u64>,
    /// Cached bytes of pinned files.
    pub pinned_bytes: u64,
    /// Pinned paths, relative to the root directory; of many, some.
    pub pinned: Vec<String>,
    /// Cached bytes of files whose last version the store may not have.
    pub unsent_bytes: u64,
    /// Bytes above the limit that cannot be evicted: open, pinned, or not in the store.
    pub unevictable_bytes: u64,
    /// The former name of `unevictable_bytes`.
    pub stuck_bytes: u64,
    /// Files that are to be cached and not downloaded yet; of many, some.
    pub missing_files: u64,
    /// The former name of `missing_files`.
    pub awaited_files: u64,
    /// Cache misses while the store was unreachable.
    pub offline_misses: u64,
    /// The former name of `offline_misses`.
    pub unmet: u64,
    /// Paths of the last of these misses that are still not cached.
    pub offline_miss_paths: Vec<String>,
    /// The former name of `offline_miss_paths`.
    pub unmet_paths: Vec<String>,
    /// Opens of completely cached files, and reads of cached ranges of other files, since the mount.
    pub cache_hits: u64,
    /// Reads since the mount that had to wait for a download, or failed because the store was unreachable.
    pub cache_misses: u64,
    /// Bytes downloaded since the mount.
    pub fetched_bytes: u64,
    /// Files evicted since the mount.
    pub evicted_files: u64,
    /// Bytes that these files occupied.
    pub evicted_bytes: u64,
    /// Latency of the store for a small request, in milliseconds.
    pub answer_ms: Option<f64>,
    /// Download rate of contents, in bytes per second.
    pub bytes_per_second: Option<u64>,
    /// The link is slow: contents are fetched on demand only.
    pub slow: bool,
    /// The object store is unreachable, independent of the state of the metadata store.
    pub objects_unreachable: bool,
    /// The former name of `objects_unreachable`.
    pub contents_away: bool,
}

/// The cache modes with their former names.
const CACHE_MODES: &[(&str, &str)] = &[("full", "complete"), ("on-demand", "remote")];

impl Renamed for SpaceReport {
    fn set_both_names(&mut self) {
        set_both_words(&mut self.cache_mode, &mut self.role, CACHE_MODES);
        set_both(&mut self.unevictable_bytes, &mut self.stuck_bytes);
        set_both(&mut self.missing_files, &mut self.awaited_files);
        set_both(&mut self.offline_misses, &mut self.unmet);
        set_both(&mut self.offline_miss_paths, &mut self.unmet_paths);
        set_both(&mut self.objects_unreachable, &mut self.contents_away);
    }
}

serde_with_former_names!(VolumeReport, SpaceReport);

/// A BPF program in the kernel that answers requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    /// A program is attached.
    pub attached: bool,
    /// The reason why none is attached.
    pub reason: Option<String>,
    /// Files that it opens without the daemon.
    pub files: u64,
    /// Its replies by operation. None where the kernel does not show them (debugfs is not mounted, or not for this user).
    pub counts: Option<BTreeMap<String, OpcodeCounts>>,
}

/// The outcomes of the requests of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpcodeCounts {
    /// Answered in the kernel, without the daemon.
    pub answered: u64,
    /// Passed to the daemon.
    pub passed: u64,
    /// Passed to the daemon as well, since the program's reply was invalid.
    pub refused: u64,
}

/// How a daemon took over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TookOver {
    /// `death`, `upgrade`, or `failed upgrade`: the new program did not take over.
    pub cause: String,
    /// Milliseconds during which no daemon served.
    pub pause_ms: f64,
}

/// The outcome of an upgrade, as `shunt upgrade --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The mount point.
    pub mountpoint: String,
    /// The new program.
    pub binary: String,
    /// The version that served before.
    pub old_version: String,
    /// The version that serves now.
    pub version: String,
    /// The process that served before.
    pub old_pid: u32,
    /// The process that serves now.
    pub pid: u32,
    /// Milliseconds during which no daemon served.
    pub pause_ms: f64,
    /// Daemons of this mount that ended before this one.
    pub takeovers: u64,
}

/// The requests of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Number of answered requests.
    pub count: u64,
    /// Number of error replies among them.
    pub errors: u64,
    /// Median of the microseconds from reading a request to writing its reply.
    pub p50_us: f64,
    /// 99th percentile of these microseconds.
    pub p99_us: f64,
    /// The longest of these times.
    pub max_us: f64,
    /// The sum of these times, estimated: at most an eighth off.
    #[serde(default)]
    pub total_us: f64,
    /// Number of requests in each bucket of [`Stat::latency_bounds_us`], not cumulative, and of the slower ones.
    #[serde(default)]
    pub latency: Vec<u64>,
}

/// The passthrough of file data by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passthrough {
    /// Passthrough is on.
    pub enabled: bool,
    /// The reason why it is off.
    pub reason: Option<String>,
    /// Opens since the start whose reads and writes the kernel served itself.
    pub opens: u64,
    /// Backing files registered with the kernel now.
    pub backing_files: u64,
}

/// The kernel's caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// `coherent by fanotify`, `exclusive`, `timeout=SECONDS` or `none`, and the reason if it is not the requested mode.
    pub mode: String,
    /// How often every name was expired at once, because there were too many notifications.
    pub overflows: u64,
    /// The watch for changes by others, if there is one.
    #[serde(default)]
    pub watch: Option<Watch>,
}

/// The watch for changes that others make in the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// `fanotify` or `inotify`.
    pub by: String,
    /// Number of events since the mount, including those of objects that the kernel has not looked up.
    pub events: u64,
    /// How often events were lost and every name was expired instead.
    pub overflows: u64,
}

/// The memory of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Inodes that the kernel has looked up.
    pub nodes: u64,
    /// Size of their table in bytes, where known.
    pub node_bytes: Option<u64>,
    /// Inodes that are open.
    pub open_nodes: u64,
    /// Open file descriptors of the daemon.
    pub descriptors: u64,
    /// Resident bytes of the daemon.
    pub rss_bytes: u64,
}

/// The result of the negotiation between kernel and daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Negotiated {
    /// The protocol version, such as `7.45`.
    pub protocol: String,
    /// Limit of a write, in bytes.
    pub max_write: u32,
    /// Limit of readahead, in bytes.
    pub max_readahead: u32,
    /// Capabilities in force.
    pub granted: Vec<String>,
    /// Capabilities that were requested but are not available.
    pub refused: Vec<Refused>,
}

/// A capability that was requested but is not available.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Its name.
    pub capability: String,
    /// The reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_list_has_these_keys_and_no_others() {
        let entry = Entry {
            mountpoint: "/b".into(),
            source: "/a".into(),
            kind: "mirror".into(),
            pid: Some(7),
            transport: Some("dev".into()),
            transport_reason: None,
            passthrough: Some(true),
        };
        let expected = json!({"mountpoint": "/b", "source": "/a", "kind": "mirror", "pid": 7,
            "transport": "dev", "transport_reason": null, "passthrough": true});
        assert_eq!(serde_json::to_value(&entry).unwrap(), expected);
    }

    #[test]
    fn requests_are_by_name() {
        let mut stat = Stat::default();
        let answered = Requests {
            count: 3,
            errors: 1,
            p50_us: 2.5,
            p99_us: 9.0,
            max_us: 9.0,
            total_us: 14.0,
            latency: vec![1, 2],
        };
        stat.requests.insert("getxattr".into(), answered);
        let value = serde_json::to_value(&stat).unwrap();
        let expected = json!({"count": 3, "errors": 1, "p50_us": 2.5, "p99_us": 9.0, "max_us": 9.0,
            "total_us": 14.0, "latency": [1, 2]});
        assert_eq!(value["requests"]["getxattr"], expected);
        for key in ["passthrough", "cache", "memory", "transport", "uptime_s", "errors", "negotiated"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(serde_json::from_value::<Stat>(value).unwrap(), stat);
    }

    const RENAMED: &[(&str, &str)] = &[
        ("peers", "others"),
        ("blocked", "held"),
        ("cache_mode", "role"),
        ("unevictable_bytes", "stuck_bytes"),
        ("missing_files", "awaited_files"),
        ("offline_misses", "unmet"),
        ("offline_miss_paths", "unmet_paths"),
        ("objects_unreachable", "contents_away"),
    ];

    fn report() -> VolumeReport {
        let space = SpaceReport {
            cache_mode: "on-demand".into(),
            cached_bytes: 5,
            unevictable_bytes: 1,
            missing_files: 2,
            offline_misses: 3,
            offline_miss_paths: vec!["a/b".into()],
            objects_unreachable: true,
            ..SpaceReport::default()
        };
        VolumeReport {
            name: "notes".into(),
            peers: 7,
            blocked: 8,
            pending: 9,
            space,
            ..VolumeReport::default()
        }
    }

    #[test]
    fn renamed_fields_are_written_with_both_names() {
        let value = serde_json::to_value(report()).unwrap();
        for (current, former) in RENAMED.iter().filter(|(current, _)| *current != "cache_mode") {
            assert!(!value[current].is_null(), "{current}");
            assert_eq!(value[current], value[former], "{former}");
        }
        assert_eq!((&value["cache_mode"], &value["role"]), (&json!("on-demand"), &json!("remote")));
        assert_eq!((&value["others"], &value["held"]), (&json!(7), &json!(8)));
        // As part of the statistics of a mount, too.
        let stat = Stat { volume: Some(report()), ..Stat::default() };
        assert_eq!(serde_json::to_value(stat).unwrap()["volume"], value);
    }

    #[test]
    fn a_report_of_an_older_version_is_understood() {
        let mut value = serde_json::to_value(report()).unwrap();
        for (current, _) in RENAMED {
            value.as_object_mut().unwrap().remove(*current).unwrap();
        }
        let mut expected = report();
        (expected.others, expected.held) = (7, 8);
        expected.space.set_both_names();
        assert_eq!(serde_json::from_value::<VolumeReport>(value.clone()).unwrap(), expected);
        let stat = json!({"mountpoint": "/m", "source": "notes", "kind": "volume", "pid": 1, "version": "0.1.0",
            "transport": "dev", "uptime_s": 1.0, "threads": 1, "waiting": 0, "cancelled": 0, "requests": {}, "errors": {},
            "never_asked": [], "passthrough": Passthrough::default(), "cache": Cache::default(),
            "memory": Memory::default(), "negotiated": Negotiated::default(), "volume": value});
        assert_eq!(serde_json::from_value::<Stat>(stat).unwrap().volume, Some(expected));
    }

    #[test]
    fn a_report_without_former_names_is_understood() {
        let mut value = serde_json::to_value(report()).unwrap();
        for (_, former) in RENAMED {
            value.as_object_mut().unwrap().remove(*former).unwrap();
        }
        let report: VolumeReport = serde_json::from_value(value).unwrap();
        assert_eq!((report.others, report.held, report.space.role.as_str()), (7, 8, "remote"));
    }

    #[test]
    fn cache_modes_have_former_names_in_reports() {
        for (current, former) in
            [("full", "complete"), ("cached", "cached"), ("on-demand", "remote"), ("", "")]
        {
            let report: SpaceReport = serde_json::from_value(json!({"role": former})).unwrap();
            assert_eq!(report.cache_mode, current);
            let report = SpaceReport { cache_mode: current.into(), ..SpaceReport::default() };
            assert_eq!(serde_json::to_value(report).unwrap()["role"], former);
        }
    }
}
