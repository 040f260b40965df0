//! Boxes of ISO media files: HEIC and AVIF, and films.

use super::RedactError;
use super::bytes::{Reader, be32};

/// Boxes at one level.
pub(super) const MAX_BOXES: usize = 4096;

/// A box in memory: its type, and where it and its contents are.
pub(super) struct Part {
    pub(super) kind: [u8; 4],
    pub(super) at: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A box in a file.
pub(super) struct Top {
    pub(super) kind: [u8; 4],
    /// Where its contents begin.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The size of a box, all in all, and of what stands in front of its contents; `rest` is what there is for one without an end.
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

/// The boxes in a stretch of data.
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

/// The box that begins at `at`; `None` where there is none.
pub(super) fn top(reader: &mut Reader<'_>, at: u64) -> Result<Option<Top>, RedactError> {
    let head = reader.read(at, 16)?;
    let (Some((size, front)), Some(kind)) = (size(&head, u64::MAX), kind(&head)) else { return Ok(None) };
    Ok(Some(Top { kind, start: at.saturating_add(front), end: at.saturating_add(size) }))
}
