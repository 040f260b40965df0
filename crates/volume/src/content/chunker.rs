//! Where a file is cut into pieces.

use std::io::{self, Read};

use fastcdc::v2020::FastCDC;

use crate::object::{Layout, Segment};

const MIB: usize = 1 << 20;
/// Pieces of files that are cut at fixed places.
pub const FIXED: usize = 4 * MIB;
/// Files of more bytes are cut at fixed places from the beginning.
pub const MAX_CONTENT_DEFINED_BYTES: u64 = 64 << 20;
/// The shortest, usual and longest piece where the content says where to cut.
const DEFINED: (u32, u32, u32) = (256 << 10, 1 << 20, 4 << 20);
/// No piece is longer.
pub(super) const LONGEST: usize = FIXED;

/// How places to cut at are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunking {
    /// By the content: what is inserted or removed moves no later cut. For files that are written anew as a whole.
    ContentDefined,
    /// Every 4 MiB: what is written somewhere changes one piece. For large files, and files that are written at random.
    Fixed,
}

impl Chunking {
    /// For a file of so many bytes: as it was cut before, so that pieces are found again; or by its size.
    pub fn choose(size: u64, previous: Option<&[Segment]>) -> Self {
        let fixed = |pieces: &[Segment]| {
            pieces.len() > 1
                && pieces[..pieces.len() - 1].iter().all(|piece| piece.length().is_multiple_of(FIXED as u64))
        };
        match previous {
            Some(pieces) if fixed(pieces) => Self::Fixed,
            Some(pieces) if pieces.len() > 1 && size <= 4 * MAX_CONTENT_DEFINED_BYTES => Self::ContentDefined,
            _ if size > MAX_CONTENT_DEFINED_BYTES => Self::Fixed,
            _ => Self::ContentDefined,
        }
    }
}

/// Gives one piece after the other of what is read.
pub(super) struct Chunker<R> {
    source: R,
    cutting: Chunking,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_over: bool,
}

impl<R: Read> Chunker<R> {
    pub fn new(source: R, size: u64, cutting: Chunking) -> Self {
        // Small files need no large buffer; one byte more, to see their end at once.
        let room = (size.saturating_add(1)).min(2 * LONGEST as u64) as usize;
        Self { source, cutting, buffer: vec![0; room.max(4096)], start: 0, end: 0, is_over: false }
    }

    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.fill()?;
        let ahead = &self.buffer[self.start..self.end];
        let length = match self.cutting {
            Chunking::Fixed => ahead.len().min(FIXED),
            Chunking::ContentDefined => {
                let (least, usual, most) = DEFINED;
                FastCDC::new(ahead, least, usual, most).next().map_or(ahead.len(), |chunk| chunk.length)
            }
        };
        if length == 0 {
            return Ok(None);
        }
        let from = self.start;
        self.start += length;
        Ok(Some(&self.buffer[from..from + length]))
    }

    /// At least the longest piece is in the buffer, or all that is left.
    fn fill(&mut self) -> io::Result<()> {
        while !self.is_over && self.end - self.start < LONGEST {
            if self.end == self.buffer.len() && self.start == 0 {
                // The file is longer than was said.
                self.buffer.resize(2 * LONGEST, 0);
            } else if self.end == self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether all bytes are zero: such a piece is stored nowhere.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // The first is, and each is as the one before it: one comparison of memory.
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

/// Appends a piece; holes that meet become one.
pub(super) fn push(pieces: &mut Vec<Segment>, piece: Segment) {
    match (pieces.last_mut(), piece) {
        (Some(Segment::Hole { length }), Segment::Hole { length: more }) => *length += more,
        _ => pieces.push(piece),
    }
}

/// The pieces that are with the metadata.
pub(super) fn direct(layout: &Layout) -> &[Segment] {
    match layout {
        Layout::Pieces(pieces) => pieces,
        Layout::Inline(_) | Layout::Indirect(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8], size: u64, cutting: Chunking) -> Vec<Vec<u8>> {
        let mut cutter = Chunker::new(bytes, size, cutting);
        std::iter::from_fn(|| cutter.next().unwrap().map(<[u8]>::to_vec)).collect()
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn pieces_are_the_file_whatever_size_was_said() {
        let bytes = noise(11 * MIB + 7);
        for cutting in [Chunking::ContentDefined, Chunking::Fixed] {
            let pieces = cut(&bytes, bytes.len() as u64, cutting);
            assert_eq!(pieces.concat(), bytes);
            assert!(pieces.iter().all(|piece| piece.len() <= LONGEST));
            for said in [0, 5, u64::MAX] {
                assert_eq!(cut(&bytes, said, cutting), pieces, "{said}");
            }
        }
        assert_eq!(cut(&bytes, 0, Chunking::Fixed).iter().map(Vec::len).max(), Some(FIXED));
        assert!(cut(b"", 0, Chunking::ContentDefined).is_empty());
        assert_eq!(cut(b"a", 1, Chunking::ContentDefined), [b"a"]);
    }

    #[test]
    fn what_is_inserted_moves_no_later_cut() {
        let bytes = noise(16 * MIB);
        let longer = [&bytes[..MIB], b"inserted", &bytes[MIB..]].concat();
        let (before, after) =
            (cut(&bytes, 0, Chunking::ContentDefined), cut(&longer, 0, Chunking::ContentDefined));
        let new = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!(before.len() > 6 && new <= 2, "{new} of {} pieces are new", after.len());
    }

    #[test]
    fn zeros_are_told() {
        assert!(is_zero(&[0; 100]) && is_zero(&[0]));
        assert!(!is_zero(&[]) && !is_zero(&[1; 100]) && !is_zero(&[&[0; 99][..], &[1]].concat()));
    }

    #[test]
    fn a_file_is_cut_as_before() {
        let pieces =
            |lengths: &[u64]| lengths.iter().map(|&length| Segment::Hole { length }).collect::<Vec<_>>();
        let fixed = pieces(&[FIXED as u64, 5]);
        let defined = pieces(&[FIXED as u64 + 1, 5]);
        assert_eq!(Chunking::choose(10, Some(&fixed)), Chunking::Fixed);
        assert_eq!(Chunking::choose(MAX_CONTENT_DEFINED_BYTES + 1, Some(&defined)), Chunking::ContentDefined);
        assert_eq!(Chunking::choose(u64::MAX, Some(&defined)), Chunking::Fixed);
        assert_eq!(Chunking::choose(MAX_CONTENT_DEFINED_BYTES + 1, None), Chunking::Fixed);
        assert_eq!(Chunking::choose(MAX_CONTENT_DEFINED_BYTES, None), Chunking::ContentDefined);
    }
}
