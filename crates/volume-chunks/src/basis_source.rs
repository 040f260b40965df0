//! The basis file of a delta transfer: chunks of a new version are copied from a local file, usually the previous version,
//! instead of being downloaded. Each chunk is verified by its name on reading, so a file that has changed meanwhile does no harm.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use shunt_volume_types::object::{ChunkId, Segment};

use crate::chunk_keys::ChunkKeys;
use crate::compression::MAX_ACCEPTED_CHUNK_BYTES;

/// A local file and the chunks expected in it. Each is verified on reading: the file may have been changed or truncated
/// meanwhile.
#[derive(Debug)]
pub struct BasisSource {
    file: Arc<File>,
    /// Offsets of the chunks.
    offsets: HashMap<ChunkId, u64>,
}

impl BasisSource {
    /// Pairs a file with the segments it is expected to hold.
    pub fn new(file: Arc<File>, segments: &[Segment]) -> Self {
        let mut offset = 0;
        let mut offsets = HashMap::new();
        for segment in segments {
            if let Segment::Chunk { id, .. } = segment {
                offsets.insert(*id, offset);
            }
            offset += segment.length();
        }
        Self { file, offsets }
    }

    /// Returns the bytes of a chunk if the file still has them.
    pub(super) fn get(&self, keys: &ChunkKeys, id: ChunkId, length: u32) -> Option<Vec<u8>> {
        let offset = *self.offsets.get(&id).filter(|_| length as usize <= MAX_ACCEPTED_CHUNK_BYTES)?;
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        (keys.name(&bytes) == id).then_some(bytes)
    }
}
