//! Downloads of files and of parts of files: chunks are located in the metadata store, and fetched from the object store.
//!
//! Whole segments are written to a local file, or a range is read into memory. `progress` reports what has been verified. In an
//! encrypted volume the digest of a complete file is verified as well.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use shunt_volume_store::MetaStore;
use shunt_volume_types::object::{ChunkId, Content, Segment};

use crate::chunk_decoder::ChunkRequest;
use crate::{BasisSource, ContentError, ContentStore, hole};

/// Number of chunks located in one request.
const LOCATE_BATCH_CHUNKS: usize = 1024;

/// Block size for verifying a file.
const VERIFY_BLOCK_BYTES: usize = 256 << 10;

/// Called with ranges of the file that have been downloaded.
pub type Progress<'a> = &'a (dyn Fn(Range<u64>) + Sync);

/// A chunk that is to be located.
struct SegmentRequest {
    id: ChunkId,
    length: u32,
    at: u64,
}

impl ContentStore {
    /// Downloads a content into a file, which then has its size. Memory use is bounded (about 64 MiB).
    ///
    /// # Errors
    /// [`ContentError`]; the file then has arbitrary data, except where `progress` was called.
    pub fn fetch_file(
        &self,
        meta: &dyn MetaStore,
        content: &Content,
        file: &File,
        progress: Progress<'_>,
    ) -> Result<(), ContentError> {
        // Truncated first: all of it is a hole then.
        file.set_len(0).and_then(|()| file.set_len(content.size)).map_err(ContentError::Io)?;
        if let Some(bytes) = self.inline(content)? {
            file.write_all_at(bytes, 0).map_err(ContentError::Io)?;
            progress(0..bytes.len() as u64);
            return Ok(());
        }
        let segments = self.segments(meta, content)?;
        self.fetch(meta, &segments, 0..content.size, file, None, progress)?;
        self.verify_file(content, file)
    }

    /// Verifies the bytes of a file against the digest of its content, if the volume is encrypted: chunks authenticate
    /// themselves, but only the digest proves that they belong to this file, in this order and with these holes.
    ///
    /// # Errors
    /// [`ContentError::Damaged`]; [`ContentError::Io`] of reading the file.
    pub fn verify_file(&self, content: &Content, file: &File) -> Result<(), ContentError> {
        if !self.keys.encrypts() || content.size == 0 {
            return Ok(());
        }
        let (mut hasher, mut block, mut at) = (self.hasher(), vec![0; VERIFY_BLOCK_BYTES], 0);
        while at < content.size {
            let limit = (content.size - at).min(VERIFY_BLOCK_BYTES as u64) as usize;
            let length = match file.read_at(&mut block[..limit], at) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ContentError::Io(error)),
            };
            hasher.update(&block[..length]);
            at += length as u64;
        }
        match *hasher.finalize().as_bytes() == content.digest {
            true => Ok(()),
            false => Err(ContentError::Damaged("the content does not match the digest of the file".into())),
        }
    }

    /// Downloads the segments that overlap a range into the file, regardless of its data there; returns the range that they
    /// cover. Chunks in the basis file `local` are copied from it.
    ///
    /// # Errors
    /// [`ContentError`]; the segments then have arbitrary data, except where `progress` was called.
    pub fn fetch(
        &self,
        meta: &dyn MetaStore,
        segments: &[Segment],
        range: Range<u64>,
        file: &File,
        local: Option<&BasisSource>,
        progress: Progress<'_>,
    ) -> Result<Range<u64>, ContentError> {
        let (mut from, mut to) = (None, range.start);
        let mut requests = Vec::new();
        for (at, segment) in segments_in(segments, &range) {
            from.get_or_insert(at.start);
            to = at.end;
            match segment {
                Segment::Chunk { id, length } => {
                    match local.and_then(|local| local.get(&self.keys, *id, *length)) {
                        Some(bytes) => {
                            file.write_all_at(&bytes, at.start).map_err(ContentError::Io)?;
                            progress(at);
                        }
                        None => requests.push(SegmentRequest { id: *id, length: *length, at: at.start }),
                    }
                }
                Segment::Hole { .. } => {
                    hole::make(file, at.clone()).map_err(ContentError::Io)?;
                    progress(at);
                }
            }
        }
        let file = Arc::new(file.try_clone().map_err(ContentError::Io)?);
        for part in requests.chunks(LOCATE_BATCH_CHUNKS) {
            let (requests, file) = (self.locate(meta, part)?, file.clone());
            let write = move |at, offset, bytes: &[u8]| file.write_all_at(bytes, at + offset);
            self.download_into(requests, write, |at, length| progress(at..at + length))?;
        }
        Ok(from.unwrap_or(to)..to)
    }

    /// Downloads several small files completely, regardless of their data: adjacent chunks share a request.
    ///
    /// # Errors
    /// [`ContentError`]; the files then have arbitrary data.
    pub fn fetch_batch(
        &self,
        meta: &dyn MetaStore,
        files: &[(&[Segment], &File)],
    ) -> Result<(), ContentError> {
        let mut goals = Vec::new();
        let mut requests = Vec::new();
        for (segments, file) in files {
            let file = Arc::new(file.try_clone().map_err(ContentError::Io)?);
            let mut offset = 0_u64;
            for segment in *segments {
                match segment {
                    Segment::Chunk { id, length } => {
                        requests.push(SegmentRequest { id: *id, length: *length, at: goals.len() as u64 });
                        goals.push((file.clone(), offset));
                    }
                    Segment::Hole { length } => {
                        let hole = offset..offset.saturating_add(*length);
                        hole::make(&file, hole).map_err(ContentError::Io)?;
                    }
                }
                offset = offset.saturating_add(segment.length());
            }
        }
        let goals = Arc::new(goals);
        for part in requests.chunks(LOCATE_BATCH_CHUNKS) {
            let mut requests = self.locate(meta, part)?;
            requests.sort_by(|one, other| {
                (&one.location.key, one.location.offset).cmp(&(&other.location.key, other.location.offset))
            });
            let goals = goals.clone();
            let write = move |goal, offset, bytes: &[u8]| {
                let (file, at): &(Arc<File>, u64) = &goals[goal as usize];
                file.write_all_at(bytes, at + offset)
            };
            self.download_into(requests, write, |_, _| ())?;
        }
        Ok(())
    }

    /// Reads a range of a content into memory, for reads of a file that is not to be cached.
    ///
    /// # Errors
    /// [`ContentError`] of the object store or of [locating](ContentError::Store) chunks.
    pub fn read(
        &self,
        meta: &dyn MetaStore,
        content: &Content,
        range: Range<u64>,
    ) -> Result<Vec<u8>, ContentError> {
        let range = range.start.min(content.size)..range.end.min(content.size);
        let length = range.end.saturating_sub(range.start) as usize;
        if let Some(bytes) = self.inline(content)? {
            return Ok(bytes.iter().skip(range.start as usize).take(length).copied().collect());
        }
        let mut answer = vec![0; length];
        let mut requests = Vec::new();
        for (at, segment) in segments_in(&self.segments(meta, content)?, &range) {
            if let Segment::Chunk { id, length } = segment {
                requests.push(SegmentRequest { id: *id, length: *length, at: at.start });
            }
        }
        for part in requests.chunks(LOCATE_BATCH_CHUNKS) {
            self.download(self.locate(meta, part)?, into_owned, |at, bytes| {
                let before = range.start.saturating_sub(at) as usize;
                let after = at.saturating_sub(range.start) as usize;
                let source = bytes.get(before..).unwrap_or_default();
                let into = answer.get_mut(after..).unwrap_or_default();
                into.iter_mut().zip(source).for_each(|(into, byte)| *into = *byte);
                Ok(())
            })?;
        }
        Ok(answer)
    }

    /// Reads chunks into memory, in their order.
    pub(super) fn read_pieces(
        &self,
        meta: &dyn MetaStore,
        segments: &[Segment],
    ) -> Result<Vec<Vec<u8>>, ContentError> {
        let requests: Vec<_> = segments
            .iter()
            .enumerate()
            .filter_map(|(n, segment)| match segment {
                Segment::Chunk { id, length } => {
                    Some(SegmentRequest { id: *id, length: *length, at: n as u64 })
                }
                Segment::Hole { .. } => None,
            })
            .collect();
        let mut all = vec![Vec::new(); segments.len()];
        let requests = self.locate(meta, &requests)?;
        self.download(requests, into_owned, |at, mut bytes| {
            all.get_mut(at as usize).into_iter().for_each(|one| *one = std::mem::take(&mut bytes));
            Ok(())
        })?;
        Ok(all)
    }

    /// Locates chunks, and records the latency of the request.
    fn locate(
        &self,
        meta: &dyn MetaStore,
        requests: &[SegmentRequest],
    ) -> Result<Vec<ChunkRequest>, ContentError> {
        let ids: Vec<ChunkId> = requests.iter().map(|sought| sought.id).collect();
        let started = std::time::Instant::now();
        let locations = meta.locate_chunks(&ids)?;
        self.link.record_latency(started.elapsed());
        requests
            .iter()
            .zip(locations)
            .map(|(&SegmentRequest { id, length, at }, location)| match location {
                Some(location) if location.length != length => Err(ContentError::Damaged(format!(
                    "chunk {id:?} does not have the length that the file records"
                ))),
                Some(location) => Ok(ChunkRequest { id, location, at }),
                None => Err(ContentError::Missing(format!("chunk {id:?} has no location in the metadata"))),
            })
            .collect()
    }
}

/// Returns the segments that overlap a range, each with its own range.
pub fn segments_in<'a>(
    segments: &'a [Segment],
    range: &Range<u64>,
) -> impl Iterator<Item = (Range<u64>, &'a Segment)> {
    let (start, end, mut offset) = (range.start, range.end, 0_u64);
    let placed = segments.iter().map(move |segment| {
        let at = offset..offset.saturating_add(segment.length());
        offset = at.end;
        (at, segment)
    });
    placed.filter(move |(at, _)| at.end > start && at.start < end)
}

fn into_owned(_at: u64, bytes: Cow<'_, [u8]>) -> Result<Vec<u8>, ContentError> {
    Ok(bytes.into_owned())
}
