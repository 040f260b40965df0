//! Freeing what nothing speaks of.

use std::collections::HashSet;
use std::time::Duration;

use crate::content::{Blob, runtime};
use crate::fail::{Point, point};
use crate::id::Seq;
use crate::keep::clock::{self, APART};
use crate::keep::refs::spoken;
use crate::keep::{KeepError, PAGE, Progress, place, retention};
use crate::object::{ChunkId, Time};
use crate::store::StoreError;
use crate::store::address::Volume;
use crate::store::history::seq_at;

/// How long a node may take from sending chunks to committing what speaks of them.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);

/// How much of the log stays, as the history of the volume: what is in either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// What was committed within so long.
    pub age: Duration,
    /// The last so many commits.
    pub count: u64,
}

/// What was freed, and what will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Versions and names of the past that were forgotten.
    pub trimmed: u64,
    /// Chunks that the volume knows and speaks of.
    pub live: u64,
    /// Chunks that nothing speaks of, and that were found to be so just now.
    pub condemned: u64,
    /// Chunks that were dropped: nothing spoke of them for longer than the grace.
    pub dropped: u64,
    /// Packs that were removed.
    pub packs: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes of dropped chunks in packs that stay, for others in them.
    pub stuck: u64,
    /// Up to where the log is not there any more.
    pub forgotten: Seq,
}

/// Forgets what is older than the volume's [`retention`], condemns chunks that nothing speaks of, drops those that were
/// condemned for longer than `grace`, and removes packs of the volume that hold no others and are older than it. History counts: a version
/// that can be gone back to speaks of its chunks. Where the log is to be shortened, that is done first.
///
/// # Errors
/// Those of the stores; what was done until then is well. A list of pieces that cannot be read: nothing is freed then.
/// [`KeepError::Place`] where the contents are in a place of another volume, or were collected by newer metadata, and
/// [`KeepError::Clock`]: nothing is done then.
pub fn collect(
    volume: &Volume,
    grace: Duration,
    history: Option<History>,
    progress: Progress<'_>,
) -> Result<Collected, KeepError> {
    let keeper = volume.keeper()?;
    let known_for = place::known_for(volume)?;
    let now = clock::agreed(volume, keeper)?;
    place::note(volume, volume.meta.head()?)?;
    let forgotten = match history {
        Some(history) => keeper.forget(ago(now, history.age), history.count)?,
        None => keeper.forgotten()?,
    };
    stop(Point::GcForgot)?;
    let kept = retention(keeper)?;
    let up_to = match kept.age {
        Some(age) => match seq_at(&*volume.meta, ago(now, age)) {
            // The log does not tell which are old enough.
            Err(StoreError::Forgotten(_)) => Seq(0),
            up_to => up_to?,
        },
        None => Seq(0),
    };
    let trimmed = keeper.trim(up_to, kept.versions)?;
    stop(Point::GcTrimmed)?;
    let mut spoken = spoken(keeper, &*volume.meta, &volume.content, progress)?;
    if let Some((_, error)) = spoken.unread.pop() {
        return Err(error.into());
    }
    let before = ago(now, grace);
    let mut done = Collected { forgotten, trimmed, ..Collected::default() };
    let mut packs = Packs::default();
    let mut after = ChunkId([0; 32]);
    loop {
        let chunks = keeper.scan_chunks(after, PAGE)?;
        let Some((last, _)) = chunks.last() else { break };
        after = *last;
        let (mut condemn, mut pardon, mut drop) = (Vec::new(), Vec::new(), Vec::new());
        for (id, chunk) in &chunks {
            let lives = spoken.contains(id);
            match chunk.condemned {
                None if lives => done.live += 1,
                Some(_) if lives => {
                    pardon.push(*id);
                    done.live += 1;
                }
                None => condemn.push(*id),
                Some(at) if at <= before => {
                    drop.push(*id);
                    packs.left.insert(chunk.place.key.clone());
                    done.stuck += u64::from(chunk.place.stored);
                    continue;
                }
                Some(_) => {}
            }
            packs.used.insert(chunk.place.key.clone());
        }
        keeper.pardon(&pardon)?;
        keeper.condemn(&condemn, now)?;
        stop(Point::GcCondemned)?;
        keeper.drop_chunks(&drop, before)?;
        done.condemned += condemn.len() as u64;
        done.dropped += drop.len() as u64;
        progress("chunks", done.live + done.condemned + done.dropped);
    }
    stop(Point::GcDropped)?;
    let useless = packs.useless(volume, now, grace, known_for)?;
    let blobs = volume.content.blobs();
    for blob in &useless {
        runtime().block_on(blobs.delete(&blob.key))?;
        stop(Point::GcRemoved)?;
        done.packs += 1;
        done.bytes += blob.size;
        progress("packs", done.packs);
    }
    done.stuck = done.stuck.saturating_sub(done.bytes);
    Ok(done)
}

/// Packs that the metadata know, or did a moment ago.
#[derive(Default)]
struct Packs {
    used: HashSet<String>,
    /// Those of chunks that were dropped now.
    left: HashSet<String>,
}

impl Packs {
    /// Stored objects that nobody needs, older than the grace.
    ///
    /// What was left now is. A pack that is not known at all may be of an upload that came to nothing, but also of another
    /// volume, or of this one, if these metadata are a copy of those in use. So it is spared where one of these can be:
    /// where the place was only lately marked as that of this volume, where no key of this volume made the pack, and where
    /// packs came for more than [`GRACE`] after the last commit, without one.
    fn useless(
        &self,
        volume: &Volume,
        now: Time,
        grace: Duration,
        known_for: Duration,
    ) -> Result<Vec<Blob>, KeepError> {
        let changed = place::changed(volume)?;
        let stored = |blob: &Blob| ago(now, blob.age);
        let (mut useless, mut unknown, mut goes_on_elsewhere) = (Vec::new(), Vec::new(), false);
        let packs = |blob: Blob| {
            let is_known = self.left.contains(&blob.key);
            if self.used.contains(&blob.key) {
                return;
            }
            goes_on_elsewhere |= !is_known && ago(stored(&blob), GRACE) > changed;
            if blob.age > grace {
                if is_known { useless.push(blob) } else { unknown.push(blob) }
            }
        };
        let mut probes = Vec::new();
        let blobs = volume.content.blobs();
        runtime().block_on(async {
            blobs.list("packs", packs).await?;
            blobs.list("probe", |blob| probes.extend((blob.age > grace).then_some(blob))).await
        })?;
        for blob in unknown {
            let came_later = ago(changed, APART) < stored(&blob);
            let is_spared = known_for <= grace || (goes_on_elsewhere && came_later);
            if !is_spared && place::is_own(&volume.content, &blob.key)? {
                useless.push(blob);
            }
        }
        useless.extend(probes);
        Ok(useless)
    }
}

fn stop(at: Point) -> Result<(), StoreError> {
    point(at).map_err(|errno| StoreError::Unreachable(errno.to_string()))
}

fn ago(now: Time, age: Duration) -> Time {
    Time(now.0.saturating_sub(age.as_nanos().min(i64::MAX as u128) as i64))
}
