//! Pieces that need not come from the store: a file here holds them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use crate::content::chunk_keys::ChunkKeys;
use crate::content::pack::CHUNK_MAX;
use crate::object::{ChunkId, Segment};

/// What a file here is said to hold. Nothing of it is believed: it may have been changed, or cut short, meanwhile.
#[derive(Debug)]
pub struct BasisSource {
    file: Arc<File>,
    /// Where each is.
    places: HashMap<ChunkId, u64>,
}

impl BasisSource {
    /// A file, and what is said to be in it.
    pub fn new(file: Arc<File>, pieces: &[Segment]) -> Self {
        let mut offset = 0;
        let mut places = HashMap::new();
        for piece in pieces {
            if let Segment::Chunk { id, .. } = piece {
                places.insert(*id, offset);
            }
            offset += piece.length();
        }
        Self { file, places }
    }

    /// The bytes of a chunk, if they are there.
    pub(super) fn get(&self, keys: &ChunkKeys, id: ChunkId, length: u32) -> Option<Vec<u8>> {
        let place = *self.places.get(&id).filter(|_| length as usize <= CHUNK_MAX)?;
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, place).ok()?;
        (keys.name(&bytes) == id).then_some(bytes)
    }
}
