//! Edits: replacements of byte ranges that hide data from readers. The edits of a file are disjoint, so that every byte
//! reads the same whatever range a reader asks for.

/// The replacement for a range of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fill {
    /// This many zeros.
    Zeros(u64),
    /// This many spaces.
    Spaces(u64),
    /// These bytes: checksums, box types, and redacted text.
    Bytes(Box<[u8]>),
}

impl Fill {
    fn len(&self) -> u64 {
        match self {
            Self::Zeros(length) | Self::Spaces(length) => *length,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// A range of a file and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Offset of the range.
    pub offset: u64,
    /// Its replacement.
    pub fill: Fill,
}

impl Edit {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.fill.len())
    }
}

/// All edits of a file, sorted and disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    edits: Vec<Edit>,
}

impl Edits {
    /// Appends an edit that begins at or after the end of the last one. Zeros and spaces extend a last edit of the same
    /// fill that ends where they begin.
    pub(super) fn append(&mut self, offset: u64, fill: Fill) {
        if let Some(last) = self.edits.last_mut() {
            debug_assert!(last.end() <= offset);
            let is_adjacent = last.end() == offset;
            match (&mut last.fill, &fill) {
                (Fill::Zeros(length), Fill::Zeros(more)) | (Fill::Spaces(length), Fill::Spaces(more))
                    if is_adjacent =>
                {
                    *length += more;
                    return;
                }
                _ => {}
            }
        }
        self.edits.push(Edit { offset, fill });
    }

    /// Reports whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Iterates over the edits in order.
    pub fn iter(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter()
    }

    /// Applies the edits to bytes that were read from `offset` on.
    pub fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        let first = self.edits.partition_point(|edit| edit.end() <= offset);
        for edit in self.edits[first..].iter().take_while(|edit| edit.offset < end) {
            let (from, to) = (edit.offset.max(offset), edit.end().min(end));
            let room = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            match &edit.fill {
                Fill::Zeros(_) => room.fill(0),
                Fill::Spaces(_) => room.fill(b' '),
                Fill::Bytes(bytes) => {
                    let skip = (from - edit.offset) as usize;
                    room.copy_from_slice(&bytes[skip..skip + room.len()]);
                }
            }
        }
    }
}
