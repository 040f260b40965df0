//! IPTC records: data sets, each with the numbers of its record and of its set.

use super::blank::Blank;
use super::bytes::be16;

/// Data sets of the application record that name a location: content location code and name, city, sublocation, province,
/// country code, country.
const LOCATION_DATASETS: [u8; 7] = [26, 27, 90, 92, 95, 100, 101];

/// Returns the ranges that reveal a location.
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
        if *record == 2 && LOCATION_DATASETS.contains(set) {
            blanks.push(Blank::spaces(start..end));
        }
        at = end;
    }
    blanks
}
