//! IPTC: records of text, alone or among the resources of Photoshop.

use super::bytes::{be16, be32};
use super::pieces::{Blank, Kind};

/// Data sets of the application record that name a place: content location code and name, city, sublocation, province,
/// country code, country.
const LOCATION_DATASETS: [u8; 7] = [26, 27, 90, 92, 95, 100, 101];

/// What tells a place.
pub(super) fn blanks(data: &[u8]) -> Vec<Blank> {
    let mut blanks = Vec::new();
    let mut at = 0;
    while let Some([0x1c, record, set, rest @ ..]) = data.get(at..) {
        let Some(length) = be16(rest, 0) else { break };
        let (start, length) = match length {
            // Longer data: the length of the length.
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
        if *record == 2 && LOCATION_DATASETS.contains(set) {
            blanks.push(Blank::spaces(start..end));
        }
        at = end;
    }
    blanks
}

/// What tells a place in a list of Photoshop's resources.
pub(super) fn photoshop(data: &[u8], exif: bool) -> Vec<Blank> {
    let mut blanks = Vec::new();
    let mut at = 0;
    while data.get(at..at + 4) == Some(b"8BIM") {
        let (Some(id), Some(name)) = (be16(data, at + 4), data.get(at + 6)) else { break };
        // A name with its length in front, of an even number of bytes.
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
