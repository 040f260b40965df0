//! Copies chunks from packs into new ones, for compaction. Chunks are verified on reading and copied in their stored form,
//! without being compressed or encrypted again.

use shunt_volume_store::ChunkLocation;
use shunt_volume_store::gc_lock::MovedChunk;
use shunt_volume_types::object::ChunkId;

use crate::chunk_decoder::ChunkRequest;
use crate::pack::{Pack, new_key};
use crate::{ContentError, ContentStore};

/// Maximum number of unneeded bytes between chunks that are read in one request: one more request would take as long.
const MAX_GAP_BYTES: u64 = 1 << 20;

/// A chunk that was read and verified.
pub struct StoredChunk {
    id: ChunkId,
    from: ChunkLocation,
    stored: Vec<u8>,
}

/// A new pack that is not stored yet.
pub struct NewPack {
    /// The key to store it under.
    pub key: String,
    /// Its bytes, with the index.
    pub bytes: Vec<u8>,
    /// The chunks in it.
    pub moved: Vec<MovedChunk>,
}

impl ContentStore {
    /// Reads chunks in their stored form, all of them or none. Chunks of a pack have to be adjacent in the slice and in order
    /// of offset.
    pub fn read_stored(&self, chunks: &[(ChunkId, ChunkLocation)]) -> Result<Vec<StoredChunk>, ContentError> {
        let requests = chunks
            .iter()
            .enumerate()
            .map(|(n, (id, location))| ChunkRequest { id: *id, location: location.clone(), at: n as u64 })
            .collect();
        let mut all = vec![Vec::new(); chunks.len()];
        self.download_stored(
            requests,
            MAX_GAP_BYTES,
            |_, stored, _| Ok(stored.to_vec()),
            |at, stored| {
                if let Some(one) = all.get_mut(at as usize) {
                    *one = stored;
                }
                Ok(())
            },
        )?;
        let carried = chunks.iter().zip(all);
        Ok(carried
            .map(|((id, location), stored)| StoredChunk { id: *id, from: location.clone(), stored })
            .collect())
    }
}

/// Builds packs from these chunks, in their order.
pub fn repack(chunks: Vec<StoredChunk>) -> Vec<NewPack> {
    let (mut packs, mut pack, mut within) = (Vec::new(), Pack::default(), Vec::new());
    for StoredChunk { id, from, stored } in chunks {
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

fn close(pack: Pack, from: Vec<ChunkLocation>) -> NewPack {
    let key = new_key();
    let (bytes, locations) = pack.close(&key);
    let moved = locations.into_iter().zip(from).map(|((id, to), from)| MovedChunk { id, from, to }).collect();
    NewPack { key, bytes, moved }
}
