//! What a daemon says about its mount. As JSON this is a contract: fields may be added, never changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One mount, as `shunt list --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it is mounted. Bytes that are not UTF-8 are replaced, here and below.
    pub mountpoint: String,
    /// What it shows.
    pub source: String,
    /// The file system: `mirror`, ...
    pub kind: String,
    /// The process that serves it. None if nobody could be asked: it died, or belongs to another user.
    pub pid: Option<u32>,
    /// `dev` or `uring`.
    pub transport: Option<String>,
    /// Why another transport that was wanted is not in use.
    #[serde(default)]
    pub transport_reason: Option<String>,
    /// Whether file data goes past the daemon.
    pub passthrough: Option<bool>,
}

/// Everything, as `shunt stat --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Where it is mounted.
    pub mountpoint: String,
    /// What it shows.
    pub source: String,
    /// The file system.
    pub kind: String,
    /// The process that serves it.
    pub pid: u32,
    /// The version of that process.
    pub version: String,
    /// `dev` or `uring`.
    pub transport: String,
    /// Why another transport that was wanted is not in use.
    #[serde(default)]
    pub transport_reason: Option<String>,
    /// Seconds since it began to serve.
    pub uptime_s: f64,
    /// Daemons of this mount that ended before this one.
    #[serde(default)]
    pub takeovers: u64,
    /// How this daemon came to serve, if it is not the first.
    #[serde(default)]
    pub takeover: Option<TookOver>,
    /// Why no daemon can follow this one; none if one can.
    #[serde(default)]
    pub no_takeover: Option<String>,
    /// Threads that wait for requests.
    pub threads: u64,
    /// Bursts of requests during which idle processors polled.
    #[serde(default)]
    pub wakeful_bursts: u64,
    /// Requests that wait in the daemon now.
    pub waiting: u64,
    /// Requests given up by their callers.
    pub cancelled: u64,
    /// By operation. One that was never asked for is absent.
    pub requests: BTreeMap<String, Requests>,
    /// Failed requests by operation; none, no entry.
    pub errors: BTreeMap<String, u64>,
    /// Operations that the kernel never asked for.
    pub never_asked: Vec<String>,
    /// Whether and why not, and what it saved.
    pub passthrough: Passthrough,
    /// Directories that are mounted through: paths below the mount point.
    #[serde(default)]
    pub grafts: Vec<PathBuf>,
    /// Who checks the rules of its policy, and why not the kernel.
    #[serde(default)]
    pub rules: Option<String>,
    /// What the kernel may keep.
    pub cache: Cache,
    /// What the daemon holds.
    pub memory: Memory,
    /// What kernel and daemon agreed on.
    pub negotiated: Negotiated,
    /// What answers in the kernel, where that was wanted.
    #[serde(default)]
    pub extension: Option<Extension>,
    /// The volume, where it is one.
    #[serde(default)]
    pub volume: Option<VolumeReport>,
}

/// A volume, as `shunt volume status --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// What this machine is called in it.
    pub node: String,
    /// Where this machine keeps it.
    pub cache: String,
    /// `online`, `offline` (by wish), `unreachable` or `stopped`: the last two try again by themselves.
    pub state: String,
    /// Why it is not online.
    pub reason: Option<String>,
    /// This machine's role is `read`: nothing can be changed here.
    #[serde(default)]
    pub read_only: bool,
    /// Whether what is closed on one connected machine is what is opened on another from then on.
    #[serde(default)]
    pub connected: bool,
    /// Other machines that are connected.
    #[serde(default)]
    pub others: u32,
    /// Changes of this machine that others wait for when they come to them.
    #[serde(default)]
    pub leases: u64,
    /// Changes of this machine that the store does not have.
    pub pending: u64,
    /// Of these, how many wait for a conflict to be resolved, or for a file to be closed.
    pub held: u64,
    /// Changes that were sent since the mount.
    pub sent: u64,
    /// Changes of others that came in since the mount.
    pub received: u64,
    /// Objects that the kernel knows.
    pub objects_known: u64,
    /// What it holds, and may hold.
    #[serde(default)]
    pub quota: QuotaReport,
    /// What is here, and what is to be.
    #[serde(flatten)]
    pub space: SpaceReport,
}

/// What a volume and its users hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaReport {
    /// All of it.
    pub held: HeldReport,
    /// By user; of many, those with limits and those that hold most.
    pub users: Vec<HeldReport>,
    /// How many users hold anything.
    pub user_count: u64,
}

/// What is held, and the limits of that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldReport {
    /// By whom, as the volume numbers users; none: by the volume.
    pub user: Option<u32>,
    /// Lengths of its files together.
    pub bytes: u64,
    /// Files, directories and all other objects.
    pub objects: u64,
    /// At most so many bytes.
    pub limit_bytes: Option<u64>,
    /// At most so many objects.
    pub limit_objects: Option<u64>,
}

/// What of a volume is on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceReport {
    /// `complete`, `cached` or `remote`.
    pub role: String,
    /// Bytes that files take here.
    pub cached_bytes: u64,
    /// At most so many, as far as files can leave.
    pub cached_limit: Option<u64>,
    /// Of the bytes here: of what is pinned.
    pub pinned_bytes: u64,
    /// What is pinned, from the top directory; of many, some.
    pub pinned: Vec<String>,
    /// Of the bytes here: of files whose last version the store may not have.
    pub unsent_bytes: u64,
    /// Bytes beyond the limit that could not leave: open, pinned, or not in the store.
    pub stuck_bytes: u64,
    /// Files that are to be here and are still to come; of many, some.
    pub awaited_files: u64,
    /// How often contents were wanted that were not here while the store was out of reach.
    pub unmet: u64,
    /// Paths of the last of these that are not here still.
    pub unmet_paths: Vec<String>,
    /// Milliseconds until the store answers a small question.
    pub answer_ms: Option<f64>,
    /// Bytes a second that contents came with.
    pub bytes_per_second: Option<u64>,
    /// Only what somebody asks for comes.
    pub slow: bool,
    /// Contents cannot be reached, whatever the state is otherwise.
    pub contents_away: bool,
}

/// A program in the kernel that answers requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    /// Whether there is one.
    pub attached: bool,
    /// If not, why.
    pub reason: Option<String>,
    /// Files that it opens without the daemon.
    pub files: u64,
    /// By operation, what it was asked. None where the kernel does not show it (debugfs is not mounted, or not for this
    /// user).
    pub counts: Option<BTreeMap<String, Answers>>,
}

/// What became of the requests of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Answered in the kernel: the daemon did not see them.
    pub answered: u64,
    /// Left to the daemon.
    pub passed: u64,
    /// Left to the daemon as well: what the program answered cannot be right.
    pub refused: u64,
}

/// How a daemon took over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TookOver {
    /// `death`, `upgrade`, or `failed upgrade`: the new program did not take over.
    pub cause: String,
    /// Milliseconds in which nobody served.
    pub pause_ms: f64,
}

/// The outcome of an upgrade, as `shunt upgrade --json` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Upgraded {
    /// Where it is mounted.
    pub mountpoint: String,
    /// The program.
    pub binary: String,
    /// The version that served before.
    pub old_version: String,
    /// The version that serves now.
    pub version: String,
    /// The process that served before.
    pub old_pid: u32,
    /// The process that serves now.
    pub pid: u32,
    /// Milliseconds in which nobody served.
    pub pause_ms: f64,
    /// Daemons of this mount that ended before this one.
    pub takeovers: u64,
}

/// The requests of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// How many were answered.
    pub count: u64,
    /// How many of them with an error.
    pub errors: u64,
    /// Microseconds from reading a request to having answered it: half of them took less.
    pub p50_us: f64,
    /// 99 of 100 took less.
    pub p99_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// Data that goes past the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passthrough {
    /// Whether it is on.
    pub enabled: bool,
    /// If not, why.
    pub reason: Option<String>,
    /// Opens since the start whose reads and writes never came.
    pub opens: u64,
    /// Files registered with the kernel now.
    pub backing_files: u64,
}

/// The kernel's caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// `coherent by fanotify`, `exclusive`, `timeout=SECONDS` or `none`, and where it is not what was asked for, why.
    pub mode: String,
    /// How often so many notifications were due that every name was expired instead.
    pub overflows: u64,
    /// What hears of changes that others make, if anything.
    #[serde(default)]
    pub watch: Option<Watch>,
}

/// What hears of changes that others make in the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// `fanotify` or `inotify`.
    pub by: String,
    /// Events so far, those of things that nobody asked for included.
    pub events: u64,
    /// How often events were lost, and everything was expired instead.
    pub overflows: u64,
}

/// What the daemon holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Inodes that the kernel knows.
    pub nodes: u64,
    /// Bytes that their table takes, where known.
    pub node_bytes: Option<u64>,
    /// Inodes that are open.
    pub open_nodes: u64,
    /// Open file descriptors of the daemon.
    pub descriptors: u64,
    /// Resident bytes of the daemon.
    pub rss_bytes: u64,
}

/// What kernel and daemon agreed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Negotiated {
    /// `7.45`.
    pub protocol: String,
    /// Bytes.
    pub max_write: u32,
    /// Bytes.
    pub max_readahead: u32,
    /// Capabilities in force.
    pub granted: Vec<String>,
    /// Capabilities that were wanted in vain.
    pub refused: Vec<Refused>,
}

/// A capability that was wanted in vain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Its name.
    pub capability: String,
    /// Why.
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
        let answered = Requests { count: 3, errors: 1, p50_us: 2.5, p99_us: 9.0, max_us: 9.0 };
        stat.requests.insert("getxattr".into(), answered);
        let value = serde_json::to_value(&stat).unwrap();
        let expected = json!({"count": 3, "errors": 1, "p50_us": 2.5, "p99_us": 9.0, "max_us": 9.0});
        assert_eq!(value["requests"]["getxattr"], expected);
        for key in ["passthrough", "cache", "memory", "transport", "uptime_s", "errors", "negotiated"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(serde_json::from_value::<Stat>(value).unwrap(), stat);
    }
}
