//! JPEG: the metadata segments before the image data, and further pictures after it.

use std::collections::{BTreeMap, BTreeSet};

use super::RedactError;
use super::behind;
use super::bytes::{Reader, be16, be32};
use super::edits_builder::EditsBuilder;
use super::metadata::Kind;
use super::pieces::Pieces;

/// Limit on the segments of one picture.
const MAX_SEGMENTS: usize = 4096;
/// Limit on the further pictures in one file.
const MAX_PICTURES: usize = 256;
/// Limit on the pictures announced by an MPF index.
const MAX_ANNOUNCED_PICTURES: usize = 64;

const EXIF: &[u8] = b"Exif\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const EXTENDED: &[u8] = b"http://ns.adobe.com/xmp/extension/\0";
const PHOTOSHOP: &[u8] = b"Photoshop 3.0\0";
const INDEX: &[u8] = b"MPF\0";

/// A part of an extended XMP packet: its offset in the packet, its offset in the file, and its data.
type Part = (u32, u64, Vec<u8>);

/// Records the location metadata of a file.
pub(super) fn location(reader: &mut Reader<'_>, edits: &mut EditsBuilder) -> Result<(), RedactError> {
    let (announced, end) = one(reader, 0, edits)?;
    let found = behind::location(reader, end, edits)?;
    let pictures: BTreeSet<u64> = announced.into_iter().chain(found).collect();
    if pictures.len() > MAX_PICTURES {
        return Err(RedactError::TooComplex);
    }
    for picture in pictures {
        one(reader, picture, edits)?;
    }
    Ok(())
}

/// Processes one picture; returns the offsets of further pictures in its index, and the end of its metadata.
fn one(
    reader: &mut Reader<'_>,
    start: u64,
    edits: &mut EditsBuilder,
) -> Result<(Vec<u64>, u64), RedactError> {
    let mut pictures = Vec::new();
    // Keyed by the id of the packet.
    let mut extended: BTreeMap<[u8; 32], Vec<Part>> = BTreeMap::new();
    let mut photoshop = Pieces::default();
    let mut at = start.saturating_add(2);
    for count in 0.. {
        if count == MAX_SEGMENTS {
            return Err(RedactError::TooComplex);
        }
        let Some(marker) = next_marker(reader, &mut at)? else { break };
        match marker {
            // Start of the image data, or end of the picture.
            0xda | 0xd9 => break,
            0x01 | 0xd0..=0xd8 => continue,
            _ => {}
        }
        let Some(length) = reader.array(at)?.map(u16::from_be_bytes) else { break };
        let body = at + 2;
        at = at.saturating_add(length.max(2).into());
        let length = usize::from(length.saturating_sub(2));
        if !matches!(marker, 0xe1 | 0xe2 | 0xed) {
            continue;
        }
        let data = reader.read(body, length)?;
        let part = |skip: usize| Pieces::one(body + skip as u64, data[skip.min(data.len())..].to_vec());
        if marker == 0xe1 && data.starts_with(EXIF) {
            let pieces = part(EXIF.len() + 1);
            pieces.record(Kind::Exif.blanks(&pieces.data), edits);
        } else if marker == 0xe1 && data.starts_with(XMP) {
            let pieces = part(XMP.len());
            pieces.record(Kind::Xmp.blanks(&pieces.data), edits);
        } else if marker == 0xe1 && data.starts_with(EXTENDED) {
            let head = EXTENDED.len();
            let (name, offset) = (data.get(head..head + 32), be32(&data, head + 36));
            if let (Some(name), Some(offset)) = (name.and_then(|name| name.try_into().ok()), offset) {
                let pieces = part(head + 40);
                extended.entry(name).or_default().push((offset, body + head as u64 + 40, pieces.data));
            }
        } else if marker == 0xed && data.starts_with(PHOTOSHOP) {
            // A long list continues in the next segment.
            photoshop.push(body + PHOTOSHOP.len() as u64, &data[PHOTOSHOP.len()..]);
        } else if marker == 0xe2 && data.starts_with(INDEX) {
            let base = body + INDEX.len() as u64;
            pictures
                .extend(index(&data[INDEX.len()..]).into_iter().map(|offset| base.saturating_add(offset)));
        }
    }
    photoshop.record(Kind::Photoshop.blanks(&photoshop.data), edits);
    for parts in extended.values_mut() {
        parts.sort_by_key(|part| part.0);
        let mut pieces = Pieces::default();
        parts.iter().for_each(|(_, offset, data)| pieces.push(*offset, data));
        pieces.record(Kind::Xmp.blanks(&pieces.data), edits);
    }
    Ok((pictures, at))
}

/// Finds the next marker; `at` is then behind it. Other bytes are skipped, as JPEG readers do.
fn next_marker(reader: &mut Reader<'_>, at: &mut u64) -> Result<Option<u8>, RedactError> {
    loop {
        let window = reader.read(*at, 64)?;
        if window.len() < 2 {
            return Ok(None);
        }
        let found = window.windows(2).position(|pair| pair[0] == 0xff && pair[1] != 0xff && pair[1] != 0);
        match found {
            Some(index) => {
                *at += index as u64 + 2;
                return Ok(Some(window[index + 1]));
            }
            None => *at += window.len() as u64 - 1,
        }
    }
}

/// Returns the offsets of further pictures in an MPF index, relative to the index.
fn index(data: &[u8]) -> Vec<u64> {
    let little = data.starts_with(b"II");
    let u32_at = |at: usize| {
        let number = be32(data, at)?;
        Some(if little { number.swap_bytes() } else { number })
    };
    let u16_at = |at: usize| {
        let number = be16(data, at)?;
        Some(if little { number.swap_bytes() } else { number })
    };
    let pictures = || {
        let directory = u32_at(4)? as usize;
        let count = usize::from(u16_at(directory)?);
        let entry = (0..count.min(64))
            .map(|n| directory.saturating_add(2 + 12 * n))
            .find(|entry| u16_at(*entry) == Some(0xb002))?;
        let (size, start) = (u32_at(entry + 4)? as usize, u32_at(entry + 8)? as usize);
        let offset = |n: usize| u32_at(start.saturating_add(16 * n + 8));
        // The first entry is the picture that contains the index.
        Some(
            (0..(size / 16).min(MAX_ANNOUNCED_PICTURES))
                .filter_map(offset)
                .filter(|offset| *offset != 0)
                .collect::<Vec<_>>(),
        )
    };
    pictures().unwrap_or_default().into_iter().map(u64::from).collect()
}
