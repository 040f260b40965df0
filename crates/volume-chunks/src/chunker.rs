//! Chunking: splits a file into chunks at fixed or content-defined (FastCDC) boundaries.
//!
//! A file is usually chunked with the method of its previous version, so that unchanged chunks are found again. A chunk has at
//! most 4 MiB, and memory use is bounded by two of them. Chunks of zeros become holes.

use std::io::{self, Read};

use fastcdc::v2020::FastCDC;
use shunt_volume_types::object::{Layout, Segment};

const MIB: usize = 1 << 20;
/// Chunk size in bytes with fixed boundaries.
pub(crate) const FIXED_CHUNK_BYTES: usize = 4 * MIB;
/// Files larger than this have fixed boundaries from the beginning.
pub(crate) const MAX_CONTENT_DEFINED_BYTES: u64 = 64 << 20;
/// Minimum, average and maximum length of content-defined chunks: even numbers, as FastCDC 2020 tests two bytes at a time.
const CONTENT_DEFINED_CHUNK_BYTES: (usize, usize, usize) = (256 << 10, 1 << 20, 4 << 20);
/// Maximum length of a chunk.
pub(super) const MAX_CHUNK_BYTES: usize = FIXED_CHUNK_BYTES;

/// The method that determines chunk boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunking {
    /// By content: an insertion or removal moves no later boundary. For files that are rewritten as a whole.
    ContentDefined,
    /// Every 4 MiB: a write changes only the chunks it touches. For large files, and files with random writes.
    Fixed,
}

impl Chunking {
    /// Chooses the method for a file of `size` bytes: that of its previous version, so that unchanged chunks are found again;
    /// else by size.
    pub fn choose(size: u64, previous: Option<&[Segment]>) -> Self {
        let fixed = |segments: &[Segment]| {
            segments.len() > 1
                && segments[..segments.len() - 1]
                    .iter()
                    .all(|segment| segment.length().is_multiple_of(FIXED_CHUNK_BYTES as u64))
        };
        match previous {
            Some(segments) if fixed(segments) => Self::Fixed,
            Some(segments) if segments.len() > 1 && size <= 4 * MAX_CONTENT_DEFINED_BYTES => {
                Self::ContentDefined
            }
            _ if size > MAX_CONTENT_DEFINED_BYTES => Self::Fixed,
            _ => Self::ContentDefined,
        }
    }
}

/// Iterates over the chunks of a byte stream.
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
        // Small files need no large buffer; one byte more, to detect the end of the file with one read.
        let room = (size.saturating_add(1)).min(2 * MAX_CHUNK_BYTES as u64) as usize;
        Self { source, cutting, buffer: vec![0; room.max(4096)], start: 0, end: 0, is_over: false }
    }

    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.fill()?;
        let ahead = &self.buffer[self.start..self.end];
        let length = match self.cutting {
            Chunking::Fixed => ahead.len().min(FIXED_CHUNK_BYTES),
            Chunking::ContentDefined => {
                let (min, average, max) = CONTENT_DEFINED_CHUNK_BYTES;
                FastCDC::new(ahead, min, average, max).next().map_or(ahead.len(), |chunk| chunk.length)
            }
        };
        if length == 0 {
            return Ok(None);
        }
        let from = self.start;
        self.start += length;
        Ok(Some(&self.buffer[from..from + length]))
    }

    /// Fills the buffer with at least the longest chunk, or all that is left.
    fn fill(&mut self) -> io::Result<()> {
        while !self.is_over && self.end - self.start < MAX_CHUNK_BYTES {
            if self.end == self.buffer.len() && self.start == 0 {
                // The file is longer than `size`.
                self.buffer.resize(2 * MAX_CHUNK_BYTES, 0);
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

/// Reports whether all bytes are zero: such a chunk becomes a hole.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // The first is zero, and each equals its predecessor: one `memcmp`.
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

/// Appends a segment; adjacent holes are merged.
pub(super) fn push_merged(segments: &mut Vec<Segment>, segment: Segment) {
    match (segments.last_mut(), segment) {
        (Some(Segment::Hole { length }), Segment::Hole { length: more }) => *length += more,
        _ => segments.push(segment),
    }
}

/// Returns the segments stored in the metadata.
pub(super) fn direct(layout: &Layout) -> &[Segment] {
    match layout {
        Layout::Direct(segments) => segments,
        Layout::Inline(_) | Layout::Indirect(_) => &[],
    }
}

#[cfg(test)]
mod golden;

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
            let segments = cut(&bytes, bytes.len() as u64, cutting);
            assert_eq!(segments.concat(), bytes);
            assert!(segments.iter().all(|segment| segment.len() <= MAX_CHUNK_BYTES));
            for announced_size in [0, 5, u64::MAX] {
                assert_eq!(cut(&bytes, announced_size, cutting), segments, "{announced_size}");
            }
        }
        assert_eq!(cut(&bytes, 0, Chunking::Fixed).iter().map(Vec::len).max(), Some(FIXED_CHUNK_BYTES));
        assert!(cut(b"", 0, Chunking::ContentDefined).is_empty());
        assert_eq!(cut(b"a", 1, Chunking::ContentDefined), [b"a"]);
    }

    #[test]
    fn insertion_keeps_later_chunk_boundaries() {
        let bytes = noise(16 * MIB);
        let longer = [&bytes[..MIB], b"inserted", &bytes[MIB..]].concat();
        let (before, after) =
            (cut(&bytes, 0, Chunking::ContentDefined), cut(&longer, 0, Chunking::ContentDefined));
        let new = after.iter().filter(|segment| !before.contains(segment)).count();
        assert!(before.len() > 6 && new <= 2, "{new} of {} chunks are new", after.len());
    }

    #[test]
    fn zeros_are_told() {
        assert!(is_zero(&[0; 100]) && is_zero(&[0]));
        assert!(!is_zero(&[]) && !is_zero(&[1; 100]) && !is_zero(&[&[0; 99][..], &[1]].concat()));
    }

    #[test]
    fn a_file_is_cut_as_before() {
        let segments =
            |lengths: &[u64]| lengths.iter().map(|&length| Segment::Hole { length }).collect::<Vec<_>>();
        let fixed = segments(&[FIXED_CHUNK_BYTES as u64, 5]);
        let defined = segments(&[FIXED_CHUNK_BYTES as u64 + 1, 5]);
        assert_eq!(Chunking::choose(10, Some(&fixed)), Chunking::Fixed);
        assert_eq!(Chunking::choose(MAX_CONTENT_DEFINED_BYTES + 1, Some(&defined)), Chunking::ContentDefined);
        assert_eq!(Chunking::choose(u64::MAX, Some(&defined)), Chunking::Fixed);
        assert_eq!(Chunking::choose(MAX_CONTENT_DEFINED_BYTES + 1, None), Chunking::Fixed);
        assert_eq!(Chunking::choose(MAX_CONTENT_DEFINED_BYTES, None), Chunking::ContentDefined);
    }
}
