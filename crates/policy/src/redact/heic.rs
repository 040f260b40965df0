//! HEIC and AVIF: metadata are items, whose extents the `iloc` box lists.

use super::RedactError;
use super::behind;
use super::blank::Blank;
use super::boxes::{self, Part, Top, parts};
use super::bytes::{Reader, be32};
use super::edits_builder::EditsBuilder;
use super::metadata::Kind;
use super::pieces::Pieces;

/// Limit in bytes on the `meta` box, and on one item.
const MAX_BOX_BYTES: u64 = 16 << 20;
/// Size of the optional header of EXIF data: `Exif` and two zeros.
const EXIF_HEADER_BYTES: usize = 6;

/// A reader for consecutive numbers.
struct Numbers<'a> {
    data: &'a [u8],
    at: usize,
}

impl Numbers<'_> {
    /// Reads a big-endian number of this many bytes; 0 bytes give 0.
    fn take(&mut self, bytes: usize) -> Option<u64> {
        let number = self.data.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        Some(number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// Records the location metadata of a file.
pub(super) fn location(reader: &mut Reader<'_>, edits: &mut EditsBuilder) -> Result<(), RedactError> {
    let mut at = 0;
    for _ in 0..boxes::MAX_BOXES {
        let Some(Top { kind, start, end }) = boxes::top(reader, at)? else {
            // The file's own `ftyp` box is the first, so the search starts after it.
            return behind::location(reader, 8, edits).map(drop);
        };
        if kind == *b"meta" {
            if end - start > MAX_BOX_BYTES {
                return Err(RedactError::TooComplex);
            }
            let data = reader.read(start, (end - start) as usize)?;
            meta(reader, start, &data, edits)?;
        }
        at = end;
    }
    Err(RedactError::TooComplex)
}

/// Processes the `meta` box. `base` is the file offset of its contents.
fn meta(
    reader: &mut Reader<'_>,
    base: u64,
    data: &[u8],
    edits: &mut EditsBuilder,
) -> Result<(), RedactError> {
    // Version and flags come first.
    let parts = parts(data, 4, data.len());
    let find = |kind: &[u8; 4]| parts.iter().find(|part| part.kind == *kind);
    let (Some(info), Some(locations)) = (find(b"iinf"), find(b"iloc")) else { return Ok(()) };
    let items = items(data, info);
    let idat = find(b"idat").map(|part| base + part.start as u64);
    for (id, extents) in extents(data, locations, idat).ok_or(RedactError::TooComplex)? {
        let Some((_, kind)) = items.iter().find(|(item, _)| *item == id) else { continue };
        let mut pieces = Pieces::default();
        for (offset, length) in extents {
            if length > MAX_BOX_BYTES {
                return Err(RedactError::TooComplex);
            }
            pieces.read(reader, offset, length as usize)?;
        }
        pieces.record(blanks(*kind, &pieces.data), edits);
    }
    Ok(())
}

fn blanks(kind: Kind, data: &[u8]) -> Vec<Blank> {
    if kind != Kind::Exif {
        return kind.blanks(data);
    }
    // The data begins with the offset of the directories: after a name of six bytes, or immediately. With any other
    // offset the data is blanked as a whole: it is empty, or more tolerant readers find directories before that offset.
    let start = be32(data, 0)
        .map(|skip| skip as usize)
        .filter(|skip| *skip <= EXIF_HEADER_BYTES)
        .map(|skip| skip + 4);
    let Some((start, directories)) = start.and_then(|start| Some((start, data.get(start..)?))) else {
        return vec![Blank::zeros(0..data.len())];
    };
    Kind::Exif.blanks(directories).into_iter().map(|blank| blank.shifted(start)).collect()
}

/// Returns the items that contain metadata.
fn items(data: &[u8], info: &Part) -> Vec<(u64, Kind)> {
    let wide = data.get(info.start).is_some_and(|version| *version != 0);
    let first = info.start + if wide { 8 } else { 6 };
    let item = |part: Part| {
        let content = data.get(part.start..part.end)?;
        let mut numbers = Numbers { data: content, at: 0 };
        let version = numbers.take(1)?;
        numbers.take(3)?;
        let id = numbers.take(if version >= 3 { 4 } else { 2 })?;
        numbers.take(2)?;
        if version < 2 {
            return None;
        }
        let kind = content.get(numbers.at..numbers.at + 4)?;
        let rest = content.get(numbers.at + 4..)?;
        let texts: Vec<&[u8]> = rest.split(|byte| *byte == 0).collect();
        match kind {
            b"Exif" => Some((id, Kind::Exif)),
            // The item's name precedes its content type.
            b"mime" if texts.iter().any(|text| text.eq_ignore_ascii_case(b"application/rdf+xml")) => {
                Some((id, Kind::Xmp))
            }
            _ => None,
        }
    };
    parts(data, first.min(info.end), info.end)
        .into_iter()
        .filter(|part| part.kind == *b"infe")
        .filter_map(item)
        .collect()
}

type Extents = Vec<(u64, u64)>;

/// Parses the extents of items in the file; `None` if the table is malformed.
fn extents(data: &[u8], part: &Part, idat: Option<u64>) -> Option<Vec<(u64, Extents)>> {
    let mut numbers = Numbers { data: data.get(..part.end)?, at: part.start };
    let version = numbers.take(1)?;
    numbers.take(3)?;
    let sizes = numbers.take(2)? as usize;
    let (offset_size, length_size) = (sizes >> 12 & 15, sizes >> 8 & 15);
    let (base_size, index_size) = (sizes >> 4 & 15, if version == 0 { 0 } else { sizes & 15 });
    let wide = if version < 2 { 2 } else { 4 };
    let count = numbers.take(wide)?;
    let mut items = Vec::new();
    for _ in 0..count.min(65_536) {
        let id = numbers.take(wide)?;
        let method = if version == 0 { 0 } else { numbers.take(2)? & 15 };
        let reference = numbers.take(2)?;
        let base = numbers.take(base_size)?;
        let start = match method {
            0 => Some(0),
            1 => idat,
            // Extents within another item are not used for metadata.
            _ => None,
        };
        let mut extents = Vec::new();
        for _ in 0..numbers.take(2)? {
            numbers.take(index_size)?;
            let (offset, length) = (numbers.take(offset_size)?, numbers.take(length_size)?);
            if let Some(start) = start.filter(|_| reference == 0) {
                extents.push((start.saturating_add(base).saturating_add(offset), length));
            }
        }
        items.push((id, extents));
    }
    Some(items)
}
