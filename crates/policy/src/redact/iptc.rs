//! IPTC records, alone or among Photoshop image resources.

use super::bytes::{be16, be32};
use super::pieces::{Blank, Kind};

/// Data sets of the application record that name a place: content location code and name, city, sublocation, province,
/// country code, country.
const PLACES: [u8; 7] = [26, 27, 90, 92, 95, 100, 101];

/// Returns the ranges that reveal a place.
pub(super) fn blanks(data: &[u8]) -> Vec<Blank> {
    let mut blanks = Vec::new();
    let mut at = 0;
    while let Some([0x1c, record, set, rest @ ..]) = data.get(at..) {
        let Some(length) = be16(rest, 0) else { break };
        let (start, length) = match length {
            // Extended data set: the field holds the length of the length.
            long if long & 0x8000 != 0 => {
                let digits = usize::from(long & 0x7fff);
                let Some(number) = rest.get(2..2 + digits).filter(|_| (1..=4).contains(&digits)) else {
                    blanks.push(Blank::spaces(at..data.len()));
                    break;
                };
                (at + 5 + digits, number.iter().fold(0, |n, digit| n << 8 | usize::from(*digit)))
            }
            short => (at + 5, usize::from(short)),
        };
        let end = start.saturating_add(length).min(data.len());
        if *record == 2 && PLACES.contains(set) {
            blanks.push(Blank::spaces(start..end));
        }
        at = end;
    }
    blanks
}

/// Returns the ranges that reveal a place in a list of Photoshop resources.
pub(super) fn photoshop(data: &[u8], exif: bool) -> Vec<Blank> {
    let mut blanks = Vec::new();
    let mut at = 0;
    while data.get(at..at + 4) == Some(b"8BIM") {
        let (Some(id), Some(name)) = (be16(data, at + 4), data.get(at + 6)) else { break };
        // A name with a length byte, padded to an even size.
        let size_at = at + 6 + (usize::from(*name) + 2) / 2 * 2;
        let Some(size) = be32(data, size_at) else { break };
        let start = size_at + 4;
        let end = start.saturating_add(size as usize).min(data.len());
        let kind = match id {
            0x0404 => Some(Kind::Iptc),
            0x0422 | 0x0423 if exif => Some(Kind::Exif),
            0x0424 => Some(Kind::Xmp),
            _ => None,
        };
        if let (Some(kind), Some(resource)) = (kind, data.get(start..end)) {
            blanks.extend(kind.blanks(resource).into_iter().map(|blank| blank.shifted(start)));
        }
        at = end + (size & 1) as usize;
    }
    blanks
}
