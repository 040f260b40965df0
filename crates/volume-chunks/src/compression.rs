//! The stored form of a chunk: one byte for the compression, then the bytes, plain or as zstd. Encrypted volumes encrypt that as a
//! whole. A chunk that zstd shortens by less than a twentieth is stored plain.

use std::borrow::Cow;

use shunt_volume_types::object::ChunkId;

use crate::chunk_keys::ChunkKeys;

/// Maximum length of a chunk; longer ones in the metadata are rejected.
pub(super) const MAX_ACCEPTED_CHUNK_BYTES: usize = 16 << 20;
/// Compression level of zstd: fast, with most of the gain.
const COMPRESSION_LEVEL: i32 = 1;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// Encodes a chunk for storage: a format byte and the bytes, compressed if worthwhile; encrypted as a whole.
pub(super) fn encode(keys: &ChunkKeys, id: ChunkId, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stored = vec![ZSTD];
    stored.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
    let compressed = zstd::bulk::compress(bytes, COMPRESSION_LEVEL).ok();
    match compressed {
        // A saving below a twentieth does not justify decompression by each reader.
        Some(compressed) if compressed.len() < bytes.len() / 20 * 19 => stored.extend_from_slice(&compressed),
        _ => {
            stored[0] = PLAIN;
            stored.extend_from_slice(bytes);
        }
    }
    keys.seal(id, stored)
}

/// Decodes a stored chunk; `None` if its bytes do not match its name or length.
pub(super) fn decode<'a>(
    keys: &ChunkKeys,
    id: ChunkId,
    stored: &'a [u8],
    length: usize,
) -> Option<Cow<'a, [u8]>> {
    if length > MAX_ACCEPTED_CHUNK_BYTES {
        return None;
    }
    let opened = keys.unseal(id, stored)?;
    let bytes = match (*opened.first()?, opened) {
        // The common case for large files: no copy.
        (PLAIN, Cow::Borrowed(opened)) => Cow::Borrowed(&opened[1..]),
        (PLAIN, Cow::Owned(opened)) => Cow::Owned(opened[1..].to_vec()),
        (ZSTD, opened) => Cow::Owned(zstd::bulk::decompress(&opened[1..], length).ok()?),
        _ => return None,
    };
    (bytes.len() == length && keys.name(&bytes) == id).then_some(bytes)
}

/// Reports whether a stored chunk with this format byte consists of its plain bytes after it.
pub(super) fn is_plain(keys: &ChunkKeys, first: u8) -> bool {
    first == PLAIN && !keys.encrypts()
}
