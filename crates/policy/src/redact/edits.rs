//! Edits: replacements of byte ranges that hide data from readers.

/// The replacement for a range of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fill {
    /// This many zeros.
    Zeros(u64),
    /// This many spaces.
    Spaces(u64),
    /// These bytes: checksums, and recompressed text.
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

/// All edits of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    edits: Vec<Edit>,
    /// Length of the longest edit, which bounds the search for edits that reach into a range.
    longest: u64,
}

impl Edits {
    pub(super) fn add(&mut self, offset: u64, fill: Fill) {
        if fill.len() > 0 {
            self.longest = self.longest.max(fill.len());
            self.edits.push(Edit { offset, fill });
        }
    }

    /// Sorts by offset. The sort is stable, so of two edits at one offset the later one takes precedence.
    pub(super) fn sorted(mut self) -> Self {
        self.edits.sort_by_key(|edit| edit.offset);
        self
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
        let first = self.edits.partition_point(|edit| edit.offset < offset.saturating_sub(self.longest));
        for Edit { offset: at, fill } in self.edits[first..].iter().take_while(|edit| edit.offset < end) {
            let (from, to) = ((*at).max(offset), at.saturating_add(fill.len()).min(end));
            if from >= to {
                continue;
            }
            let room = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            match fill {
                Fill::Zeros(_) => room.fill(0),
                Fill::Spaces(_) => room.fill(b' '),
                Fill::Bytes(bytes) => {
                    let skip = (from - at) as usize;
                    room.copy_from_slice(&bytes[skip..skip + room.len()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_window_sees_the_same() {
        let mut edits = Edits::default();
        edits.add(3, Fill::Zeros(4));
        edits.add(10, Fill::Bytes(Box::from(*b"abc")));
        edits.add(12, Fill::Spaces(30));
        edits.add(2, Fill::Bytes(Box::from(*b"xy")));
        let edits = edits.sorted();
        let mut whole = vec![b'.'; 50];
        edits.apply(0, &mut whole);
        assert_eq!(&whole[..16], b"..x\0\0\0\0...ab    ");
        for offset in 0..50 {
            for length in 0..50 - offset {
                let mut window = vec![b'.'; length];
                edits.apply(offset as u64, &mut window);
                assert_eq!(window, whole[offset..offset + length], "{offset} {length}");
            }
        }
    }
}
