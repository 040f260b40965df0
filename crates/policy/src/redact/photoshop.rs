//! Photoshop image resources, among which are IPTC records, EXIF and XMP metadata.

use super::blank::Blank;
use super::bytes::{be16, be32};
use super::{iptc, xmp};

/// Returns the ranges that reveal a location; `exif` returns those of a resource with EXIF metadata.
pub(super) fn blanks(data: &[u8], exif: fn(&[u8]) -> Vec<Blank>) -> Vec<Blank> {
    let mut blanks = Vec::new();
    let mut at = 0;
    while data.get(at..at + 4) == Some(b"8BIM") {
        let (Some(id), Some(name)) = (be16(data, at + 4), data.get(at + 6)) else { break };
        // A name with a length byte, padded to an even size.
        let size_at = at + 6 + (usize::from(*name) + 2) / 2 * 2;
        let Some(size) = be32(data, size_at) else { break };
        let start = size_at + 4;
        let end = start.saturating_add(size as usize).min(data.len());
        let resource = data.get(start..end).unwrap_or_default();
        let found = match id {
            0x0404 => iptc::blanks(resource),
            0x0422 | 0x0423 => exif(resource),
            0x0424 => xmp::blanks(resource),
            _ => Vec::new(),
        };
        blanks.extend(found.into_iter().map(|blank| blank.shifted(start)));
        at = end + (size & 1) as usize;
    }
    blanks
}
