//! The mark phase of garbage collection: determines the chunks that a volume references.
//!
//! It scans current objects, past versions and the log, in an order that misses no concurrent commit. If a segment list cannot be
//! read, its references are unknown and the caller must not delete any chunk.

use std::collections::HashSet;

use crate::chunks::{ContentError, ContentStore};
use crate::id::{ObjectId, Seq};
use crate::maintenance::{MaintenanceError, PAGE_ROWS, Progress};
use crate::object::{ChunkId, Content, Layout, Segment};
use crate::store::admin::StoreAdmin;
use crate::store::{MetaStore, Mutation};

/// The referenced chunks, by the first 8 bytes of their ids, which are as good as random: a collision only prevents the
/// collection of a chunk.
#[derive(Default)]
pub(super) struct LiveChunks {
    chunks: HashSet<u64>,
    /// Segment lists that could not be read: their chunks are unknown.
    pub unread: Vec<(ChunkId, ContentError)>,
}

fn short(id: &ChunkId) -> u64 {
    id.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl LiveChunks {
    pub fn contains(&self, id: &ChunkId) -> bool {
        self.chunks.contains(&short(id))
    }

    fn insert(&mut self, piece: &Segment) -> bool {
        match piece {
            Segment::Chunk { id, .. } => self.chunks.insert(short(id)),
            Segment::Hole { .. } => false,
        }
    }

    fn insert_all(&mut self, pieces: &[Segment]) {
        for piece in pieces {
            self.insert(piece);
        }
    }

    pub fn add(&mut self, meta: &dyn MetaStore, store: &ContentStore, content: &Content) {
        match &content.layout {
            Layout::Inline(_) => {}
            Layout::Direct(pieces) => self.insert_all(pieces),
            Layout::Indirect(lists) => {
                // Versions of a large file share most of their lists: each is read once.
                for list in lists {
                    if !self.insert(list) {
                        continue;
                    }
                    let Segment::Chunk { id, .. } = list else { continue };
                    match store.list(meta, list) {
                        Ok(pieces) => self.insert_all(&pieces),
                        Err(error) => self.unread.push((*id, error)),
                    }
                }
            }
        }
    }
}

/// Collects the references of all current objects and of all retained versions.
pub(super) fn mark_live(
    admin: &dyn StoreAdmin,
    meta: &dyn MetaStore,
    store: &ContentStore,
    progress: Progress<'_>,
) -> Result<LiveChunks, MaintenanceError> {
    let mut live = LiveChunks::default();
    // Past versions after current objects, so that a version superseded meanwhile is in one of the scans; then the log from
    // `begun` to its end, which has everything committed meanwhile.
    let begun = meta.head()?;
    let (mut from, mut count) = (Some(ObjectId(0)), 0);
    while let Some(at) = from {
        let (objects, next) = admin.scan_records(at, PAGE_ROWS)?;
        count += objects.len() as u64;
        progress("objects", count);
        objects.iter().for_each(|record| live.add(meta, store, &record.stored.object.content));
        from = next;
    }
    let mut after = (ObjectId(0), Seq(0));
    loop {
        let past = admin.scan_past(after, PAGE_ROWS)?;
        let Some((last, until)) = past.last() else { break };
        after = (last.object.id, *until);
        count += past.len() as u64;
        progress("objects", count);
        past.iter().for_each(|(stored, _)| live.add(meta, store, &stored.object.content));
    }
    let mut at = begun;
    loop {
        let entries = meta.log_since(at, PAGE_ROWS)?;
        let Some(last) = entries.last() else { break };
        at = last.seq;
        progress("commits", at.0);
        for change in entries.iter().flat_map(|entry| &entry.change) {
            match change {
                Mutation::Make(object) => live.add(meta, store, &object.content),
                Mutation::SetContent(_, content, _) => live.add(meta, store, content),
                _ => {}
            }
        }
    }
    Ok(live)
}
