//! The sweep phase of garbage collection: lists the packs in the object store, and determines which to delete and which to
//! compact.
//!
//! A pack that the metadata do not know is spared if another volume or a newer copy of the metadata may need it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::content::Blob;
use crate::maintenance::clock_skew::{MAX_SKEW, ago};
use crate::maintenance::pack_intents::{self, PackIntent};
use crate::maintenance::{GRACE, KeepError, store_owner};
use crate::object::Time;
use crate::runtime::runtime;
use crate::store::admin::Chunk;
use crate::store::system_clock;
use crate::volume::Volume;

/// Maximum length of an index entry in bytes.
const ENTRY: u64 = 48;
/// Maximum size in bytes of a pack that is compacted: those of this program are smaller, others are not read into memory.
const LONGEST: u64 = 64 << 20;

/// The live data of a pack.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    bytes: u64,
    chunks: u64,
}

impl Used {
    /// Returns the maximum size of a pack with only these chunks.
    fn needs(self) -> u64 {
        self.bytes.saturating_add(self.chunks.saturating_mul(ENTRY))
    }
}

/// A pack of which most is unused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sparse {
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
    used: HashMap<String, Used>,
    /// Packs of chunks that were deleted in this collection.
    left: HashSet<String>,
}

/// Minimum ages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ages {
    /// For an unreferenced pack to be deleted.
    pub grace: Duration,
    /// For a compacted pack to be deleted.
    pub stays: Duration,
    /// Age of the ownership marker.
    pub known_for: Duration,
}

/// The packs by what is to be done with them.
#[derive(Default)]
pub(super) struct Sorted {
    /// To be deleted.
    pub useless: Vec<Blob>,
    /// To be compacted.
    pub sparse: Vec<Sparse>,
    /// Unused bytes in packs with live chunks, the sparse ones included.
    pub stuck: u64,
    /// Records to write once the packs in `useless` are deleted.
    pub notes: Vec<PackIntent>,
}

impl Packs {
    pub fn leave(&mut self, chunk: &Chunk) {
        self.left.insert(chunk.place.key.clone());
    }

    pub fn stay(&mut self, chunk: &Chunk) {
        let used = match self.used.get_mut(&chunk.place.key) {
            Some(used) => used,
            None => self.used.entry(chunk.place.key.clone()).or_default(),
        };
        used.bytes = used.bytes.saturating_add(chunk.place.stored.into());
        used.chunks += 1;
    }

    /// Classifies the stored packs: those to be deleted, and sparse ones that are older than the grace period.
    ///
    /// Packs whose chunks were just deleted are to be deleted, and those recorded as empty for long enough. An unknown pack may
    /// be left from an interrupted upload, but may also belong to another volume, or to this one if these metadata are a copy
    /// of the current ones. So it is spared if the location was marked as this volume's only recently, if its chunks were not
    /// named with this volume's keys, or if packs were stored more than [`GRACE`] after the last commit, since a commit should
    /// have followed. If the metadata may be such a copy, or the location another volume's, no pack is compacted either.
    pub fn classify_packs(
        &self,
        volume: &Volume,
        now: Time,
        Ages { grace, stays, known_for }: Ages,
    ) -> Result<Sorted, KeepError> {
        let (changed, clock) = (store_owner::changed(volume)?, system_clock());
        let (mut all, mut sorted) = (Vec::new(), Sorted::default());
        let blobs = volume.content.blobs();
        // Ages as of `now`: later commits are unknown here.
        let aged = |blob: Blob| {
            let late = Duration::from_nanos(clock().0.saturating_sub(now.0).max(0).unsigned_abs());
            Blob { age: blob.age.saturating_sub(late), ..blob }
        };
        runtime().block_on(async {
            blobs.list("packs", |blob| all.push(aged(blob))).await?;
            let useless = &mut sorted.useless;
            blobs.list("probe", |blob| useless.extend(Some(aged(blob)).filter(|blob| blob.age > grace))).await
        })?;
        // After the listing: a pack is recorded before it is stored, and before it is emptied.
        let mut noted = pack_intents::read(volume.keeper()?)?;
        let stored = |blob: &Blob| ago(now, blob.age);
        let (mut emptied, mut unknown, mut goes_on_elsewhere) = (Vec::new(), Vec::new(), false);
        for blob in all {
            let noted = noted.remove(&blob.key);
            if let Some(used) = self.used.get(&blob.key) {
                sorted.use_of(&blob, *used, blob.age > grace);
                sorted.notes.extend(noted.flatten().map(|_| pack_intents::used(&blob.key)));
            } else if let Some(since) = noted {
                match since {
                    Some(since) if since <= ago(now, stays) => emptied.push(blob),
                    Some(_) => {}
                    None => sorted.notes.push(pack_intents::empty(&blob.key, now)),
                }
            } else {
                let is_left = self.left.contains(&blob.key);
                goes_on_elsewhere |= !is_left && ago(stored(&blob), GRACE) > changed;
                if blob.age > grace {
                    if is_left { sorted.useless.push(blob) } else { unknown.push(blob) }
                }
            }
        }
        // Deleted, or never stored; its writer may still be running.
        for (key, since) in noted.into_iter().filter(|(key, _)| !self.used.contains_key(key)) {
            match since {
                Some(since) if since <= ago(now, stays) => sorted.notes.push(pack_intents::gone(&key)),
                Some(_) => {}
                None => sorted.notes.push(pack_intents::empty(&key, now)),
            }
        }
        if known_for <= grace || goes_on_elsewhere {
            sorted.sparse.clear();
        } else {
            sorted.notes.extend(emptied.iter().map(|blob| pack_intents::gone(&blob.key)));
            sorted.useless.extend(emptied);
        }
        for blob in unknown {
            let came_later = ago(changed, MAX_SKEW) < stored(&blob);
            let is_spared = known_for <= grace || (goes_on_elsewhere && came_later);
            if !is_spared && store_owner::is_own(&volume.content, &blob.key)? {
                sorted.useless.push(blob);
            }
        }
        Ok(sorted)
    }
}

impl Sorted {
    fn use_of(&mut self, blob: &Blob, used: Used, is_old: bool) {
        let frees = blob.size.saturating_sub(used.needs());
        self.stuck = self.stuck.saturating_add(frees);
        // So that compaction writes no more than it frees, and a volume takes at most twice the space of its live data.
        if is_old && blob.size <= LONGEST && used.needs() < blob.size / 2 {
            self.sparse.push(Sparse { key: blob.key.clone(), size: blob.size, used: used.bytes, frees });
        }
    }
}
