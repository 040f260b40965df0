//! Metadata that is scattered over several ranges of a file.

use std::ops::Range;

use super::bytes::Reader;
use super::edits::{Edits, Fill};
use super::{RedactError, iptc, tiff, xmp};

/// A range of data to blank, with the fill byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blank {
    pub(super) range: Range<usize>,
    pub(super) with: u8,
}

impl Blank {
    pub(super) fn zeros(range: Range<usize>) -> Self {
        Self { range, with: 0 }
    }

    pub(super) fn spaces(range: Range<usize>) -> Self {
        Self { range, with: b' ' }
    }

    /// Shifts the range by an offset.
    pub(super) fn shifted(self, by: usize) -> Self {
        Self { range: self.range.start + by..self.range.end + by, ..self }
    }
}

/// Blanks ranges of data.
pub(super) fn blank(data: &mut [u8], blanks: &[Blank]) {
    for Blank { range, with } in blanks {
        if let Some(part) = data.get_mut(range.clone()) {
            part.fill(*with);
        }
    }
}

/// The format of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Exif,
    Xmp,
    Iptc,
    Photoshop,
    /// Photoshop resources within EXIF, in which EXIF is not searched for again.
    PhotoshopInExif,
    /// Text that only names a place.
    Place,
}

impl Kind {
    /// Returns the ranges to blank in data of this format.
    pub(super) fn blanks(self, data: &[u8]) -> Vec<Blank> {
        match self {
            Self::Exif => tiff::blanks(data),
            Self::Xmp => xmp::blanks(data),
            Self::Iptc => iptc::blanks(data),
            Self::Photoshop => iptc::photoshop(data, true),
            Self::PhotoshopInExif => iptc::photoshop(data, false),
            Self::Place => vec![Blank::spaces(0..data.len())],
        }
    }
}

/// Concatenated data, with the file offset of each piece.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) data: Vec<u8>,
    /// Start of each piece in the data and in the file.
    places: Vec<(usize, u64)>,
}

impl Pieces {
    /// Creates data of a single piece.
    pub(super) fn one(offset: u64, data: Vec<u8>) -> Self {
        Self { data, places: vec![(0, offset)] }
    }

    pub(super) fn push(&mut self, offset: u64, data: &[u8]) {
        self.places.push((self.data.len(), offset));
        self.data.extend_from_slice(data);
    }

    /// Reads a range of the file and appends it.
    pub(super) fn read(
        &mut self,
        reader: &mut Reader<'_>,
        offset: u64,
        length: usize,
    ) -> Result<(), RedactError> {
        let data = reader.read(offset, length)?;
        self.push(offset, &data);
        Ok(())
    }

    /// Converts ranges of the data into edits of the file.
    pub(super) fn note(&self, blanks: Vec<Blank>, edits: &mut Edits) {
        for Blank { range, with } in blanks {
            let first = self.places.partition_point(|place| place.0 <= range.start).saturating_sub(1);
            let reached = self.places.iter().enumerate().skip(first);
            for (index, (start, offset)) in reached.take_while(|(_, place)| place.0 < range.end) {
                let end = self.places.get(index + 1).map_or(self.data.len(), |next| next.0);
                let (from, to) = (range.start.max(*start), range.end.min(end));
                if from < to {
                    let length = (to - from) as u64;
                    let fill = if with == 0 { Fill::Zeros(length) } else { Fill::Spaces(length) };
                    edits.add(offset.saturating_add((from - start) as u64), fill);
                }
            }
        }
    }
}
