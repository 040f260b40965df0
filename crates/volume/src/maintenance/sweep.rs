//! The sweep phase of garbage collection: lists the packs in the object store, and determines which to delete and which to
//! compact.
//!
//! A pack that the metadata do not know is spared if another volume or a newer copy of the metadata may need it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::chunks::Blob;
use crate::maintenance::clock_skew::{MAX_SKEW, ago};
use crate::maintenance::pack_intents::{self, PackIntent};
use crate::maintenance::{GRACE_PERIOD, MaintenanceError, store_owner};
use crate::object::Time;
use crate::runtime::runtime;
use crate::store::admin::Chunk;
use crate::store::system_clock;
use crate::volume::Volume;

/// Maximum length of an index entry in bytes.
const MAX_INDEX_ENTRY_BYTES: u64 = 48;
/// Maximum size in bytes of a pack that is compacted: those of this program are smaller, others are not read into memory.
const MAX_COMPACTED_PACK_BYTES: u64 = 64 << 20;

/// The live data of a pack.
#[derive(Debug, Clone, Copy, Default)]
struct LiveData {
    bytes: u64,
    chunks: u64,
}

impl LiveData {
    /// Returns the maximum size of a pack with only these chunks.
    fn needs(self) -> u64 {
        self.bytes.saturating_add(self.chunks.saturating_mul(MAX_INDEX_ENTRY_BYTES))
    }
}

/// A pack of which most is unused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SparsePack {
    pub key: String,
    pub size: u64,
    /// Bytes of live chunks.
    pub used: u64,
    /// Minimum number of bytes freed by moving them elsewhere.
    pub frees: u64,
}

/// Packs that the metadata reference, or did until this collection.
#[derive(Default)]
pub(super) struct Packs {
    live: HashMap<String, LiveData>,
    /// Packs of chunks that were deleted in this collection.
    deleted: HashSet<String>,
}

/// Minimum ages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ages {
    /// For an unreferenced pack to be deleted.
    pub grace: Duration,
    /// For a compacted pack to be deleted.
    pub compacted_grace: Duration,
    /// Age of the ownership marker.
    pub marker_age: Duration,
}

/// The packs by what is to be done with them.
#[derive(Default)]
pub(super) struct ClassifiedPacks {
    /// To be deleted.
    pub to_delete: Vec<Blob>,
    /// To be compacted.
    pub sparse: Vec<SparsePack>,
    /// Unused bytes in packs with live chunks, the sparse ones included.
    pub unused_bytes: u64,
    /// Records to write once the packs in `to_delete` are deleted.
    pub intents: Vec<PackIntent>,
}

impl Packs {
    pub(crate) fn mark_deleted(&mut self, chunk: &Chunk) {
        self.deleted.insert(chunk.location.key.clone());
    }

    pub(crate) fn mark_live(&mut self, chunk: &Chunk) {
        let used = match self.live.get_mut(&chunk.location.key) {
            Some(used) => used,
            None => self.live.entry(chunk.location.key.clone()).or_default(),
        };
        used.bytes = used.bytes.saturating_add(chunk.location.stored.into());
        used.chunks += 1;
    }

    /// Classifies the stored packs: those to be deleted, and sparse ones that are older than the grace period.
    ///
    /// Packs whose chunks were just deleted are to be deleted, and those recorded as empty for long enough. An unknown pack may
    /// be left from an interrupted upload, but may also belong to another volume, or to this one if this metadata is a copy
    /// of the current ones. So it is spared if the location was marked as this volume's only recently, if its chunks were not
    /// named with this volume's keys, or if packs were stored more than [`GRACE_PERIOD`] after the last commit, since a commit should
    /// have followed. If the metadata may be such a copy, or the location another volume's, no pack is compacted either.
    pub(crate) fn classify_packs(
        &self,
        volume: &Volume,
        now: Time,
        Ages { grace, compacted_grace: stays, marker_age: known_for }: Ages,
    ) -> Result<ClassifiedPacks, MaintenanceError> {
        let (changed, clock) = (store_owner::last_commit_time(volume)?, system_clock());
        let (mut all, mut sorted) = (Vec::new(), ClassifiedPacks::default());
        let blobs = volume.content.blobs();
        // Ages as of `now`: later commits are unknown here.
        let aged = |blob: Blob| {
            let late = Duration::from_nanos(clock().0.saturating_sub(now.0).max(0).unsigned_abs());
            Blob { age: blob.age.saturating_sub(late), ..blob }
        };
        runtime().block_on(async {
            blobs.list("packs", |blob| all.push(aged(blob))).await?;
            let useless = &mut sorted.to_delete;
            blobs.list("probe", |blob| useless.extend(Some(aged(blob)).filter(|blob| blob.age > grace))).await
        })?;
        // After the listing: a pack is recorded before it is stored, and before it is emptied.
        let mut noted = pack_intents::read(volume.admin()?)?;
        let stored = |blob: &Blob| ago(now, blob.age);
        let (mut emptied, mut unknown, mut goes_on_elsewhere) = (Vec::new(), Vec::new(), false);
        for blob in all {
            let noted = noted.remove(&blob.key);
            if let Some(used) = self.live.get(&blob.key) {
                sorted.use_of(&blob, *used, blob.age > grace);
                sorted.intents.extend(noted.flatten().map(|_| pack_intents::mark_used(&blob.key)));
            } else if let Some(since) = noted {
                match since {
                    Some(since) if since <= ago(now, stays) => emptied.push(blob),
                    Some(_) => {}
                    None => sorted.intents.push(pack_intents::mark_empty(&blob.key, now)),
                }
            } else {
                let is_left = self.deleted.contains(&blob.key);
                goes_on_elsewhere |= !is_left && ago(stored(&blob), GRACE_PERIOD) > changed;
                if blob.age > grace {
                    if is_left { sorted.to_delete.push(blob) } else { unknown.push(blob) }
                }
            }
        }
        // Deleted, or never stored; its writer may still be running.
        for (key, since) in noted.into_iter().filter(|(key, _)| !self.live.contains_key(key)) {
            match since {
                Some(since) if since <= ago(now, stays) => sorted.intents.push(pack_intents::remove(&key)),
                Some(_) => {}
                None => sorted.intents.push(pack_intents::mark_empty(&key, now)),
            }
        }
        if known_for <= grace || goes_on_elsewhere {
            sorted.sparse.clear();
        } else {
            sorted.intents.extend(emptied.iter().map(|blob| pack_intents::remove(&blob.key)));
            sorted.to_delete.extend(emptied);
        }
        for blob in unknown {
            let came_later = ago(changed, MAX_SKEW) < stored(&blob);
            let is_spared = known_for <= grace || (goes_on_elsewhere && came_later);
            if !is_spared && store_owner::is_own(&volume.content, &blob.key)? {
                sorted.to_delete.push(blob);
            }
        }
        Ok(sorted)
    }
}

impl ClassifiedPacks {
    fn use_of(&mut self, blob: &Blob, used: LiveData, is_old: bool) {
        let frees = blob.size.saturating_sub(used.needs());
        self.unused_bytes = self.unused_bytes.saturating_add(frees);
        // So that compaction writes no more than it frees, and a volume takes at most twice the space of its live data.
        if is_old && blob.size <= MAX_COMPACTED_PACK_BYTES && used.needs() < blob.size / 2 {
            self.sparse.push(SparsePack { key: blob.key.clone(), size: blob.size, used: used.bytes, frees });
        }
    }
}
