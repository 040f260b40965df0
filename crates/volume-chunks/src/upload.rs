//! Uploads of files: each is split into chunks, and those unknown to the store are packed and uploaded.
//!
//! Small files share packs, and up to four packs are uploaded concurrently. Contents become durable with [`Upload::finish`],
//! before which they must not be committed. Files of at most 512 bytes stay inline in the metadata, unless the volume is
//! encrypted.

use std::collections::HashSet;
use std::io::Read;

use shunt_volume_store::validate::MAX_SEGMENTS;
use shunt_volume_store::{ChunkLocation, MetaStore, codec};
use shunt_volume_types::failpoint::{Failpoint, point};
use shunt_volume_types::object::{ChunkId, Content, Layout, Segment};
use shunt_volume_types::runtime::runtime;
use tokio::task::JoinSet;

use crate::chunker::{Chunker, direct, is_zero, push_merged};
use crate::compression::encode;
use crate::indirect::{MAX_DIRECT_SEGMENTS, SEGMENTS_PER_LIST};
use crate::pack::{Pack, new_key};
use crate::{Chunking, ContentError, ContentStore, priority};

/// Maximum number of concurrent pack uploads; with the size of a pack, this bounds memory use.
const MAX_CONCURRENT_UPLOADS: usize = 4;
/// Maximum number of chunks, and of their bytes, in one query whether the store knows them.
const WINDOW_CHUNKS: usize = 1024;
const WINDOW_BYTES: usize = 8 << 20;
/// Minimum number of chunks in the previous version for which the store is queried separately.
const MIN_QUERIED_BASIS_CHUNKS: usize = 8;
/// Maximum size in bytes of a file that is stored inline in the metadata.
pub(super) const INLINE_THRESHOLD_BYTES: usize = 512;

/// The result of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UploadedContent {
    /// New chunks and their locations, for [`Transaction::chunks`](shunt_volume_store::Transaction::chunks).
    pub chunks: Vec<(ChunkId, ChunkLocation)>,
    /// Number of bytes uploaded.
    pub bytes: u64,
}

/// Uploads files, small ones together. Contents returned by [`put`](Self::put) may be committed once [`finish`](Self::finish)
/// has returned: then all of them are durable.
///
/// Uses about 64 MiB at most, regardless of the size and number of files.
pub struct Upload<'a> {
    content: &'a ContentStore,
    meta: &'a dyn MetaStore,
    /// Chunks of this upload.
    queued_chunks: HashSet<ChunkId>,
    /// Chunks for which the store is still to be queried.
    window: Vec<(ChunkId, Vec<u8>)>,
    window_bytes: usize,
    pack: Pack,
    running_uploads: JoinSet<Result<Vec<(ChunkId, ChunkLocation)>, ContentError>>,
    uploaded: UploadedContent,
}

impl std::fmt::Debug for Upload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("sent", &self.uploaded.bytes).finish_non_exhaustive()
    }
}

impl<'a> Upload<'a> {
    pub(super) fn new(content: &'a ContentStore, meta: &'a dyn MetaStore) -> Self {
        Self {
            content,
            meta,
            queued_chunks: HashSet::new(),
            window: Vec::new(),
            window_bytes: 0,
            pack: Pack::default(),
            running_uploads: JoinSet::new(),
            uploaded: UploadedContent::default(),
        }
    }

    /// Uploads the chunks of a file that the store does not have. `size` is its approximate size; `previous` its last
    /// synchronised content, most of whose chunks the store probably still has.
    ///
    /// # Errors
    /// [`ContentError`]; the upload can only be dropped then.
    pub fn put(
        &mut self,
        mut file: impl Read,
        size: u64,
        previous: Option<&Content>,
    ) -> Result<Content, ContentError> {
        let before = previous.map(|previous| self.previous(previous));
        let cutting = Chunking::choose(size, before.as_deref());
        let stored_ids = self.stored_chunks(before.as_deref().unwrap_or_default())?;

        let mut head = Vec::new();
        if size <= INLINE_THRESHOLD_BYTES as u64 && !self.content.keys.encrypts() {
            file.by_ref()
                .take(INLINE_THRESHOLD_BYTES as u64 + 1)
                .read_to_end(&mut head)
                .map_err(ContentError::Io)?;
            if head.len() <= INLINE_THRESHOLD_BYTES {
                return Ok(self.inline(head));
            }
        }

        let mut whole = self.content.keys.hasher();
        let (mut segments, mut total) = (Vec::new(), 0);
        let mut cutter = Chunker::new(head.chain(file), size, cutting);
        while let Some(bytes) = cutter.next().map_err(ContentError::Io)? {
            whole.update(bytes);
            total += bytes.len() as u64;
            if is_zero(bytes) {
                push_merged(&mut segments, Segment::Hole { length: bytes.len() as u64 });
                continue;
            }
            let id = self.content.keys.name(bytes);
            push_merged(&mut segments, Segment::Chunk { id, length: bytes.len() as u32 });
            if !stored_ids.contains(&id) {
                self.add(id, bytes)?;
            }
        }
        if total == 0 {
            return Ok(Content::empty());
        }
        let layout = self.layout(segments)?;
        Ok(Content { size: total, digest: *whole.finalize().as_bytes(), layout })
    }

    /// Returns the chunks of the previous version that the store still has.
    fn stored_chunks(&self, before: &[Segment]) -> Result<HashSet<ChunkId>, ContentError> {
        let ids: Vec<ChunkId> = before.iter().filter_map(chunk_of).collect();
        let mut stored_ids = HashSet::new();
        // A small number is queried together with chunks of other files.
        if ids.len() >= MIN_QUERIED_BASIS_CHUNKS {
            for ids in ids.chunks(WINDOW_CHUNKS) {
                let known = self.meta.has_chunks(ids)?;
                stored_ids.extend(ids.iter().zip(known).filter(|(_, known)| *known).map(|(id, _)| *id));
            }
        }
        Ok(stored_ids)
    }

    /// Uploads what is left. All files of this upload are then durable in the store.
    ///
    /// # Errors
    /// [`ContentError`]; then none of the files is known to be durable.
    pub fn finish(mut self) -> Result<UploadedContent, ContentError> {
        self.flush_window()?;
        self.close()?;
        while !self.running_uploads.is_empty() {
            self.wait_for_upload()?;
        }
        Ok(self.uploaded)
    }

    fn previous(&self, content: &Content) -> Vec<Segment> {
        match self.content.segments(self.meta, content) {
            Ok(segments) => segments,
            // Only a hint: the store is queried for chunks that are not known to exist.
            Err(_) => direct(&content.layout).to_vec(),
        }
    }

    fn inline(&self, bytes: Vec<u8>) -> Content {
        if bytes.is_empty() {
            return Content::empty();
        }
        let digest = self.content.keys.name(&bytes).0;
        Content { size: bytes.len() as u64, digest, layout: Layout::Inline(bytes) }
    }

    fn layout(&mut self, segments: Vec<Segment>) -> Result<Layout, ContentError> {
        if segments.len() <= MAX_DIRECT_SEGMENTS {
            return Ok(Layout::Direct(segments));
        }
        let mut lists = Vec::new();
        for part in segments.chunks(SEGMENTS_PER_LIST) {
            let bytes = codec::encode(part);
            let id = self.content.keys.name(&bytes);
            lists.push(Segment::Chunk { id, length: bytes.len() as u32 });
            self.add(id, &bytes)?;
        }
        if lists.len() > MAX_SEGMENTS {
            return Err(ContentError::TooLarge);
        }
        Ok(Layout::Indirect(lists))
    }

    fn add(&mut self, id: ChunkId, bytes: &[u8]) -> Result<(), ContentError> {
        if !self.queued_chunks.insert(id) {
            return Ok(());
        }
        self.window_bytes += bytes.len();
        self.window.push((id, bytes.to_vec()));
        if self.window.len() >= WINDOW_CHUNKS || self.window_bytes >= WINDOW_BYTES {
            self.flush_window()
        } else {
            Ok(())
        }
    }

    /// Queries the store for the chunks in the window, and packs those that it does not have.
    fn flush_window(&mut self) -> Result<(), ContentError> {
        if self.window.is_empty() {
            return Ok(());
        }
        let ids: Vec<ChunkId> = self.window.iter().map(|(id, _)| *id).collect();
        let known = self.meta.has_chunks(&ids)?;
        self.window_bytes = 0;
        let window = std::mem::take(&mut self.window);
        for ((id, bytes), _) in window.into_iter().zip(known).filter(|(_, known)| !known) {
            let Some(stored) = encode(&self.content.keys, id, &bytes) else {
                return Err(ContentError::Damaged("a chunk could not be encrypted".into()));
            };
            if self.pack.is_full_with(stored.len()) {
                self.close()?;
            }
            self.pack.push(id, &stored, bytes.len() as u32);
            if self.pack.is_full() {
                self.close()?;
            }
        }
        Ok(())
    }

    /// Starts the upload of the pack; waits for another one to finish if there are too many.
    fn close(&mut self) -> Result<(), ContentError> {
        if self.pack.is_empty() {
            return Ok(());
        }
        priority::yield_to_foreground();
        failed(point(Failpoint::PackClosed))?;
        while self.running_uploads.len() >= MAX_CONCURRENT_UPLOADS {
            self.wait_for_upload()?;
        }
        let key = new_key();
        let (bytes, locations) = std::mem::take(&mut self.pack).close(&key);
        self.uploaded.bytes += bytes.len() as u64;
        let blobs = self.content.blobs.clone();
        self.running_uploads
            .spawn_on(async move { blobs.put(&key, bytes).await.map(|()| locations) }, runtime());
        Ok(())
    }

    fn wait_for_upload(&mut self) -> Result<(), ContentError> {
        match runtime().block_on(self.running_uploads.join_next()) {
            None => {}
            Some(Ok(locations)) => {
                self.uploaded.chunks.extend(locations?);
                failed(point(Failpoint::PackLanded))?;
            }
            Some(Err(error)) => return Err(ContentError::Unreachable(error.to_string())),
        }
        Ok(())
    }
}

fn failed(point: rustix::io::Result<()>) -> Result<(), ContentError> {
    point.map_err(|errno| ContentError::Io(errno.into()))
}

fn chunk_of(segment: &Segment) -> Option<ChunkId> {
    match segment {
        Segment::Chunk { id, .. } => Some(*id),
        Segment::Hole { .. } => None,
    }
}
