//! Which packs go, and which are worth being rewritten.

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

/// What the index of a pack takes for each chunk, at most.
const ENTRY: u64 = 48;
/// No pack that was made here is longer: what is, is not brought into memory.
const LONGEST: u64 = 64 << 20;

/// What of a pack is in use.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    bytes: u64,
    chunks: u64,
}

impl Used {
    /// A pack of nothing else is at most so long.
    fn needs(self) -> u64 {
        self.bytes.saturating_add(self.chunks.saturating_mul(ENTRY))
    }
}

/// A pack of which most is in no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sparse {
    pub key: String,
    pub size: u64,
    /// Bytes of chunks that are in use.
    pub used: u64,
    /// What is freed, at least, where these are elsewhere.
    pub frees: u64,
}

/// Packs that the metadata know, or did a moment ago.
#[derive(Default)]
pub(super) struct Packs {
    used: HashMap<String, Used>,
    /// Those of chunks that were dropped now.
    left: HashSet<String>,
}

/// How old something has to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ages {
    /// To be seen as nobody's.
    pub grace: Duration,
    /// To be removed, after it was rewritten.
    pub stays: Duration,
    /// The place is known to be that of the volume for so long.
    pub known_for: Duration,
}

/// Stored objects, sorted.
#[derive(Default)]
pub(super) struct Sorted {
    /// Nobody needs them.
    pub useless: Vec<Blob>,
    /// To be rewritten.
    pub sparse: Vec<Sparse>,
    /// Bytes of packs in use that are not: of all, also of the sparse ones.
    pub stuck: u64,
    /// What is to be noted of packs once the useless ones are removed.
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

    /// Which of the stored objects nobody needs, and which only in small part, of those older than the grace.
    ///
    /// What was left now is not needed, nor what is noted as empty for as long as such packs stay. A pack that is not known at all may be of an
    /// upload that came to nothing, but also of another volume, or of this one, if these metadata are a copy of those in use.
    /// So it is spared where one of these can be: where the place was only lately marked as that of this volume, where no key
    /// of this volume made the pack, and where packs came for more than [`GRACE`] after the last commit, without one. Where
    /// the metadata may be such a copy, or the place another's, nothing is rewritten either.
    pub fn classify_packs(
        &self,
        volume: &Volume,
        now: Time,
        Ages { grace, stays, known_for }: Ages,
    ) -> Result<Sorted, KeepError> {
        let (changed, clock) = (store_owner::changed(volume)?, system_clock());
        let (mut all, mut sorted) = (Vec::new(), Sorted::default());
        let blobs = volume.content.blobs();
        // As old as they were at `now`: of what came later nothing is known here.
        let aged = |blob: Blob| {
            let late = Duration::from_nanos(clock().0.saturating_sub(now.0).max(0).unsigned_abs());
            Blob { age: blob.age.saturating_sub(late), ..blob }
        };
        runtime().block_on(async {
            blobs.list("packs", |blob| all.push(aged(blob))).await?;
            let useless = &mut sorted.useless;
            blobs.list("probe", |blob| useless.extend(Some(aged(blob)).filter(|blob| blob.age > grace))).await
        })?;
        // After the packs: each is noted before it is there, or before it is left.
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
        // Removed, or never stored; whoever was to store it may still be at it.
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
        // Then no more is written than is freed, and a volume takes at most twice what is in use.
        if is_old && blob.size <= LONGEST && used.needs() < blob.size / 2 {
            self.sparse.push(Sparse { key: blob.key.clone(), size: blob.size, used: used.bytes, frees });
        }
    }
}
