//! Metadata that is scattered over several ranges of a file.

use super::RedactError;
use super::blank::Blank;
use super::bytes::Reader;
use super::edits_builder::EditsBuilder;

/// Concatenated data, with the file offset of each piece.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) data: Vec<u8>,
    /// Start of each piece in the data and in the file.
    offsets: Vec<(usize, u64)>,
}

impl Pieces {
    /// Creates data of a single piece.
    pub(super) fn one(offset: u64, data: Vec<u8>) -> Self {
        Self { data, offsets: vec![(0, offset)] }
    }

    pub(super) fn push(&mut self, offset: u64, data: &[u8]) {
        self.offsets.push((self.data.len(), offset));
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
    pub(super) fn record(&self, blanks: Vec<Blank>, edits: &mut EditsBuilder) {
        for Blank { range, with } in blanks {
            let first = self.offsets.partition_point(|entry| entry.0 <= range.start).saturating_sub(1);
            let reached = self.offsets.iter().enumerate().skip(first);
            for (index, (start, offset)) in reached.take_while(|(_, entry)| entry.0 < range.end) {
                let end = self.offsets.get(index + 1).map_or(self.data.len(), |next| next.0);
                let (from, to) = (range.start.max(*start), range.end.min(end));
                if from < to {
                    let at = offset.saturating_add((from - start) as u64);
                    let range = at..at.saturating_add((to - from) as u64);
                    if with == 0 { edits.zeros(range) } else { edits.spaces(range) }
                }
            }
        }
    }
}
