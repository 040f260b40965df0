//! The metrics of volumes.

use crate::report::{Stat, VolumeReport};

use super::sample::{Family, Kind, Read, Sample, Unit, Value, integer, known, labelled, of_mount};

use Kind::{Counter, Gauge, Info};
use Unit::{Bytes, None as Plain, Seconds};

/// The states of a volume, in the words of its report.
const STATES: [&str; 4] = ["online", "offline", "unreachable", "stopped"];

macro_rules! count {
    ($name:literal, $kind:ident, $unit:ident, $help:literal, $value:expr) => {
        of_mount($name, $kind, $unit, $help, |stat| of(stat, |volume| integer(($value)(volume))))
    };
}

pub const VOLUMES: &[Family] = &[
    Family {
        name: "shunt_volume",
        kind: Info,
        unit: Plain,
        labels: &["volume", "node", "cache_mode"],
        help: "Name of the volume, name of this node in it, and how much of it the node caches",
        read: Read::Mount(|stat| {
            of(stat, |volume| {
                let labels = [&volume.name, &volume.node, &volume.space.cache_mode].map(String::clone);
                vec![Sample { labels: labels.to_vec(), value: Value::Integer(1) }]
            })
        }),
    },
    Family {
        name: "shunt_volume_state",
        kind: Gauge,
        unit: Plain,
        labels: &["state"],
        help: "1 for the state of the connection to the store: online, offline, unreachable or stopped",
        read: Read::Mount(|stat| {
            of(stat, |volume| {
                let states = STATES.iter();
                states
                    .map(|state| labelled(*state, Value::Integer((volume.state == *state).into())))
                    .collect()
            })
        }),
    },
    count!("shunt_volume_peers", Gauge, Plain, "Other connected nodes", |volume: &VolumeReport| volume
        .peers
        .into()),
    count!(
        "shunt_volume_leases",
        Gauge,
        Plain,
        "Changes of this node that others wait for",
        |volume: &VolumeReport| { volume.leases }
    ),
    count!(
        "shunt_volume_pending_changes",
        Gauge,
        Plain,
        "Changes of this node that the store does not have",
        |volume: &VolumeReport| volume.pending
    ),
    count!(
        "shunt_volume_blocked_changes",
        Gauge,
        Plain,
        "Pending changes that wait for a conflict to be resolved, or for a file to be closed",
        |volume: &VolumeReport| volume.blocked
    ),
    count!(
        "shunt_volume_sent_changes",
        Counter,
        Plain,
        "Changes sent to the store",
        |volume: &VolumeReport| { volume.sent }
    ),
    count!(
        "shunt_volume_received_changes",
        Counter,
        Plain,
        "Changes of other nodes received",
        |volume: &VolumeReport| { volume.received }
    ),
    count!(
        "shunt_volume_conflicts",
        Gauge,
        Plain,
        "Unresolved conflicts shown as directories",
        |volume: &VolumeReport| volume.conflicts
    ),
    of_mount(
        "shunt_volume_store_latency",
        Gauge,
        Seconds,
        "Latency of the store for a small request",
        |stat| of(stat, |volume| known(volume.space.answer_ms.map(|time| time / 1e3))),
    ),
    of_mount(
        "shunt_volume_download_rate_bytes_per_second",
        Gauge,
        Plain,
        "Measured download rate of contents",
        |stat| of(stat, |volume| known(volume.space.bytes_per_second.map(|rate| rate as f64))),
    ),
    count!(
        "shunt_volume_link_slow",
        Gauge,
        Plain,
        "Whether contents are fetched on demand only, as the link is slow (1)",
        |volume: &VolumeReport| volume.space.slow.into()
    ),
    count!(
        "shunt_volume_objects_unreachable",
        Gauge,
        Plain,
        "Whether the object store is unreachable (1)",
        |volume: &VolumeReport| volume.space.objects_unreachable.into()
    ),
    count!("shunt_volume_cache", Gauge, Bytes, "Size of the cache", |volume: &VolumeReport| volume
        .space
        .cached_bytes),
    of_mount("shunt_volume_cache_limit", Gauge, Bytes, "Limit of the cache, if it has one", |stat| {
        of(stat, |volume| known(volume.space.cached_limit.map(|limit| limit as f64)))
    }),
    count!(
        "shunt_volume_cache_pinned",
        Gauge,
        Bytes,
        "Cached bytes of pinned files",
        |volume: &VolumeReport| { volume.space.pinned_bytes }
    ),
    count!(
        "shunt_volume_cache_unsent",
        Gauge,
        Bytes,
        "Cached bytes of files whose last version the store may not have",
        |volume: &VolumeReport| volume.space.unsent_bytes
    ),
    count!(
        "shunt_volume_cache_unevictable",
        Gauge,
        Bytes,
        "Bytes above the limit that cannot be evicted",
        |volume: &VolumeReport| volume.space.unevictable_bytes
    ),
    count!("shunt_volume_missing_files", Gauge, Plain, "Files to download", |volume: &VolumeReport| {
        volume.space.missing_files
    }),
    count!(
        "shunt_volume_cache_hits",
        Counter,
        Plain,
        "Opens of completely cached files, and reads of cached ranges of other files",
        |volume: &VolumeReport| volume.space.cache_hits
    ),
    count!(
        "shunt_volume_cache_misses",
        Counter,
        Plain,
        "Reads that waited for a download, or failed as the store was unreachable",
        |volume: &VolumeReport| volume.space.cache_misses
    ),
    count!(
        "shunt_volume_offline_misses",
        Counter,
        Plain,
        "Cache misses while the store was unreachable",
        |volume: &VolumeReport| volume.space.offline_misses
    ),
    count!("shunt_volume_fetched", Counter, Bytes, "Contents downloaded", |volume: &VolumeReport| {
        volume.space.fetched_bytes
    }),
    count!(
        "shunt_volume_evicted_files",
        Counter,
        Plain,
        "Files evicted from the cache",
        |volume: &VolumeReport| { volume.space.evicted_files }
    ),
    count!(
        "shunt_volume_evicted",
        Counter,
        Bytes,
        "Bytes evicted from the cache",
        |volume: &VolumeReport| { volume.space.evicted_bytes }
    ),
    count!("shunt_volume_usage", Gauge, Bytes, "Size of all files of the volume", |volume: &VolumeReport| {
        volume.quota.held.bytes
    }),
    count!(
        "shunt_volume_usage_objects",
        Gauge,
        Plain,
        "Files, directories and other objects of the volume",
        |volume: &VolumeReport| volume.quota.held.objects
    ),
    of_mount("shunt_volume_quota", Gauge, Bytes, "Limit of the size of all files, if there is one", |stat| {
        of(stat, |volume| known(volume.quota.held.limit_bytes.map(|limit| limit as f64)))
    }),
    of_mount(
        "shunt_volume_quota_objects",
        Gauge,
        Plain,
        "Limit of the number of objects, if there is one",
        |stat| of(stat, |volume| known(volume.quota.held.limit_objects.map(|limit| limit as f64))),
    ),
];

fn of(stat: &Stat, read: fn(&VolumeReport) -> Vec<Sample>) -> Vec<Sample> {
    stat.volume.as_ref().map_or_else(Vec::new, read)
}
