//! Stored contents as their keeper sees them.

use crate::content::chunk_decoder::ChunkRequest;
use crate::content::pack::{Indexed, index, index_length, is_newer};
use crate::content::{ContentError, ContentStore};
use crate::object::{ChunkId, Content, Layout, Segment};
use crate::runtime::runtime;
use crate::store::{ChunkLocation, MetaStore};

/// More of the end of a pack than its index takes, mostly.
const TAIL: u64 = 64 << 10;

impl ContentStore {
    /// Reads chunks, and calls `wrong` for those that are not what they should be.
    pub(crate) fn verify(
        &self,
        chunks: Vec<(ChunkId, ChunkLocation)>,
        mut wrong: impl FnMut(ChunkId, String),
    ) -> Result<(), ContentError> {
        let wanted: Vec<ChunkRequest> = chunks
            .into_iter()
            .enumerate()
            .map(|(n, (id, place))| ChunkRequest { id, place, at: n as u64 })
            .collect();
        // Together first. What a run that fails holds is then looked at one by one.
        for part in wanted.chunks(64) {
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

    /// Whether there is an answer to who asks for the beginning of a chunk, even one that it is not there or not so long.
    pub(crate) async fn reaches(&self, place: &ChunkLocation) -> bool {
        let begin = place.offset..place.offset.saturating_add(1);
        !self.blobs.get(&place.key, begin).await.is_err_and(|error| error.is_unreachable())
    }

    /// Keys of all packs.
    pub(crate) fn packs(&self) -> Result<Vec<String>, ContentError> {
        let mut keys = Vec::new();
        runtime().block_on(self.blobs.list("packs", |blob| keys.push(blob.key)))?;
        Ok(keys)
    }

    /// What a pack says it holds; nothing, where it is damaged so that it does not.
    pub(crate) fn index(&self, key: &str) -> Result<Vec<(ChunkId, ChunkLocation)>, ContentError> {
        let tail = runtime().block_on(self.blobs.get_end(key, TAIL))?;
        if is_newer(&tail.bytes) {
            let what = format!("{key} is of a format that this version does not know: use a newer version");
            return Err(ContentError::Damaged(what));
        }
        let found = match index(&tail.bytes, tail.offset) {
            Some(found) => Some(found),
            // Its index is longer than the tail, or it has none.
            None => match index_length(&tail.bytes) {
                Some(length) if (TAIL..tail.offset.saturating_add(TAIL)).contains(&length) => {
                    let tail = runtime().block_on(self.blobs.get_end(key, length))?;
                    index(&tail.bytes, tail.offset)
                }
                _ => None,
            },
        };
        let place = |Indexed { id, offset, stored, length }| {
            (id, ChunkLocation { key: key.to_owned(), offset, stored, length })
        };
        Ok(found.unwrap_or_default().into_iter().map(place).collect())
    }

    /// All chunks of a content, lists of pieces among them; of a list that cannot be read, none.
    pub(crate) fn chunks_of(&self, meta: &dyn MetaStore, content: &Content) -> Vec<ChunkId> {
        let lists = match &content.layout {
            Layout::Indirect(lists) => &lists[..],
            Layout::Inline(_) | Layout::Pieces(_) => &[],
        };
        let pieces = self.pieces(meta, content).unwrap_or_default();
        lists
            .iter()
            .chain(&pieces)
            .filter_map(|piece| match piece {
                Segment::Chunk { id, .. } => Some(*id),
                Segment::Hole { .. } => None,
            })
            .collect()
    }
}
