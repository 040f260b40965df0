//! PNG: chunks, each with a checksum, which is made anew.

use super::RedactError;
use super::bytes::{Reader, be32};
use super::edits::{Edits, Fill};
use super::pieces::{Kind, Pieces, blank};
use super::png_text;

/// A chunk of metadata.
const MAX_CHUNK_BYTES: usize = 16 << 20;

/// Notes what tells a place.
pub(super) fn location(reader: &mut Reader<'_>, edits: &mut Edits) -> Result<(), RedactError> {
    let mut at = 8u64;
    loop {
        // How many there may be, the reader bounds.
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
        } else if png_text::redact(kind, &mut seen)? {
            edits.add(body, Fill::Bytes(seen.clone().into()));
        }
        if seen != data {
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(kind);
            checksum.update(&seen);
            edits.add(body + u64::from(length), Fill::Bytes(Box::from(checksum.finalize().to_be_bytes())));
        }
    }
}
