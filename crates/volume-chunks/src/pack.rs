//! Packs: several chunks in one stored object, so that small files do not cost a request each.
//!
//! A pack contains the chunks one after the other in their stored form, then an index from which a lost table of locations can
//! be rebuilt: `postcard` of [`Indexed`]s, its length in 4 bytes (little endian), and 8 magic bytes.

use serde::{Deserialize, Serialize};
use shunt_volume_store::{ChunkLocation, codec};
use shunt_volume_types::object::ChunkId;

/// A pack is closed when it has reached this size in bytes.
pub(super) const PACK_TARGET_BYTES: usize = 8 << 20;
const MAGIC: &[u8; 8] = b"ShntPk01";
/// Length of the magic bytes without the version.
const MAGIC_PREFIX_BYTES: usize = 6;

/// An entry of a pack's index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Indexed {
    pub id: ChunkId,
    pub offset: u64,
    pub stored: u32,
    pub length: u32,
}

/// Generates a key for a new pack. Keys are spread over directories, each with a few thousand packs at most.
pub(super) fn new_key() -> String {
    let number: u128 = rand::random();
    format!("packs/{:02x}/{number:032x}", number >> 120)
}

/// A pack that is being filled.
#[derive(Debug, Default)]
pub(super) struct Pack {
    bytes: Vec<u8>,
    index: Vec<Indexed>,
}

impl Pack {
    pub fn push(&mut self, id: ChunkId, stored: &[u8], length: u32) {
        self.index.push(Indexed { id, offset: self.bytes.len() as u64, stored: stored.len() as u32, length });
        self.bytes.extend_from_slice(stored);
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() >= PACK_TARGET_BYTES
    }

    /// Reports whether `more` bytes would exceed the maximum size.
    pub(crate) fn is_full_with(&self, more: usize) -> bool {
        !self.bytes.is_empty() && self.bytes.len() + more > PACK_TARGET_BYTES + PACK_TARGET_BYTES / 4
    }

    /// Returns the bytes to store under a key, and the locations of the chunks.
    pub fn close(mut self, key: &str) -> (Vec<u8>, Vec<(ChunkId, ChunkLocation)>) {
        let index = codec::encode(&self.index);
        self.bytes.extend_from_slice(&index);
        self.bytes.extend_from_slice(&(index.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(MAGIC);
        let locations = self
            .index
            .into_iter()
            .map(|Indexed { id, offset, stored, length }| {
                (id, ChunkLocation { key: key.to_owned(), offset, stored, length })
            })
            .collect();
        (self.bytes, locations)
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

/// Decodes the index of a pack from its end, which begins after `before` bytes; `None` if it is no intact pack.
pub(super) fn index(end: &[u8], before: u64) -> Option<Vec<Indexed>> {
    let (rest, magic) = end.split_last_chunk::<8>()?;
    let (rest, length) = rest.split_last_chunk::<4>()?;
    let from = rest.len().checked_sub(u32::from_le_bytes(*length) as usize)?;
    let index: Vec<Indexed> = codec::decode("an index", &rest[from..]).ok().filter(|_| magic == MAGIC)?;
    let chunks = before + from as u64;
    let fits =
        |chunk: &Indexed| chunk.offset.checked_add(u64::from(chunk.stored)).is_some_and(|end| end <= chunks);
    index.iter().all(fits).then_some(index)
}

/// Returns the length of the index with its trailer, as stated in the trailer.
pub(super) fn index_length(end: &[u8]) -> Option<u64> {
    let (rest, magic) = end.split_last_chunk::<8>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    (magic == MAGIC).then(|| u64::from(u32::from_le_bytes(*length)) + 12)
}

/// Reports whether it is a pack of an unknown version.
pub(super) fn is_newer(end: &[u8]) -> bool {
    end.last_chunk::<8>()
        .is_some_and(|magic| magic != MAGIC && magic[..MAGIC_PREFIX_BYTES] == MAGIC[..MAGIC_PREFIX_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_keys::ChunkKeys;
    use crate::compression::{decode, encode};
    use shunt_volume_types::crypto::VolumeKey;

    #[test]
    fn chunks_come_back_from_a_pack_and_only_whole() {
        for keys in [ChunkKeys::open([3; 32]), ChunkKeys::sealed(&VolumeKey::random())] {
            let mut random = vec![0; 5000];
            keys.hasher().finalize_xof().fill(&mut random);
            let mut pack = Pack::default();
            for bytes in [&b"text ".repeat(1000)[..], b"x", &random] {
                let id = keys.name(bytes);
                pack.push(id, &encode(&keys, id, bytes).unwrap(), bytes.len() as u32);
            }
            let (bytes, locations) = pack.close("key");
            assert!(bytes.len() < 6000, "text is compressed: {}", bytes.len());
            assert_eq!(index(&bytes, 0).unwrap().len(), 3);
            for (id, location) in locations {
                let range = location.offset as usize..location.offset as usize + location.stored as usize;
                let mut stored = bytes[range].to_vec();
                let length = location.length as usize;
                assert_eq!(keys.name(&decode(&keys, id, &stored, length).unwrap()), id);
                assert_eq!(decode(&keys, id, &stored, length + 1), None);
                assert_eq!(decode(&keys, id, &stored, usize::MAX), None);
                *stored.last_mut().unwrap() ^= 1;
                assert_eq!(decode(&keys, id, &stored, length), None);
            }
            for end in 0..bytes.len() {
                assert_eq!(index(&bytes[..end], 0), None);
            }
        }
    }
}
