//! Compaction: copies the live chunks of packs with little live data into new packs, so that the old ones can be deleted.
//!
//! Each step is durable before the next one begins, and a later collection cleans up after an interrupted one: new packs are
//! recorded before they are stored, and old ones before chunks are moved. All writes are fenced by the token of the collector's
//! lock, so no chunk is moved into a pack that another collector has found to be empty since.

use crate::chunks::{ContentError, NewPack, StoredChunk, repack};
use crate::failpoint::Failpoint;
use crate::maintenance::gc_report::Collected;
use crate::maintenance::pack_intents;
use crate::maintenance::sweep::SparsePack;
use crate::maintenance::{MaintenanceError, PAGE_ROWS, Progress, stop, store_owner};
use crate::object::ChunkId;
use crate::runtime::runtime;
use crate::store::admin::StoreAdmin;
use crate::store::gc_lock::MovedChunk;
use crate::store::{ChunkLocation, system_clock};
use crate::volume::Volume;

/// Approximate number of bytes compacted at once: those of one new pack.
const BATCH_BYTES: u64 = 8 << 20;
/// Minimum number of bytes freed that is worth a new pack.
const MIN_FREED_BYTES: u64 = 64 << 10;

/// A sparse pack and its live chunks.
struct Source {
    pack: SparsePack,
    chunks: Vec<(ChunkId, ChunkLocation)>,
}

/// Compacts packs as long as the fencing token is current.
///
/// # Errors
/// Errors of either store; the steps done until then are consistent.
pub(super) fn compact_packs(
    volume: &Volume,
    token: u64,
    sparse: Vec<SparsePack>,
    progress: Progress<'_>,
    done: &mut Collected,
) -> Result<(), MaintenanceError> {
    let admin = volume.admin()?;
    let mut is_ours = true;
    for group in groups(sparse) {
        if is_ours {
            is_ours = rewrite_together(volume, admin, token, group, done)?;
            progress("packs rewritten", done.rewritten);
        }
    }
    store_owner::record_moves(volume, admin)
}

/// Groups packs so that each fills one new pack, and omits groups that would free too little.
fn groups(sparse: Vec<SparsePack>) -> Vec<Vec<SparsePack>> {
    let mut groups: Vec<(u64, Vec<SparsePack>)> = Vec::new();
    for pack in sparse {
        match groups.last_mut() {
            Some((used, group)) if used.saturating_add(pack.used) <= BATCH_BYTES => {
                *used += pack.used;
                group.push(pack);
            }
            _ => groups.push((pack.used, vec![pack])),
        }
    }
    let is_worth_it =
        |group: &Vec<SparsePack>| group.iter().map(|pack| pack.frees).sum::<u64>() >= MIN_FREED_BYTES;
    groups.into_iter().map(|(_, group)| group).filter(is_worth_it).collect()
}

/// Compacts one group. Returns `false` if the fencing token is no longer current.
fn rewrite_together(
    volume: &Volume,
    admin: &dyn StoreAdmin,
    token: u64,
    group: Vec<SparsePack>,
    done: &mut Collected,
) -> Result<bool, MaintenanceError> {
    let mut sources = Vec::new();
    for pack in group {
        sources.extend(in_use(volume, admin, &pack)?.map(|chunks| Source { pack, chunks }));
    }
    let (packs, sources) = read_live_chunks(volume, sources)?;
    let packs = repack(packs);
    if packs.is_empty() {
        return Ok(true);
    }
    let fresh = packs.iter().map(|pack| pack_intents::mark_used(&pack.key));
    let notes: Vec<_> =
        fresh.chain(sources.iter().map(|source| pack_intents::mark_used(&source.key))).collect();
    if !admin.set_fenced(token, &notes)? {
        return Ok(false);
    }
    stop(Failpoint::GcNoted)?;
    let (mut moved, mut stored) = (Vec::new(), 0);
    for NewPack { key, bytes, moved: within } in packs {
        stored += bytes.len() as u64;
        runtime().block_on(volume.content.blobs().put(&key, bytes))?;
        stop(Failpoint::GcRepacked)?;
        moved.extend(within);
    }
    if !move_all(admin, token, &moved)? {
        return Ok(false);
    }
    // From now on the old packs are recorded as empty.
    let now = system_clock()();
    let notes: Vec<_> = sources.iter().map(|source| pack_intents::mark_empty(&source.key, now)).collect();
    if !admin.set_fenced(token, &notes)? {
        return Ok(false);
    }
    stop(Failpoint::GcEmptied)?;
    let before: u64 = sources.iter().map(|source| source.size).sum();
    done.rewritten += sources.len() as u64;
    done.bytes_to_free += before.saturating_sub(stored);
    done.unused_bytes = done.unused_bytes.saturating_sub(sources.iter().map(|source| source.frees).sum());
    Ok(true)
}

fn move_all(admin: &dyn StoreAdmin, token: u64, moved: &[MovedChunk]) -> Result<bool, MaintenanceError> {
    for part in moved.chunks(PAGE_ROWS) {
        if admin.move_chunks(token, part)?.is_none() {
            return Ok(false);
        }
        stop(Failpoint::GcMoved)?;
    }
    Ok(true)
}

/// Returns the chunks of a pack that the metadata locate in it, in order of offset; `None` if its index does not list all of
/// them.
fn in_use(
    volume: &Volume,
    admin: &dyn StoreAdmin,
    pack: &SparsePack,
) -> Result<Option<Vec<(ChunkId, ChunkLocation)>>, MaintenanceError> {
    let index = match volume.content.index(&pack.key) {
        Err(ContentError::Damaged(_) | ContentError::Missing(_)) => return Ok(None),
        index => index?,
    };
    let (mut chunks, mut bytes) = (Vec::new(), 0_u64);
    for part in index.chunks(PAGE_ROWS) {
        let ids: Vec<ChunkId> = part.iter().map(|(id, _)| *id).collect();
        for ((id, expected), location) in part.iter().zip(admin.locate_chunks(&ids)?) {
            if location.as_ref() == Some(expected) {
                bytes += u64::from(expected.stored);
                chunks.push((*id, expected.clone()));
            }
        }
    }
    chunks.sort_by_key(|(_, location)| location.offset);
    Ok(Some(chunks).filter(|chunks| !chunks.is_empty() && bytes == pack.used))
}

/// Reads the live chunks, and omits packs that are not intact.
fn read_live_chunks(
    volume: &Volume,
    sources: Vec<Source>,
) -> Result<(Vec<StoredChunk>, Vec<SparsePack>), ContentError> {
    let content = &volume.content;
    let all: Vec<_> = sources.iter().flat_map(|source| source.chunks.iter().cloned()).collect();
    match content.read_stored(&all) {
        Err(ContentError::Damaged(_) | ContentError::Missing(_)) => {}
        carried => return Ok((carried?, sources.into_iter().map(|source| source.pack).collect())),
    }
    let (mut carried, mut intact) = (Vec::new(), Vec::new());
    for Source { pack, chunks } in sources {
        match content.read_stored(&chunks) {
            Err(ContentError::Damaged(_) | ContentError::Missing(_)) => {}
            of_it => {
                carried.extend(of_it?);
                intact.push(pack);
            }
        }
    }
    Ok((carried, intact))
}
