//! Streaming decoder: extracts chunks from the response to a range request and writes them to their destination.
//!
//! Each chunk is decrypted and decompressed as needed, and verified by its name. It counts as arrived only when it is complete
//! and verified; bytes of a plain chunk are written before that.

use std::sync::Arc;

use shunt_volume_store::ChunkLocation;
use shunt_volume_types::object::ChunkId;

use crate::ContentError;
use crate::chunk_keys::ChunkKeys;
use crate::compression::{decode, is_plain};

/// A chunk to download, and its destination.
#[derive(Debug, Clone)]
pub(super) struct ChunkRequest {
    pub id: ChunkId,
    pub location: ChunkLocation,
    /// Identifies it for the caller: an offset in the file, or an index in a list.
    pub at: u64,
}

pub(super) fn damaged(id: ChunkId, location: &ChunkLocation) -> ContentError {
    ContentError::Damaged(format!("chunk {id:?} in {}", location.key))
}

/// Writes bytes of a chunk, identified by [`ChunkRequest::at`], at an offset in it.
pub(super) type Write = dyn Fn(u64, u64, &[u8]) -> std::io::Result<()> + Send + Sync;

/// Decodes the chunks of one request from a byte stream. Chunks stored as plain bytes are written part by part as they arrive
/// and hashed on the way, while they are in the processor's cache; others are assembled first.
pub(super) struct ChunkStreamDecoder {
    run: Vec<ChunkRequest>,
    keys: Arc<ChunkKeys>,
    write: Arc<Write>,
    /// Index of the current chunk in the run.
    next: usize,
    /// Number of its stored bytes received.
    received_bytes: usize,
    state: State,
    complete: Vec<(u64, u64)>,
}

enum State {
    /// Nothing received yet.
    Before,
    /// A plain chunk: its hash up to this point, and the number of bytes written.
    Passing(Box<blake3::Hasher>, u64),
    /// Other chunks: the stored bytes received.
    Held(Vec<u8>),
}

impl ChunkStreamDecoder {
    /// Decodes chunks that follow each other without gaps.
    pub fn new(run: Vec<ChunkRequest>, keys: Arc<ChunkKeys>, write: Arc<Write>) -> Self {
        Self { run, keys, write, next: 0, received_bytes: 0, state: State::Before, complete: Vec::new() }
    }

    /// Processes the next bytes of the stored object, from the first chunk on.
    ///
    /// # Errors
    /// [`ContentError::Damaged`] if a chunk does not match its name; [`ContentError::Io`] for an error of `write`.
    pub fn push(&mut self, mut part: &[u8]) -> Result<(), ContentError> {
        while let Some(ChunkRequest { location, .. }) = self.run.get(self.next)
            && !part.is_empty()
        {
            let stored = location.stored as usize;
            let (segment, rest) = part.split_at(part.len().min(stored - self.received_bytes));
            part = rest;
            self.received_bytes += segment.len();
            let is_whole = self.received_bytes == stored;
            self.take(segment, is_whole)?;
            if is_whole {
                (self.next, self.received_bytes) = (self.next + 1, 0);
            }
        }
        Ok(())
    }

    /// Returns the complete chunks, each with its length.
    ///
    /// # Errors
    /// [`ContentError::Damaged`] if a chunk is incomplete.
    pub fn end(&mut self) -> Result<Vec<(u64, u64)>, ContentError> {
        match self.run.get(self.next) {
            Some(ChunkRequest { id, location, .. }) => Err(damaged(*id, location)),
            None => Ok(std::mem::take(&mut self.complete)),
        }
    }

    /// Processes bytes of the current chunk.
    fn take(&mut self, mut bytes: &[u8], is_last: bool) -> Result<(), ContentError> {
        let ChunkRequest { id, location, at } = &self.run[self.next];
        let length = location.length as usize;
        let write = |from, bytes: &[u8]| (self.write)(*at, from, bytes).map_err(ContentError::Io);
        let whole = |stored: &[u8]| {
            let bytes = decode(&self.keys, *id, stored, length).ok_or_else(|| damaged(*id, location))?;
            write(0, &bytes)
        };
        if matches!(self.state, State::Before) && !is_last {
            self.state = match bytes {
                [first, rest @ ..]
                    if is_plain(&self.keys, *first) && location.stored as usize == length + 1 =>
                {
                    bytes = rest;
                    State::Passing(Box::new(self.keys.hasher()), 0)
                }
                _ => State::Held(Vec::with_capacity(location.stored as usize)),
            };
        }
        match &mut self.state {
            State::Before => whole(bytes)?,
            State::Passing(hasher, past) => {
                hasher.update(bytes);
                write(*past, bytes)?;
                *past += bytes.len() as u64;
                if is_last && ChunkId(*hasher.finalize().as_bytes()) != *id {
                    return Err(damaged(*id, location));
                }
            }
            State::Held(held) => {
                held.extend_from_slice(bytes);
                if is_last {
                    whole(held)?;
                }
            }
        }
        if is_last {
            self.complete.push((*at, location.length.into()));
            self.state = State::Before;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::compression::encode;
    use crate::pack::Pack;
    use shunt_volume_types::crypto::VolumeKey;

    /// Decodes these chunks, stored in a pack, from parts of this size and returns what was written.
    fn decode_in_parts(
        keys: &ChunkKeys,
        requests: &[ChunkRequest],
        stored: &[u8],
        size: usize,
    ) -> Result<Vec<Vec<u8>>, ContentError> {
        let written: Vec<_> =
            requests.iter().map(|request| vec![0; request.location.length as usize]).collect();
        let written = Arc::new(Mutex::new(written));
        let into = written.clone();
        let write = move |at, from, bytes: &[u8]| {
            let all: &mut Vec<Vec<u8>> = &mut into.lock();
            all[at as usize][from as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let mut arrival = ChunkStreamDecoder::new(requests.to_vec(), Arc::new(keys.clone()), Arc::new(write));
        stored.chunks(size).try_for_each(|part| arrival.push(part))?;
        let arrived = arrival.end()?;
        let lengths = requests.iter().map(|request| (request.at, request.location.length.into()));
        assert_eq!(arrived, lengths.collect::<Vec<_>>());
        Ok(written.lock().clone())
    }

    #[test]
    fn chunks_arrive_by_any_parts_and_only_whole() {
        for keys in [ChunkKeys::open([3; 32]), ChunkKeys::sealed(&VolumeKey::random())] {
            let mut noise = vec![0; 3000];
            keys.hasher().finalize_xof().fill(&mut noise);
            let chunks = [&noise[..], b"x", &b"text ".repeat(1000), &noise[..2000]];
            let mut pack = Pack::default();
            for bytes in chunks {
                let id = keys.name(bytes);
                pack.push(id, &encode(&keys, id, bytes).unwrap(), bytes.len() as u32);
            }
            let (stored, locations) = pack.close("key");
            let requests: Vec<_> = (locations.into_iter().enumerate())
                .map(|(n, (id, location))| ChunkRequest { id, location, at: n as u64 })
                .collect();
            let end = requests.iter().map(|request| request.location.stored as usize).sum();
            for size in [1, 2, 3, 7, 1000, 2999, 3001, stored.len()] {
                // With and without the bytes that follow.
                assert_eq!(decode_in_parts(&keys, &requests, &stored, size).unwrap(), chunks);
                assert_eq!(decode_in_parts(&keys, &requests, &stored[..end], size).unwrap(), chunks);
                let cut = decode_in_parts(&keys, &requests, &stored[..end - 1], size).unwrap_err();
                assert!(matches!(cut, ContentError::Damaged(_)), "{cut:?}");
                for n in (0..end).step_by(97) {
                    let mut changed = stored.clone();
                    changed[n] ^= 1;
                    let error = decode_in_parts(&keys, &requests, &changed, size).unwrap_err();
                    assert!(matches!(error, ContentError::Damaged(_)), "{n} {error:?}");
                }
                // The chunk matches its name, but not the length in the metadata.
                for (n, length) in [(0, 2999), (0, 3001), (2, 4999)] {
                    let mut wrong = requests.clone();
                    wrong[n].location.length = length;
                    assert!(decode_in_parts(&keys, &wrong, &stored, size).is_err());
                }
            }
        }
    }
}
