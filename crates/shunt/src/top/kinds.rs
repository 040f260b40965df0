//! Figures of the caches, and of single kinds of mounts.

use serde::Serialize;

use super::rate::rate;
use crate::report::counters::Ext4Report;
use crate::report::{Extension, Stat, VolumeReport};

/// Caching: by the kernel, by the extension, and on the disk for volumes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheView {
    /// How the kernel caches; see [`crate::report::Cache::mode`].
    pub mode: String,
    /// How often all cached names expired because too many notifications were queued.
    pub overflows: u64,
    /// Share of the opens and reads of a volume that its cache answered, or of the requests that the extension answered in the kernel,
    /// 0 to 1: since the earlier reading, without any since then since the daemon started. None if there is neither, or nothing was
    /// requested.
    pub hit_share: Option<f64>,
}

impl CacheView {
    pub fn of(now: &Stat, before: Option<&Stat>) -> Self {
        let before_counts = before.and_then(counts);
        let hit_share = counts(now).and_then(|(hits, misses)| {
            let recent = before_counts
                .map(|(old_hits, old_misses)| {
                    (hits.saturating_sub(old_hits), misses.saturating_sub(old_misses))
                })
                .filter(|(hits, misses)| hits + misses > 0);
            let (hits, misses) = recent.unwrap_or((hits, misses));
            (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
        });
        CacheView { mode: now.cache.mode.clone(), overflows: now.cache.overflows, hit_share }
    }
}

/// Hits and misses of the cache that has counters.
fn counts(stat: &Stat) -> Option<(u64, u64)> {
    if let Some(volume) = &stat.volume {
        return Some((volume.space.cache_hits, volume.space.cache_misses));
    }
    let Extension { counts, .. } = stat.extension.as_ref()?;
    let (mut hits, mut misses) = (0, 0);
    for counts in counts.as_ref()?.values() {
        hits += counts.answered;
        misses += counts.passed + counts.refused;
    }
    Some((hits, misses))
}

/// A volume.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeView {
    /// `online`, `offline`, `unreachable` or `stopped`.
    pub state: String,
    /// Other connected nodes.
    pub peers: u32,
    /// Changes of this node that the store does not have.
    pub pending: u64,
    /// Pending changes that wait for a conflict to be resolved, or for a file to be closed.
    pub blocked: u64,
    /// Unresolved conflicts.
    pub conflicts: u64,
    /// `full`, `cached` or `on-demand`.
    pub cache_mode: String,
    /// Cached bytes.
    pub cached_bytes: u64,
    /// Limit of the cached bytes.
    pub cached_limit: Option<u64>,
    /// Files to download.
    pub missing_files: u64,
    /// Cache misses while the store was unreachable.
    pub offline_misses: u64,
    /// Contents downloaded, per second.
    pub fetched_bytes_per_s: f64,
    /// Bytes evicted from the cache, per second.
    pub evicted_bytes_per_s: f64,
}

impl VolumeView {
    pub fn of(now: &VolumeReport, before: Option<&Stat>, seconds: f64) -> Self {
        let before = before.and_then(|stat| stat.volume.as_ref());
        let per_s = |read: fn(&VolumeReport) -> u64| rate(now, before, seconds, read);
        VolumeView {
            state: now.state.clone(),
            peers: now.peers,
            pending: now.pending,
            blocked: now.blocked,
            conflicts: now.conflicts,
            cache_mode: now.space.cache_mode.clone(),
            cached_bytes: now.space.cached_bytes,
            cached_limit: now.space.cached_limit,
            missing_files: now.space.missing_files,
            offline_misses: now.space.offline_misses,
            fetched_bytes_per_s: per_s(|volume| volume.space.fetched_bytes),
            evicted_bytes_per_s: per_s(|volume| volume.space.evicted_bytes),
        }
    }
}

/// The file system on an image.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ext4View {
    /// It can be changed now.
    pub writable: bool,
    /// Commits that wrote metadata, per second.
    pub commits_per_s: f64,
    /// Metadata blocks read because they were not cached, per second.
    pub metadata_reads_per_s: f64,
    /// Operations that failed because metadata is corrupt.
    pub corruptions: u64,
    /// Operations that failed because the device failed.
    pub io_errors: u64,
}

impl Ext4View {
    pub fn of(now: &Ext4Report, before: Option<&Stat>, seconds: f64) -> Self {
        let before = before.and_then(|stat| stat.ext4.as_ref());
        let per_s = |read: fn(&Ext4Report) -> u64| rate(now, before, seconds, read);
        Ext4View {
            writable: now.writable,
            commits_per_s: per_s(|ext4| ext4.commits),
            metadata_reads_per_s: per_s(|ext4| ext4.metadata_reads),
            corruptions: now.corruptions,
            io_errors: now.io_errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_share_of_a_volume_is_that_of_the_interval() {
        let stat = |hits, misses| {
            let mut volume = VolumeReport::default();
            (volume.space.cache_hits, volume.space.cache_misses) = (hits, misses);
            Stat { volume: Some(volume), ..Stat::default() }
        };
        let share = |now: &Stat, before: Option<&Stat>| CacheView::of(now, before).hit_share;
        assert_eq!(share(&stat(9, 1), None), Some(0.9));
        assert_eq!(share(&stat(10, 2), Some(&stat(9, 1))), Some(0.5));
        assert_eq!(share(&stat(9, 1), Some(&stat(9, 1))), Some(0.9));
        assert_eq!(share(&stat(0, 0), None), None);
        assert_eq!(share(&Stat::default(), None), None);
    }
}
