//! Garbage collection: deletes history beyond its retention, chunks that nothing references, and packs without live chunks.
//!
//! Chunks are deleted by mark and sweep in two phases, with a grace period in between for nodes that are about to commit
//! references. Before anything is deleted, the ownership of the object store, the clocks and the age of the metadata are checked.
//! A collection may be interrupted at any point, and a later one completes it.

use std::time::Duration;

use crate::failpoint::Failpoint;
use crate::id::Seq;
use crate::maintenance::clock_skew::ago;
use crate::maintenance::compact::compact_packs;
use crate::maintenance::gc_report::Collected;
use crate::maintenance::mark::mark_live;
use crate::maintenance::sweep::{Ages, Packs};
use crate::maintenance::{
    LogRetention, MaintenanceError, PAGE_ROWS, Progress, clock_skew, retention, stop, store_owner,
};
use crate::object::ChunkId;
use crate::runtime::runtime;
use crate::store::StoreError;
use crate::store::history::{Retention, seq_at};
use crate::volume::Volume;

/// Collects garbage in two phases: marks chunks that nothing references, and deletes those that were marked for longer than
/// `grace` and the packs of the volume that contain no others and are older than it. Deletes history older than the volume's
/// [`retention`] first; retained versions reference their chunks. If `history` is given, the log is truncated before that.
/// Finally compacts sparse packs into new ones. A later collection deletes the old packs, not before the grace period and the
/// retention of history have passed, so that a copy of the metadata no older than the retained history finds all chunks it
/// references.
///
/// # Errors
/// Errors of either store; the steps done until then are consistent. [`ContentError`](crate::chunks::ContentError) for a
/// segment list that cannot be read: no chunk is freed then. [`MaintenanceError::StoreOwner`] if the location belongs to another volume or
/// was collected with newer metadata, [`MaintenanceError::Clock`], and [`StoreError::Denied`] for truncating a sealed log: nothing is
/// done then.
pub fn collect(
    volume: &Volume,
    grace: Duration,
    history: Option<LogRetention>,
    progress: Progress<'_>,
) -> Result<Collected, MaintenanceError> {
    let admin = volume.admin()?;
    if history.is_some() && volume.described.sealed.is_some() {
        let why = "the log of this volume is sealed and must stay complete, since it proves the state of the volume: omit \
                   --history-days";
        return Err(StoreError::Denied(why.to_owned()).into());
    }
    let known_for = store_owner::verify_ownership(volume)?;
    let now = clock_skew::checked_now(volume, admin)?;
    store_owner::record_collection(volume, volume.meta.head()?)?;
    store_owner::record_moves(volume, admin)?;
    // Before reading anything that a concurrent collection may be about to change.
    let token = admin.acquire_gc_lock()?;
    let log_truncated_to = match history {
        Some(history) => admin.truncate_log(ago(now, history.age), history.count)?,
        None => admin.truncated_up_to()?,
    };
    stop(Failpoint::GcForgot)?;
    let retained = retention(admin)?;
    let up_to = match retained.age {
        Some(age) => match seq_at(&*volume.meta, ago(now, age)) {
            // The log was truncated beyond that time: the commit is unknown.
            Err(StoreError::Forgotten(_)) => Seq(0),
            up_to => up_to?,
        },
        None => Seq(0),
    };
    let versions_deleted = admin.delete_history(up_to, retained.versions)?;
    stop(Failpoint::GcTrimmed)?;
    let mut live = mark_live(admin, &*volume.meta, &volume.content, progress)?;
    if let Some((_, error)) = live.unread.pop() {
        return Err(error.into());
    }
    let before = ago(now, grace);
    let stays = grace.max(retained.age.or(Retention::default().age).unwrap_or_default());
    let mut done =
        Collected { log_truncated_to, versions_deleted, saved_after: stays, ..Collected::default() };
    let mut packs = Packs::default();
    let mut after = ChunkId([0; 32]);
    loop {
        let chunks = admin.scan_chunks(after, PAGE_ROWS)?;
        let Some((last, _)) = chunks.last() else { break };
        after = *last;
        let (mut to_mark, mut to_unmark, mut drop) = (Vec::new(), Vec::new(), Vec::new());
        for (id, chunk) in &chunks {
            let lives = live.contains(id);
            match chunk.marked_at {
                None if lives => done.live += 1,
                Some(_) if lives => {
                    to_unmark.push(*id);
                    done.live += 1;
                }
                None => to_mark.push(*id),
                Some(at) if at <= before => {
                    drop.push(*id);
                    packs.mark_deleted(chunk);
                    continue;
                }
                Some(_) => {}
            }
            packs.mark_live(chunk);
        }
        admin.unmark(&to_unmark)?;
        admin.mark_for_deletion(&to_mark, now)?;
        stop(Failpoint::GcMarked)?;
        admin.drop_chunks(&drop, before)?;
        done.marked += to_mark.len() as u64;
        done.dropped += drop.len() as u64;
        progress("chunks", done.live + done.marked + done.dropped);
    }
    stop(Failpoint::GcDropped)?;
    let sorted =
        packs.classify_packs(volume, now, Ages { grace, compacted_grace: stays, marker_age: known_for })?;
    drop(packs);
    done.unused_bytes = sorted.unused_bytes;
    let blobs = volume.content.blobs();
    for blob in &sorted.to_delete {
        runtime().block_on(blobs.delete(&blob.key))?;
        stop(Failpoint::GcRemoved)?;
        done.packs += 1;
        done.bytes += blob.size;
        progress("packs", done.packs);
    }
    if admin.set_fenced(token, &sorted.intents)? {
        compact_packs(volume, token, sorted.sparse, progress, &mut done)?;
    }
    Ok(done)
}
