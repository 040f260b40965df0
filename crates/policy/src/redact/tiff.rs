//! EXIF metadata, which is a tree of TIFF directories.
//!
//! A GPS directory is replaced by one without entries, and the values that its entries pointed to are blanked.

use std::collections::BTreeSet;

use super::blank::Blank;
use super::{iptc, photoshop, xmp};

const GPS: u16 = 0x8825;
const EXIF: u16 = 0x8769;
const INTEROPERABILITY: u16 = 0xa005;
const SUB: u16 = 0x014a;
const XMP: u16 = 0x02bc;
const IPTC: u16 = 0x83bb;
const PHOTOSHOP: u16 = 0x8649;

/// Limit on the directories of one file. Camera files have about five.
const MAX_DIRECTORIES: usize = 256;
/// Limit on the bytes and entries processed, counting repetitions.
const MAX_WORK_BYTES: usize = 32 << 20;
/// Cost of an entry in work units: it may leave a blank.
const ENTRY_COST_BYTES: usize = 256;

struct Tiff<'a> {
    data: &'a [u8],
    little: bool,
    blanks: Vec<Blank>,
    seen: BTreeSet<usize>,
    /// Work units left.
    work: usize,
}

/// Data that no reader could parse: it is blanked as a whole.
struct Malformed;

impl Tiff<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = *self.data.get(at..)?.first_chunk()?;
        Some(if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = *self.data.get(at..)?.first_chunk()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// Returns the entries of a directory, each with its tag and offset, and the end of the entries.
    fn entries(&self, at: usize) -> Option<(Vec<(u16, usize)>, usize)> {
        let count = usize::from(self.u16(at)?);
        let room = (self.data.len() - at - 2) / 12;
        let entries =
            (0..count.min(room)).filter_map(|n| Some((self.u16(at + 2 + 12 * n)?, at + 2 + 12 * n)));
        Some((entries.collect(), at + 2 + 12 * count.min(room)))
    }

    /// Returns the range of an entry's value.
    fn value(&self, entry: usize) -> Option<std::ops::Range<usize>> {
        let size = match self.u16(entry + 2)? {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 => 8,
            // Unknown type: assume the largest size.
            _ => 8,
        };
        let length = size * u64::from(self.u32(entry + 4)?);
        let start = if length <= 4 { entry + 8 } else { self.u32(entry + 8)? as usize };
        let end = (start as u64).saturating_add(length).min(self.data.len() as u64) as usize;
        (start < end).then_some(start..end)
    }

    fn directory(&mut self, at: usize, depth: usize) -> Result<(), Malformed> {
        let mut next = at;
        // A chain of directories, as for a picture and its thumbnail.
        while next != 0 {
            if !self.seen.insert(next) {
                return Ok(());
            }
            if self.seen.len() > MAX_DIRECTORIES || depth > 8 {
                return Err(Malformed);
            }
            // A directory beyond the end of the data does not exist.
            let Some((entries, end)) = self.entries(next) else { return Ok(()) };
            self.work(entries.len() * ENTRY_COST_BYTES)?;
            for (tag, entry) in entries {
                match tag {
                    GPS => self.gps(entry)?,
                    EXIF | INTEROPERABILITY | SUB => {
                        for pointer in self.pointers(entry) {
                            self.directory(pointer, depth + 1)?;
                        }
                    }
                    XMP => self.inner(entry, xmp::blanks)?,
                    IPTC => self.inner(entry, iptc::blanks)?,
                    // EXIF within EXIF is not searched.
                    PHOTOSHOP => self.inner(entry, |data| photoshop::blanks(data, |_| Vec::new()))?,
                    _ => {}
                }
            }
            next = self.u32(end).unwrap_or(0) as usize;
        }
        Ok(())
    }

    /// Returns the pointers in an entry. Writers often set a wrong type, so the value is read as a pointer for every
    /// type.
    fn pointers(&self, entry: usize) -> Vec<usize> {
        let count = self.u32(entry + 4).unwrap_or(0);
        let range = if count > 1 { self.value(entry) } else { Some(entry + 8..entry + 12) };
        let offsets = range.into_iter().flat_map(|range| range.step_by(4)).take(MAX_DIRECTORIES);
        offsets.filter_map(|at| self.u32(at)).map(|pointer| pointer as usize).collect()
    }

    fn gps(&mut self, entry: usize) -> Result<(), Malformed> {
        for at in self.pointers(entry) {
            if at < 8 {
                return Err(Malformed);
            }
            let Some((entries, end)) = self.entries(at) else { continue };
            self.work((entries.len() + 1) * ENTRY_COST_BYTES)?;
            for (_, entry) in entries {
                if let Some(value) = self.value(entry) {
                    self.blanks.push(Blank::zeros(value));
                }
            }
            // The pointer to the next directory is blanked as well.
            self.blanks.push(Blank::zeros(at..(end + 4).min(self.data.len())));
        }
        Ok(())
    }

    fn inner(&mut self, entry: usize, find: fn(&[u8]) -> Vec<Blank>) -> Result<(), Malformed> {
        if let Some(value) = self.value(entry) {
            self.work(value.len())?;
            let blanks = find(&self.data[value.clone()]);
            self.blanks.extend(blanks.into_iter().map(|blank| blank.shifted(value.start)));
        }
        Ok(())
    }

    /// Counts work, because many entries may point to the same data.
    fn work(&mut self, amount: usize) -> Result<(), Malformed> {
        self.work = self.work.checked_sub(amount).ok_or(Malformed)?;
        Ok(())
    }
}

/// Returns the ranges that reveal a range.
pub(super) fn blanks(data: &[u8]) -> Vec<Blank> {
    let whole = vec![Blank::zeros(0..data.len())];
    let little = match data.get(..2) {
        Some(b"II") => true,
        Some(b"MM") => false,
        _ => return whole,
    };
    let mut tiff = Tiff { data, little, blanks: Vec::new(), seen: BTreeSet::new(), work: MAX_WORK_BYTES };
    let Some(first) = tiff.u32(4) else { return whole };
    match tiff.directory(first as usize, 0) {
        Ok(()) => tiff.blanks,
        Err(Malformed) => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::blank::blank;

    /// Builds metadata with a camera model and a GPS directory that holds one latitude.
    fn sample(little: bool) -> Vec<u8> {
        let n16 = |n: u16| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let n32 = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let mut data = if little { b"II".to_vec() } else { b"MM".to_vec() };
        data.extend(n16(42));
        data.extend(n32(8));
        data.extend(n16(2));
        for (tag, kind, count, value) in [(0x0110, 2, 4, 0x4142_4344), (GPS, 4, 1, 38)] {
            data.extend(n16(tag));
            data.extend(n16(kind));
            data.extend(n32(count));
            data.extend(n32(value));
        }
        data.extend(n32(0));
        assert_eq!(data.len(), 38);
        data.extend(n16(1));
        data.extend(n16(2));
        data.extend(n16(5));
        data.extend(n32(3));
        data.extend(n32(56));
        data.extend(n32(0));
        assert_eq!(data.len(), 56);
        data.extend([7; 24]);
        data.extend(b"after");
        data
    }

    #[test]
    fn the_gps_directory_goes_and_nothing_else() {
        for little in [true, false] {
            let data = sample(little);
            let mut seen = data.clone();
            blank(&mut seen, &blanks(&data));
            assert_eq!(seen[..38], data[..38]);
            assert_eq!(seen[38..80], [0; 42]);
            assert_eq!(&seen[80..], b"after");
        }
    }

    #[test]
    fn directories_in_a_ring_end() {
        let mut data = sample(true);
        data[34..38].copy_from_slice(&8u32.to_le_bytes());
        assert!(!blanks(&data).is_empty());
    }

    #[test]
    fn data_that_is_not_exif_is_blanked_completely() {
        assert_eq!(blanks(b"hello"), [Blank::zeros(0..5)]);
        assert_eq!(blanks(b""), [Blank::zeros(0..0)]);
    }
}
