//! Malicious files: parsing must not panic, hang or grow without bound, and edits must stay within the file.

use proptest::prelude::*;
use shunt_policy::redact::location;

fn check(bytes: &[u8]) {
    let Ok(edits) = location(&bytes) else { return };
    let mut seen = bytes.to_vec();
    edits.apply(0, &mut seen);
    assert_eq!(seen.len(), bytes.len());
}

/// Builds a JPEG segment.
fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    let mut segment = vec![0xff, marker];
    segment.extend((body.len() as u16 + 2).to_be_bytes());
    segment.extend(body);
    segment
}

/// Builds a HEIC box.
fn part(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut part = (body.len() as u32 + 8).to_be_bytes().to_vec();
    part.extend(kind);
    part.extend(body);
    part
}

fn tiff() -> impl Strategy<Value = Vec<u8>> {
    let entry = (
        prop_oneof![Just(0x8825u16), Just(0x8769), Just(0x014a), Just(0x8649), Just(0x83bb), any::<u16>()],
        0..14u16,
        0..70u32,
        0..300u32,
    );
    (any::<bool>(), proptest::collection::vec(entry, 0..20), proptest::collection::vec(any::<u8>(), 0..200))
        .prop_map(|(little, entries, rest)| {
            let n16 = |n: u16| if little { n.to_le_bytes() } else { n.to_be_bytes() };
            let n32 = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
            let mut data = if little { b"II".to_vec() } else { b"MM".to_vec() };
            data.extend(n16(42));
            data.extend(n32(8));
            data.extend(n16(entries.len() as u16));
            for (tag, kind, count, value) in entries {
                data.extend(n16(tag));
                data.extend(n16(kind));
                data.extend(n32(count));
                data.extend(n32(value));
            }
            data.extend(rest);
            data
        })
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

/// Generates the head of a film box with arbitrary size and contents.
fn film_box() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just(*b"ftyp"),
        Just(*b"moov"),
        Just(*b"trak"),
        Just(*b"udta"),
        Just(*b"meta"),
        Just(*b"\xff\xd8\xff\xe1"),
        any::<[u8; 4]>()
    ];
    let size = prop_oneof![0..100u32, Just(0), Just(1), any::<u32>()];
    (size, kind, bytes(20)).prop_map(|(size, kind, rest)| [&size.to_be_bytes()[..], &kind, &rest].concat())
}

proptest! {
    #[test]
    fn any_bytes_behind_a_head(head in 0..4usize, rest in bytes(600)) {
        let heads: [&[u8]; 4] = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\0\0\0\x10ftypheic\0\0\0\0", b""];
        check(&[heads[head], &rest].concat());
    }

    #[test]
    fn exif_of_any_kind(tiff in tiff()) {
        let body = [&b"Exif\0\0"[..], &tiff].concat();
        check(&[&b"\xff\xd8"[..], &segment(0xe1, &body), b"\xff\xd9"].concat());
        let mut chunk = (tiff.len() as u32).to_be_bytes().to_vec();
        chunk.extend(b"eXIf");
        chunk.extend(&tiff);
        chunk.extend([0; 4]);
        check(&[&b"\x89PNG\r\n\x1a\n"[..], &chunk].concat());
    }

    #[test]
    fn resources_and_indices_of_any_kind(marker in 0..3usize, rest in bytes(400)) {
        let (marker, head): (u8, &[u8]) =
            [(0xed, &b"Photoshop 3.0\x008BIM\x04\x04\0\0"[..]), (0xe2, b"MPF\0MM\0*\0\0\0\x08"), (0xe1, b"http://ns.adobe.com/xmp/extension/\0")][marker];
        check(&[&b"\xff\xd8"[..], &segment(marker, &[head, &rest].concat())].concat());
    }

    #[test]
    fn text_of_any_kind(text in "[<>/='\" a-c:GPSCity!\\[\\]?-]{0,300}") {
        let body = [&b"http://ns.adobe.com/xap/1.0/\0"[..], text.as_bytes()].concat();
        check(&[&b"\xff\xd8"[..], &segment(0xe1, &body)].concat());
    }

    #[test]
    fn films_of_any_kind(heic in any::<bool>(), boxes in proptest::collection::vec(film_box(), 0..40)) {
        let head: &[u8] = if heic { b"\0\0\0\x10ftypheic\0\0\0\0" } else { b"\xff\xd8\xff\xda" };
        check(&[head, &boxes.concat()].concat());
    }

    #[test]
    fn items_of_any_kind(info in bytes(200), locations in bytes(200)) {
        let head = part(b"ftyp", b"heic\0\0\0\0");
        let item = part(b"infe", b"\x02\0\0\0\0\x01\0\0Exif\0");
        let info = [&b"\0\0\0\0\0\x01"[..], &item, &info].concat();
        let locations = [&b"\x01\0\0\0\x44\0\0\x02\0\x01"[..], &locations].concat();
        let meta = [&b"\0\0\0\0"[..], &part(b"iinf", &info), &part(b"iloc", &locations)].concat();
        check(&[head, part(b"meta", &meta)].concat());
    }
}

#[test]
fn self_references_end_soon() {
    let began = std::time::Instant::now();
    // 5,000 entries that each point to the directory that contains them.
    let mut data = b"II*\0\x08\0\0\0".to_vec();
    data.extend(5000u16.to_le_bytes());
    for _ in 0..5000 {
        data.extend([0x25, 0x88, 4, 0, 1, 0, 0, 0, 8, 0, 0, 0]);
    }
    let body = [&b"Exif\0\0"[..], &data].concat();
    let file = [&b"\xff\xd8"[..], &segment(0xe1, &body), b"\xff\xd9"].concat();
    let edits = location(&&file[..]).unwrap();
    assert_eq!(edits.iter().count(), 1, "the whole block is blanked");
    // Nested films, and more films than any real file has.
    let deep = (0..2000).fold(Vec::new(), |inner, _| part(b"moov", &inner));
    let film = part(b"ftyp", b"isom\0\0\0\0");
    assert!(location(&&[&b"\xff\xd8\xff\xd9"[..], &film, &deep].concat()[..]).is_err());
    assert!(
        location(&&[&b"\xff\xd8\xff\xd9"[..], &[&film[..], b"end"].concat().repeat(100)].concat()[..])
            .is_err()
    );
    // A very long sequence of segments.
    let many = [b"\xff\xd8".to_vec(), segment(0xe1, b"").repeat(5000)].concat();
    assert!(location(&&many[..]).is_err());
    assert!(began.elapsed().as_secs() < 10);
}
