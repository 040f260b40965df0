//! Freeing what nothing speaks of.

use std::collections::HashSet;
use std::time::Duration;

use crate::content::runtime;
use crate::fail::{Point, point};
use crate::id::Seq;
use crate::keep::refs::spoken;
use crate::keep::{KeepError, PAGE, Progress, retention};
use crate::object::{ChunkId, Time};
use crate::store::address::Volume;
use crate::store::history::seq_at;
use crate::store::{StoreError, system_clock};

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
/// condemned for longer than `grace`, and removes packs that hold no others and are older than it. History counts: a version
/// that can be gone back to speaks of its chunks. Where the log is to be shortened, that is done first.
///
/// # Errors
/// Those of the stores; what was done until then is well. A list of pieces that cannot be read: nothing is done then.
pub fn collect(
    volume: &Volume,
    grace: Duration,
    history: Option<History>,
    progress: Progress<'_>,
) -> Result<Collected, KeepError> {
    let now = system_clock()();
    let keeper = volume.keeper()?;
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
    let mut keys = HashSet::new();
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
                    done.stuck += u64::from(chunk.place.stored);
                    continue;
                }
                Some(_) => {}
            }
            keys.insert(chunk.place.key.clone());
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
    let mut useless = Vec::new();
    let blobs = volume.content.blobs();
    runtime().block_on(async {
        for below in ["packs", "probe"] {
            let unused = |key: &str| !keys.contains(key);
            let mut keep = |blob: crate::content::Blob| {
                if blob.age > grace && unused(&blob.key) {
                    useless.push(blob);
                }
            };
            blobs.list(below, &mut keep).await?;
        }
        for blob in &useless {
            blobs.delete(&blob.key).await?;
            stop(Point::GcRemoved)?;
            done.packs += 1;
            done.bytes += blob.size;
            progress("packs", done.packs);
        }
        Ok::<_, KeepError>(())
    })?;
    done.stuck = done.stuck.saturating_sub(done.bytes);
    Ok(done)
}

fn stop(at: Point) -> Result<(), StoreError> {
    point(at).map_err(|errno| StoreError::Unreachable(errno.to_string()))
}

fn ago(now: Time, age: Duration) -> Time {
    Time(now.0.saturating_sub(age.as_nanos().min(i64::MAX as u128) as i64))
}
