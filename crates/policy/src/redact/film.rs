//! Redaction of films embedded in picture files, such as motion photos.
//!
//! The descriptive metadata of a film is removed as a whole: its user data and metadata boxes become free space.

use std::ops::Range;

use super::RedactError;
use super::boxes::{self, Top, parts};
use super::bytes::Reader;
use super::edits_builder::EditsBuilder;

/// Limit on the `moov` box in bytes. A film of one hour needs a few megabytes.
const MAX_METADATA_BYTES: u64 = 16 << 20;
/// Limit on the nesting of boxes.
const MAX_BOX_DEPTH: usize = 8;

/// Boxes with metadata that playback does not need.
const METADATA_BOXES: [&[u8; 4]; 3] = [b"udta", b"meta", b"uuid"];
/// Boxes that may contain metadata boxes.
const CONTAINER_BOXES: [&[u8; 4]; 3] = [b"moov", b"trak", b"mdia"];

/// Records the location metadata of a film that begins at `at`; returns the offset up to which it could be parsed.
pub(super) fn location(
    reader: &mut Reader<'_>,
    mut at: u64,
    edits: &mut EditsBuilder,
) -> Result<u64, RedactError> {
    for _ in 0..boxes::MAX_BOXES {
        let Some(Top { kind, start, end }) = boxes::top(reader, at)? else { return Ok(at) };
        if !kind.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
            return Ok(at);
        }
        if METADATA_BOXES.contains(&&kind) {
            free(at, start..end, edits);
        } else if kind == *b"moov" {
            // Reading one byte more detects a box that is too large, even one that extends to the end of the file.
            let data = reader.read(start, (end - start).min(MAX_METADATA_BYTES + 1) as usize)?;
            if data.len() as u64 > MAX_METADATA_BYTES {
                return Err(RedactError::TooComplex);
            }
            inner(&data, start, 0..data.len(), MAX_BOX_DEPTH, edits)?;
        }
        if reader.read(end - 1, 1)?.is_empty() {
            // The box extends to the end of the file, or is not a box.
            return Ok(start);
        }
        at = end;
    }
    Err(RedactError::TooComplex)
}

/// Processes the boxes within a box. `base` is the file offset of `data`.
fn inner(
    data: &[u8],
    base: u64,
    within: Range<usize>,
    depth: usize,
    edits: &mut EditsBuilder,
) -> Result<(), RedactError> {
    let depth = depth.checked_sub(1).ok_or(RedactError::TooComplex)?;
    for part in parts(data, within.start, within.end) {
        let in_file = |at: usize| base.saturating_add(at as u64);
        if METADATA_BOXES.contains(&&part.kind) {
            free(in_file(part.at), in_file(part.start)..in_file(part.end), edits);
        } else if CONTAINER_BOXES.contains(&&part.kind) {
            inner(data, base, part.start..part.end, depth, edits)?;
        }
    }
    Ok(())
}

/// Turns the box at `at` into free space.
fn free(at: u64, contents: Range<u64>, edits: &mut EditsBuilder) {
    // The type follows the size.
    edits.replace(at.saturating_add(4), *b"free");
    edits.zeros(contents);
}
