//! Films that stand in the file of a picture, which shows the moments around it.
//!
//! What a film says of itself is taken away as a whole: its boxes of user data and of metadata become free space.

use std::ops::Range;

use super::RedactError;
use super::boxes::{self, Top, parts};
use super::bytes::Reader;
use super::edits::{Edits, Fill};

/// What describes a film. That of an hour has a few megabytes.
const MAX_METADATA_BYTES: u64 = 16 << 20;
/// Boxes in boxes.
const MAX_BOX_DEPTH: usize = 8;

/// Boxes that say of a film what has nothing to do with showing it.
const METADATA_BOXES: [&[u8; 4]; 3] = [b"udta", b"meta", b"uuid"];
/// Boxes in which there may be such.
const CONTAINER_BOXES: [&[u8; 4]; 3] = [b"moov", b"trak", b"mdia"];

/// Notes what tells a place in a film that begins at `at`; tells where it ends, as far as it makes sense.
pub(super) fn location(reader: &mut Reader<'_>, mut at: u64, edits: &mut Edits) -> Result<u64, RedactError> {
    for _ in 0..boxes::MAX_BOXES {
        let Some(Top { kind, start, end }) = boxes::top(reader, at)? else { return Ok(at) };
        if !kind.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
            return Ok(at);
        }
        if METADATA_BOXES.contains(&&kind) {
            free(at, start..end, edits);
        } else if kind == *b"moov" {
            // One more tells of those that are too large, also where a box goes on to the end of the file.
            let data = reader.read(start, (end - start).min(MAX_METADATA_BYTES + 1) as usize)?;
            if data.len() as u64 > MAX_METADATA_BYTES {
                return Err(RedactError::TooComplex);
            }
            inner(&data, start, 0..data.len(), MAX_BOX_DEPTH, edits)?;
        }
        if reader.read(end - 1, 1)?.is_empty() {
            // It goes on to the end of the file, or is no box.
            return Ok(start);
        }
        at = end;
    }
    Err(RedactError::TooComplex)
}

/// The boxes within one. `base`: where the data begin in the file.
fn inner(
    data: &[u8],
    base: u64,
    within: Range<usize>,
    depth: usize,
    edits: &mut Edits,
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

/// Has the box at `at` be free space.
fn free(at: u64, contents: Range<u64>, edits: &mut Edits) {
    // Behind its size.
    edits.add(at.saturating_add(4), Fill::Bytes(Box::from(*b"free")));
    edits.add(contents.start, Fill::Zeros(contents.end - contents.start));
}
