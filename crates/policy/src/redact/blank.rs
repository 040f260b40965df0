//! Ranges of metadata in memory to overwrite with zeros or spaces.

use std::ops::Range;

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

/// Blanks ranges of data. Zeros take precedence over spaces, as in the edits of a file: checksums of the data fit these.
pub(super) fn blank(data: &mut [u8], blanks: &[Blank]) {
    for fill in [b' ', 0] {
        for Blank { range, .. } in blanks.iter().filter(|blank| blank.with == fill) {
            if let Some(part) = data.get_mut(range.clone()) {
                part.fill(fill);
            }
        }
    }
}
