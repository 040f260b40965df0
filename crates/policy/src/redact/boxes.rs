//! Parser for boxes of ISO base media files: HEIC, AVIF and films.

use super::RedactError;
use super::bytes::{Reader, be32};

/// Limit on the boxes at one level.
pub(super) const MAX_BOXES: usize = 4096;

/// A box in memory: its type, and the offsets of the box and its contents.
pub(super) struct Part {
    pub(super) kind: [u8; 4],
    pub(super) at: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A box in a file.
pub(super) struct Top {
    pub(super) kind: [u8; 4],
    /// Offset of its contents.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Returns the total size of a box and the size of its header; `rest` is the size of a box that extends to the end.
fn size(head: &[u8], rest: u64) -> Option<(u64, u64)> {
    let (front, size) = match be32(head, 0)? {
        0 => (8, rest),
        1 => (16, u64::from(be32(head, 8)?) << 32 | u64::from(be32(head, 12)?)),
        size => (8, size.into()),
    };
    (size >= front).then_some((size, front))
}

fn kind(head: &[u8]) -> Option<[u8; 4]> {
    head.get(4..8)?.try_into().ok()
}

/// Parses the boxes in a range of data.
pub(super) fn parts(data: &[u8], mut at: usize, end: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    while at + 8 <= end && parts.len() < MAX_BOXES {
        let head = &data[at..end];
        let (Some((size, front)), Some(kind)) = (size(head, head.len() as u64), kind(head)) else { break };
        if size > head.len() as u64 {
            break;
        }
        parts.push(Part { kind, at, start: at + front as usize, end: at + size as usize });
        at += size as usize;
    }
    parts
}

/// Parses the header of the box at `at`; `None` if there is no box.
pub(super) fn top(reader: &mut Reader<'_>, at: u64) -> Result<Option<Top>, RedactError> {
    let head = reader.read(at, 16)?;
    let (Some((size, front)), Some(kind)) = (size(&head, u64::MAX), kind(&head)) else { return Ok(None) };
    Ok(Some(Top { kind, start: at.saturating_add(front), end: at.saturating_add(size) }))
}
