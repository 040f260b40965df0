//! Data that lies in a file in several stretches.

use std::ops::Range;

use super::bytes::Reader;
use super::edits::{Edits, Fill};
use super::{RedactError, iptc, tiff, xmp};

/// A stretch of data to be blanked, and with what.
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

    /// Of data that lies further on.
    pub(super) fn shifted(self, by: usize) -> Self {
        Self { range: self.range.start + by..self.range.end + by, ..self }
    }
}

/// Writes blanks into data.
pub(super) fn blank(data: &mut [u8], blanks: &[Blank]) {
    for Blank { range, with } in blanks {
        if let Some(part) = data.get_mut(range.clone()) {
            part.fill(*with);
        }
    }
}

/// What data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Exif,
    Xmp,
    Iptc,
    Photoshop,
    /// Within EXIF, which is not looked for in it again.
    PhotoshopInExif,
    /// Nothing but a place.
    Place,
}

impl Kind {
    /// What is to be blanked of data.
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

/// Data, and where in the file it lies.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) data: Vec<u8>,
    /// Where each piece begins in the data and in the file.
    offsets: Vec<(usize, u64)>,
}

impl Pieces {
    /// Data that lies in one stretch.
    pub(super) fn one(offset: u64, data: Vec<u8>) -> Self {
        Self { data, offsets: vec![(0, offset)] }
    }

    pub(super) fn push(&mut self, offset: u64, data: &[u8]) {
        self.offsets.push((self.data.len(), offset));
        self.data.extend_from_slice(data);
    }

    /// Reads a stretch and adds it.
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

    /// Notes blanks for the file.
    pub(super) fn record(&self, blanks: Vec<Blank>, edits: &mut Edits) {
        for Blank { range, with } in blanks {
            let first = self.offsets.partition_point(|place| place.0 <= range.start).saturating_sub(1);
            let reached = self.offsets.iter().enumerate().skip(first);
            for (index, (start, offset)) in reached.take_while(|(_, place)| place.0 < range.end) {
                let end = self.offsets.get(index + 1).map_or(self.data.len(), |next| next.0);
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
