//! Verification of stored contents for fsck, repair and garbage collection: reads chunks to compare them with their names, lists
//! packs, and reads the index of a pack.

use shunt_volume_store::{ChunkLocation, MetaStore};
use shunt_volume_types::object::{ChunkId, Content, Layout, Segment};
use shunt_volume_types::runtime::runtime;

use crate::chunk_decoder::ChunkRequest;
use crate::pack::{Indexed, index, index_length, is_newer};
use crate::{ContentError, ContentStore};

/// Number of bytes read from a pack's end: usually more than its index.
const TAIL_BYTES: u64 = 64 << 10;

impl ContentStore {
    /// Reads and verifies chunks; calls `wrong` for those that are missing or damaged.
    pub fn verify(
        &self,
        chunks: Vec<(ChunkId, ChunkLocation)>,
        mut wrong: impl FnMut(ChunkId, String),
    ) -> Result<(), ContentError> {
        let requests: Vec<ChunkRequest> = chunks
            .into_iter()
            .enumerate()
            .map(|(n, (id, location))| ChunkRequest { id, location, at: n as u64 })
            .collect();
        // In batches first; the chunks of a failed batch are then read one by one.
        for part in requests.chunks(64) {
            match self.download(part.to_vec(), |_, _| Ok(()), |_, ()| Ok(())) {
                Ok(()) => {}
                Err(ContentError::Damaged(_) | ContentError::Missing(_)) => {
                    for one in part {
                        match self.download(vec![one.clone()], |_, _| Ok(()), |_, ()| Ok(())) {
                            Ok(()) => {}
                            Err(ContentError::Damaged(why) | ContentError::Missing(why)) => {
                                wrong(one.id, why)
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reports whether the object store answers a request for the first byte of a chunk, even negatively.
    pub async fn is_reachable(&self, location: &ChunkLocation) -> bool {
        let begin = location.offset..location.offset.saturating_add(1);
        !self.blobs.get(&location.key, begin).await.is_err_and(|error| error.is_unreachable())
    }

    /// Lists the keys of all packs.
    pub fn packs(&self) -> Result<Vec<String>, ContentError> {
        let mut keys = Vec::new();
        runtime().block_on(self.blobs.list("packs", |blob| keys.push(blob.key)))?;
        Ok(keys)
    }

    /// Returns the index of a pack; empty if the pack is too damaged to have one.
    pub fn index(&self, key: &str) -> Result<Vec<(ChunkId, ChunkLocation)>, ContentError> {
        let tail = runtime().block_on(self.blobs.get_end(key, TAIL_BYTES))?;
        if is_newer(&tail.bytes) {
            let what = format!("{key} has a format that this version does not support: use a newer version");
            return Err(ContentError::Damaged(what));
        }
        let found = match index(&tail.bytes, tail.offset) {
            Some(found) => Some(found),
            // The index is longer than the tail, or there is none.
            None => match index_length(&tail.bytes) {
                Some(length) if (TAIL_BYTES..tail.offset.saturating_add(TAIL_BYTES)).contains(&length) => {
                    let tail = runtime().block_on(self.blobs.get_end(key, length))?;
                    index(&tail.bytes, tail.offset)
                }
                _ => None,
            },
        };
        let location = |Indexed { id, offset, stored, length }| {
            (id, ChunkLocation { key: key.to_owned(), offset, stored, length })
        };
        Ok(found.unwrap_or_default().into_iter().map(location).collect())
    }

    /// Returns all chunks of a content, including its lists; without the segments of a content whose lists cannot be read.
    pub fn chunks_of(&self, meta: &dyn MetaStore, content: &Content) -> Vec<ChunkId> {
        let lists = match &content.layout {
            Layout::Indirect(lists) => &lists[..],
            Layout::Inline(_) | Layout::Direct(_) => &[],
        };
        let segments = self.segments(meta, content).unwrap_or_default();
        lists
            .iter()
            .chain(&segments)
            .filter_map(|segment| match segment {
                Segment::Chunk { id, .. } => Some(*id),
                Segment::Hole { .. } => None,
            })
            .collect()
    }
}
