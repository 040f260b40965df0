//! Redactions that combine the location with byte ranges: a byte that a range hides reads as zero, whatever the
//! location's redaction would show there, and nothing that was computed from a hidden byte is shown elsewhere.

use std::io::Write as _;

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib;
use proptest::prelude::*;
use shunt_policy::redact::{self, Edits};
use shunt_policy::{KnownCaller, Names, Op, Policy};

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let checksum = crc32fast::hash(&[&kind[..], data].concat());
    [&(data.len() as u32).to_be_bytes()[..], kind, data, &checksum.to_be_bytes()].concat()
}

/// Builds a PNG picture of one pixel with a chunk of metadata. Returns it with the offset of the chunk's data.
fn png(kind: &[u8; 4], data: &[u8]) -> (Vec<u8>, u64) {
    let head = chunk(b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0]);
    let pixel = chunk(b"IDAT", &compress_to_vec_zlib(&[0, 1, 2, 3], 6));
    let before = [&b"\x89PNG\r\n\x1a\n"[..], &head].concat();
    let start = before.len() as u64 + 8;
    ([before, chunk(kind, data), pixel, chunk(b"IEND", b"")].concat(), start)
}

/// A title that compression does not shorten much, and that location redaction keeps.
const TITLE: &str = "q7Zt0xVb9KcR2mWf";

fn xmp() -> String {
    let location = "<exif:GPSLatitude>51,20.4N</exif:GPSLatitude><photoshop:City>Leipzig</photoshop:City>";
    format!(
        "<x:xmpmeta><rdf:Description>{location}<dc:title>{TITLE}</dc:title></rdf:Description></x:xmpmeta>"
    )
}

/// An XMP chunk. Returns its data and the length of what precedes the text.
fn text(packed: bool) -> (Vec<u8>, usize) {
    let head = [&b"XML:com.adobe.xmp\0"[..], &[u8::from(packed), 0], b"\0\0"].concat();
    let text = if packed { compress_to_vec_zlib(xmp().as_bytes(), 6) } else { xmp().into_bytes() };
    let start = head.len();
    ([head, text].concat(), start)
}

/// Returns the edits of a file for a reader whom the location and these ranges are hidden from.
fn edits(file: &[u8], ranges: &[(u64, u64)]) -> Edits {
    let ranges: Vec<String> = ranges.iter().map(|(start, end)| format!("[{start}, {end}]")).collect();
    let text = format!(
        "[[rule]]\npath = \"/**\"\naction = \"redact\"\nparts = [\"location\"]\nbytes = [{}]\n",
        ranges.join(", ")
    );
    let policy = Policy::parse(&text, &Names::default()).unwrap();
    let decision = policy.match_path(b"/a.png").class().decide(Op::Read, &KnownCaller::new(1, 1), file);
    let mut stored = tempfile::tempfile().unwrap();
    stored.write_all(file).unwrap();
    redact::find(&decision.redaction.unwrap(), &stored).unwrap()
}

/// Reads a file with its edits, as a whole and in small pieces at every offset.
fn seen(file: &[u8], edits: &Edits) -> Vec<u8> {
    let mut whole = file.to_vec();
    edits.apply(0, &mut whole);
    for length in 1..10 {
        for (offset, piece) in file.windows(length).enumerate() {
            let mut piece = piece.to_vec();
            edits.apply(offset as u64, &mut piece);
            assert_eq!(piece, whole[offset..offset + length], "{length} bytes from {offset}");
        }
    }
    whole
}

fn is_hidden(seen: &[u8], range: (u64, u64)) -> bool {
    seen[range.0 as usize..(range.1 as usize).min(seen.len())].iter().all(|byte| *byte == 0)
}

/// Returns the longest text that the compressed stream at the beginning of the data gives, complete or not.
fn unpacked(data: &[u8]) -> Vec<u8> {
    decompress_to_vec_zlib(data).unwrap_or_else(|error| error.output)
}

fn contains(data: &[u8], text: &str) -> bool {
    data.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_range_hides_a_text_that_begins_inside_it() {
    for packed in [false, true] {
        let (data, head) = text(packed);
        let (file, start) = png(b"iTXt", &data);
        let room = start as usize + head;
        assert!(contains(&seen(&file, &edits(&file, &[(0, 1)])), if packed { "xmp" } else { TITLE }));
        let range = (start - 4, start + data.len() as u64 + 4);
        let seen = seen(&file, &edits(&file, &[range]));
        assert!(is_hidden(&seen, range), "{packed}");
        assert!(!contains(&unpacked(&seen[room..]), TITLE) && !contains(&seen, TITLE), "{packed}");
    }
}

#[test]
fn every_range_reads_as_zeros() {
    for packed in [false, true] {
        let (data, _) = text(packed);
        let (file, start) = png(b"iTXt", &data);
        let end = start + data.len() as u64 + 8;
        for first in (start - 8..end).step_by(3) {
            for length in [1, 2, 7, 50, 1000] {
                let range = (first, first + length);
                let mut seen = file.clone();
                edits(&file, &[range]).apply(0, &mut seen);
                assert!(is_hidden(&seen, range), "{packed} {range:?}");
            }
        }
    }
}

/// Compression without the location is shorter, so that the title moves towards the beginning.
#[test]
fn recompressed_text_does_not_move_out_of_a_range() {
    let (data, head) = text(true);
    let (file, start) = png(b"iTXt", &data);
    let (room, end) = (start as usize + head, start + data.len() as u64);
    let full = seen(&file, &edits(&file, &[(0, 1)]));
    assert!(contains(&unpacked(&full[room..]), TITLE) && !contains(&unpacked(&full[room..]), "Leipzig"));
    for first in room as u64..end {
        let mut seen = file.clone();
        edits(&file, &[(first, end)]).apply(0, &mut seen);
        // The stream up to the range shows no more than the file's own stream up to it.
        let visible = unpacked(&file[room..first as usize]);
        assert!(contains(&visible, TITLE) || !contains(&unpacked(&seen[room..]), TITLE), "{first}");
        assert_ne!(seen[end as usize..end as usize + 4], full[end as usize..end as usize + 4], "{first}");
    }
}

fn boxed(kind: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    [&(contents.len() as u32 + 8).to_be_bytes()[..], kind, contents].concat()
}

/// EXIF metadata with a camera model and a GPS directory that holds one latitude.
fn exif() -> Vec<u8> {
    let entry = |tag: u16, kind: u16, count: u32, value: [u8; 4]| {
        [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &value].concat()
    };
    let pointer = |at: u32| at.to_le_bytes();
    let first = [entry(0x0110, 2, 4, *b"abc\0"), entry(0x8825, 4, 1, pointer(38))].concat();
    let gps = entry(2, 5, 3, pointer(56));
    [&b"II*\0\x08\0\0\0\x02\0"[..], &first, &[0; 4], b"\x01\0", &gps, &[0; 4], &[7; 24]].concat()
}

fn hexadecimal() -> Vec<u8> {
    let digits: String = exif().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\nexif\n{:8}\n{digits}\n", exif().len()).into_bytes()
}

/// A film with metadata at every level.
fn film() -> Vec<u8> {
    let location = boxed(b"udta", b"+51.5033-000.1277/");
    let movie = boxed(b"moov", &[boxed(b"trak", &location), location].concat());
    [boxed(b"ftyp", b"isom\0\0\0\0"), movie, boxed(b"uuid", b"exif:GPSLatitude=51.5033")].concat()
}

/// A file of every kind, with every kind of replacement.
fn files() -> Vec<Vec<u8>> {
    let packed = [&b"Raw profile type exif\0\0"[..], &compress_to_vec_zlib(&hexadecimal(), 6)].concat();
    let plain = [&b"Raw profile type exif\0"[..], &hexadecimal()].concat();
    let segment = |marker: u8, data: &[u8]| {
        [&[0xff, marker][..], &(data.len() as u16 + 2).to_be_bytes(), data].concat()
    };
    let metadata = [
        segment(0xe1, &[&b"Exif\0\0"[..], &exif()].concat()),
        segment(0xe1, &[&b"http://ns.adobe.com/xap/1.0/\0"[..], xmp().as_bytes()].concat()),
        segment(0xed, b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x0c\x1c\x02\x5a\0\x07Leipzig"),
    ]
    .concat();
    let jpeg = [&b"\xff\xd8"[..], &metadata, b"\xff\xda\0\x02\xff\xd9", &film()].concat();
    let item = boxed(b"infe", b"\x02\0\0\0\0\x01\0\0Exif\0");
    let info = boxed(b"iinf", &[&b"\0\0\0\0\0\x01"[..], &item].concat());
    let data = [&[0; 4][..], &exif()].concat();
    let location = |at: u32| {
        let extent = [at.to_be_bytes(), (data.len() as u32).to_be_bytes()].concat();
        boxed(b"iloc", &[&b"\x01\0\0\0\x44\0\0\x01\0\x01\0\0\0\0\0\x01"[..], &extent].concat())
    };
    let meta = |at| boxed(b"meta", &[&[0; 4][..], &info, &location(at)].concat());
    let kind = boxed(b"ftyp", b"heic\0\0\0\0");
    let at = (kind.len() + meta(0).len() + 8) as u32;
    let heic = [kind, meta(at), boxed(b"mdat", &data), boxed(b"mpvd", &film())].concat();
    vec![
        png(b"iTXt", &text(false).0).0,
        png(b"iTXt", &text(true).0).0,
        png(b"tEXt", &plain).0,
        png(b"zTXt", &packed).0,
        png(b"eXIf", &exif()).0,
        jpeg,
        heic,
    ]
}

#[test]
fn every_file_has_a_location() {
    for (index, file) in files().iter().enumerate() {
        let edits = redact::location(&&file[..]).unwrap();
        assert!(!edits.is_empty(), "{index}");
        let seen = seen(file, &edits);
        // The coordinates in EXIF, XMP and films.
        for secret in [&[7; 24][..], b"Leipzig", b"51,20", b"51.5033"] {
            assert!(!seen.windows(secret.len()).any(|window| window == secret), "{index} {secret:?}");
        }
    }
}

proptest! {
    #[test]
    fn ranges_prevail_in_files_of_every_kind(
        ranges in proptest::collection::vec((0.0..1.0f64, 1..200u64), 1..4),
    ) {
        for (index, file) in files().iter().enumerate() {
            let location = |(part, length): &(f64, u64)| {
                let start = (file.len() as f64 * part) as u64;
                (start, start + length)
            };
            let ranges: Vec<_> = ranges.iter().map(location).collect();
            let located = seen(file, &redact::location(&&file[..]).unwrap());
            let seen = seen(file, &edits(file, &ranges));
            prop_assert!(ranges.iter().all(|range| is_hidden(&seen, *range)), "{} {:?}", index, ranges);
            // Outside the ranges nothing is shown that the location's redaction alone hides.
            let is_in_range = |at: u64| ranges.iter().any(|(start, end)| (*start..*end).contains(&at));
            for (at, (one, other)) in seen.iter().zip(&located).enumerate() {
                prop_assert!(one == other || *one == 0, "{} {:?} {}", index, ranges, at);
                prop_assert!(one == other || is_in_range(at as u64) || index < 5, "{} {:?} {}", index, ranges, at);
            }
        }
    }
}
