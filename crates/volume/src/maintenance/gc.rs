//! Freeing what nothing speaks of.

use std::time::Duration;

use crate::failpoint::Failpoint;
use crate::id::Seq;
use crate::maintenance::clock_skew::ago;
use crate::maintenance::compact::compact_packs;
use crate::maintenance::gc_report::Collected;
use crate::maintenance::mark::mark_live;
use crate::maintenance::sweep::{Ages, Packs};
use crate::maintenance::{KeepError, LogRetention, PAGE, Progress, clock_skew, retention, stop, store_owner};
use crate::object::ChunkId;
use crate::runtime::runtime;
use crate::store::StoreError;
use crate::store::history::{Retention, seq_at};
use crate::volume::Volume;

/// Forgets what is older than the volume's [`retention`], condemns chunks that nothing speaks of, drops those that were
/// condemned for longer than `grace`, and removes packs of the volume that hold no others and are older than it. History counts: a version
/// that can be gone back to speaks of its chunks. Where the log is to be shortened, that is done first. At last, what is in
/// use of packs of which most is not goes into new ones; a later call removes the old ones: the grace after that, and not before
/// history is over, so that a copy of the metadata that is no older than what can be gone back to finds all it speaks of.
///
/// # Errors
/// Those of the stores; what was done until then is well. A list of pieces that cannot be read: nothing is freed then.
/// [`KeepError::Place`] where the contents are in a place of another volume, or were collected by newer metadata, and
/// [`KeepError::Clock`]: nothing is done then.
pub fn collect(
    volume: &Volume,
    grace: Duration,
    history: Option<LogRetention>,
    progress: Progress<'_>,
) -> Result<Collected, KeepError> {
    let keeper = volume.keeper()?;
    if history.is_some() && volume.described.sealed.is_some() {
        let why = "the log of this volume is sealed, and kept as a whole: it proves what the volume holds. Leave out \
                   --history-days";
        return Err(StoreError::Denied(why.to_owned()).into());
    }
    let known_for = store_owner::known_for(volume)?;
    let now = clock_skew::checked_now(volume, keeper)?;
    store_owner::note(volume, volume.meta.head()?)?;
    store_owner::note_moves(volume, keeper)?;
    // Before anything is looked at that another one may be about to change.
    let turn = keeper.acquire_gc_lock()?;
    let forgotten = match history {
        Some(history) => keeper.forget(ago(now, history.age), history.count)?,
        None => keeper.forgotten()?,
    };
    stop(Failpoint::GcForgot)?;
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
    stop(Failpoint::GcTrimmed)?;
    let mut spoken = mark_live(keeper, &*volume.meta, &volume.content, progress)?;
    if let Some((_, error)) = spoken.unread.pop() {
        return Err(error.into());
    }
    let before = ago(now, grace);
    let stays = grace.max(kept.age.or(Retention::default().age).unwrap_or_default());
    let mut done = Collected { forgotten, trimmed, saved_after: stays, ..Collected::default() };
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
                    packs.leave(chunk);
                    continue;
                }
                Some(_) => {}
            }
            packs.stay(chunk);
        }
        keeper.unmark(&pardon)?;
        keeper.mark_for_deletion(&condemn, now)?;
        stop(Failpoint::GcCondemned)?;
        keeper.drop_chunks(&drop, before)?;
        done.marked += condemn.len() as u64;
        done.dropped += drop.len() as u64;
        progress("chunks", done.live + done.marked + done.dropped);
    }
    stop(Failpoint::GcDropped)?;
    let sorted = packs.classify_packs(volume, now, Ages { grace, stays, known_for })?;
    drop(packs);
    done.stuck = sorted.stuck;
    let blobs = volume.content.blobs();
    for blob in &sorted.useless {
        runtime().block_on(blobs.delete(&blob.key))?;
        stop(Failpoint::GcRemoved)?;
        done.packs += 1;
        done.bytes += blob.size;
        progress("packs", done.packs);
    }
    if keeper.set_fenced(turn, &sorted.notes)? {
        compact_packs(volume, turn, sorted.sparse, progress, &mut done)?;
    }
    Ok(done)
}
