//! Chunks on their way from packs into others, as they are stored.

use crate::content::chunk_decoder::ChunkRequest;
use crate::content::pack::{Pack, new_key};
use crate::content::{ContentError, ContentStore};
use crate::object::ChunkId;
use crate::store::ChunkLocation;
use crate::store::admin::Moved;

/// What lies between chunks comes with them up to so many bytes: a request more takes as long.
const APART: u64 = 1 << 20;

/// A chunk that was read, and is what its name says.
pub(crate) struct Carried {
    id: ChunkId,
    from: ChunkLocation,
    stored: Vec<u8>,
}

/// A pack that is not stored yet.
pub(crate) struct Repacked {
    pub key: String,
    pub bytes: Vec<u8>,
    /// What is in it.
    pub moved: Vec<Moved>,
}

impl ContentStore {
    /// Reads chunks as they are stored, all of them or none: those of a pack one after the other, in the order in which they lie.
    pub(crate) fn carry(&self, chunks: &[(ChunkId, ChunkLocation)]) -> Result<Vec<Carried>, ContentError> {
        let wanted = chunks
            .iter()
            .enumerate()
            .map(|(n, (id, place))| ChunkRequest { id: *id, place: place.clone(), at: n as u64 })
            .collect();
        let mut all = vec![Vec::new(); chunks.len()];
        self.bring_stored(
            wanted,
            APART,
            |_, stored, _| Ok(stored.to_vec()),
            |at, stored| {
                if let Some(one) = all.get_mut(at as usize) {
                    *one = stored;
                }
                Ok(())
            },
        )?;
        let carried = chunks.iter().zip(all);
        Ok(carried.map(|((id, place), stored)| Carried { id: *id, from: place.clone(), stored }).collect())
    }
}

/// Packs of these chunks, in their order.
pub(crate) fn repack(chunks: Vec<Carried>) -> Vec<Repacked> {
    let (mut packs, mut pack, mut within) = (Vec::new(), Pack::default(), Vec::new());
    for Carried { id, from, stored } in chunks {
        if pack.is_full_with(stored.len()) {
            packs.push(close(std::mem::take(&mut pack), std::mem::take(&mut within)));
        }
        pack.push(id, &stored, from.length);
        within.push(from);
    }
    if !pack.is_empty() {
        packs.push(close(pack, within));
    }
    packs
}

fn close(pack: Pack, from: Vec<ChunkLocation>) -> Repacked {
    let key = new_key();
    let (bytes, places) = pack.close(&key);
    let moved = places.into_iter().zip(from).map(|((id, to), from)| Moved { id, from, to }).collect();
    Repacked { key, bytes, moved }
}
