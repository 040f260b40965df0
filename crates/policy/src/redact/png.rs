//! PNG: metadata chunks, whose checksums are recomputed after a redaction.

use super::RedactError;
use super::blank::blank;
use super::bytes::{Reader, be32};
use super::edits_builder::EditsBuilder;
use super::metadata::Kind;
use super::pieces::Pieces;
use super::png_text;

/// Limit on the size of a metadata chunk in bytes.
const MAX_CHUNK_BYTES: usize = 16 << 20;

/// Records the location metadata of a file.
pub(super) fn location(reader: &mut Reader<'_>, edits: &mut EditsBuilder) -> Result<(), RedactError> {
    let mut at = 8u64;
    loop {
        // The reader limits the number of chunks.
        let head = reader.read(at, 8)?;
        let (Some(length), Some(kind)) = (be32(&head, 0), head.get(4..8)) else { return Ok(()) };
        let body = at + 8;
        at = body.saturating_add(u64::from(length) + 4);
        if !matches!(kind, b"eXIf" | b"tEXt" | b"zTXt" | b"iTXt") {
            continue;
        }
        if length as usize > MAX_CHUNK_BYTES {
            return Err(RedactError::TooComplex);
        }
        let data = reader.read(body, length as usize)?;
        let mut seen = data.clone();
        if kind == b"eXIf" {
            let blanks = Kind::Exif.blanks(&data);
            blank(&mut seen, &blanks);
            Pieces::one(body, data.clone()).record(blanks, edits);
        } else if let Some(text) = png_text::redact(kind, &mut seen)? {
            let (start, bytes) = (body + text.start as u64, &seen[text.start..]);
            match text.packed {
                true => edits.derive(start..body + seen.len() as u64, start, bytes),
                false => edits.replace(start, bytes),
            }
        }
        if seen != data {
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(kind);
            checksum.update(&seen);
            let end = body + u64::from(length);
            edits.derive(body..end, end, checksum.finalize().to_be_bytes());
        }
    }
}
