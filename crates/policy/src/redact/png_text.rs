//! PNG text chunks with metadata: XMP, and the hexadecimal profiles and named properties that ImageMagick writes. Text
//! may be compressed.

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use super::RedactError;
use super::blank::blank;
use super::metadata::Kind;

/// Limit on the decompressed text in bytes.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// Words in a keyword that indicate a location.
const LOCATION_KEYWORDS: [&[u8]; 3] = [b"gps", b"geotag", b"location"];

fn contains(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(text, word).is_some()
}

/// Position and encoding of the text in a chunk.
pub(super) struct Text {
    kind: Kind,
    /// Offset in the chunk's data. The text extends to the end of the chunk.
    pub(super) start: usize,
    /// The text is compressed: each byte of the redacted text may reveal any byte of the original.
    pub(super) packed: bool,
    hex: bool,
}

fn nul(data: &[u8], from: usize) -> Option<usize> {
    Some(from + data.get(from..)?.iter().position(|byte| *byte == 0)?)
}

fn find(kind: &[u8], data: &[u8]) -> Option<Text> {
    let keyword_end = nul(data, 0)?;
    let keyword = &data[..keyword_end];
    let (start, packed) = match kind {
        b"tEXt" => (keyword_end + 1, false),
        b"zTXt" => (keyword_end + 2, true),
        _ => {
            let packed = *data.get(keyword_end + 1)? != 0;
            let language_end = nul(data, keyword_end + 3)?;
            (nul(data, language_end + 1)? + 1, packed)
        }
    };
    let raw = |kind| Some(Text { kind, start, packed, hex: true });
    let keyword = keyword.to_ascii_lowercase();
    match keyword.as_slice() {
        b"xml:com.adobe.xmp" => Some(Text { kind: Kind::Xmp, start, packed, hex: false }),
        b"raw profile type exif" | b"raw profile type app1" => raw(Kind::Exif),
        b"raw profile type xmp" => raw(Kind::Xmp),
        b"raw profile type iptc" | b"raw profile type 8bim" => raw(Kind::Photoshop),
        // Keywords such as `exif:GPSLatitude`, which ImageMagick writes additionally.
        _ if LOCATION_KEYWORDS.iter().any(|word| contains(&keyword, word)) => {
            Some(Text { kind: Kind::Place, start, packed, hex: false })
        }
        _ => None,
    }
}

/// Blanks the location in a chunk of constant length; returns the text that was changed.
pub(super) fn redact(kind: &[u8], data: &mut [u8]) -> Result<Option<Text>, RedactError> {
    let Some(text) = find(kind, data) else { return Ok(None) };
    let Some(room) = data.get_mut(text.start..) else { return Ok(None) };
    if !text.packed {
        return Ok(plain(&text, room).then_some(text));
    }
    let Ok(mut unpacked) = decompress_to_vec_zlib_with_limit(room, MAX_TEXT_BYTES) else {
        // The data is corrupt, or exceeds the limit of this reader but not of others.
        room.fill(0);
        return Ok(Some(text));
    };
    if !plain(&text, &mut unpacked) {
        return Ok(None);
    }
    let packed = [6, 9, 10].iter().map(|level| compress_to_vec_zlib(&unpacked, *level)).min_by_key(Vec::len);
    // If the compressed data does not fit, the text is replaced by an empty one. Data behind the end of the compressed
    // stream is ignored.
    let packed =
        packed.filter(|packed| packed.len() <= room.len()).unwrap_or_else(|| compress_to_vec_zlib(&[], 6));
    room.fill(0);
    if let Some(room) = room.get_mut(..packed.len()) {
        room.copy_from_slice(&packed);
    }
    Ok(Some(text))
}

fn plain(text: &Text, room: &mut [u8]) -> bool {
    if !text.hex {
        let blanks = text.kind.blanks(room);
        blank(room, &blanks);
        return !blanks.is_empty();
    }
    hexadecimal(text.kind, room)
}

/// Redacts a hexadecimal profile: a line with a name, a line with a length, then digits.
fn hexadecimal(kind: Kind, room: &mut [u8]) -> bool {
    let mut lines = 0;
    let mut digits = Vec::new();
    for (at, byte) in room.iter().enumerate() {
        match byte {
            b'\n' => lines += 1,
            byte if lines >= 3 && byte.is_ascii_hexdigit() => digits.push(at),
            _ => {}
        }
    }
    let value = |at: usize| (room[at] as char).to_digit(16).unwrap_or(0) as u8;
    let data: Vec<u8> = digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
    let (kind, start) = match kind {
        Kind::Exif if data.starts_with(b"Exif\0") => (kind, 6),
        // A JPEG APP1 segment may contain XMP.
        Kind::Exif if data.starts_with(b"http://ns.adobe.com/xap/1.0/\0") => (Kind::Xmp, 29),
        Kind::Photoshop if data.starts_with(b"Photoshop 3.0\0") => (kind, 14),
        Kind::Photoshop if data.starts_with(b"\x1c") => (Kind::Iptc, 0),
        kind => (kind, 0),
    };
    let blanks = kind.blanks(data.get(start..).unwrap_or_default());
    let mut seen = data.clone();
    let blanks: Vec<_> = blanks.into_iter().map(|blank| blank.shifted(start)).collect();
    blank(&mut seen, &blanks);
    if seen == data {
        return false;
    }
    for (pair, byte) in digits.chunks_exact(2).zip(&seen) {
        for (at, digit) in [(pair[0], byte >> 4), (pair[1], byte & 15)] {
            room[at] = b"0123456789abcdef"[usize::from(digit)];
        }
    }
    true
}
