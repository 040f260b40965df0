//! A picture with a location.

/// The location, which the policies reveal to some users only.
pub const SECRET: &[u8] = b"secret place, 24 bytes!!";
/// Size of the file in bytes.
pub const SIZE: usize = 192 << 10;

/// Returns a JPEG with a GPS directory of one value, the secret, at byte 56.
pub fn picture() -> Vec<u8> {
    let mut tiff = b"II*\0\x08\0\0\0\x01\0".to_vec();
    tiff.extend([0x25, 0x88, 4, 0, 1, 0, 0, 0, 26, 0, 0, 0, 0, 0, 0, 0]);
    tiff.extend([1, 0, 2, 0, 5, 0, 3, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0]);
    tiff.extend(SECRET);
    let body = [&b"Exif\0\0"[..], &tiff].concat();
    let mut jpeg = b"\xff\xd8\xff\xe1".to_vec();
    jpeg.extend((body.len() as u16 + 2).to_be_bytes());
    jpeg.extend(body);
    jpeg.extend(b"\xff\xda\0\x02");
    jpeg.resize(SIZE - 2, 0x55);
    jpeg.extend(b"\xff\xd9");
    jpeg
}

/// Reports whether the location is present.
pub fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET)
}
