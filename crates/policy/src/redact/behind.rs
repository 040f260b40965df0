//! What stands in a file behind the picture that is shown: further pictures, and films of the moments around it. Cameras put
//! them there in ways of their own, so they are looked for by how they begin.

use memchr::memmem::{Finder, find_iter};

use super::RedactError;
use super::bytes::Reader;
use super::edits::Edits;
use super::film;

/// What is searched at a time.
const WINDOW: usize = 1 << 20;
/// What two windows share: more than any beginning that is looked for.
const SHARED: usize = 16;
/// The box that begins a film is not larger.
const LARGEST_TYPE: u32 = 4096;
/// Films in one file.
const MOST_FILMS: usize = 64;

/// How a picture in JPEG begins: its first marker, and the beginning of the next.
const JPEG: &[u8] = b"\xff\xd8\xff";
/// The type of the box that begins a film, behind its size.
const FILM: &[u8] = b"ftyp";

/// Notes what tells a place in films from `from` on, and tells where pictures may begin.
///
/// # Errors
/// The file is too large, or it has too many.
pub(super) fn location(
    reader: &mut Reader<'_>,
    from: u64,
    edits: &mut Edits,
) -> Result<Vec<u64>, RedactError> {
    let (mut pictures, mut films) = (Vec::new(), 0);
    let film = Finder::new(FILM);
    let mut at = from;
    'windows: loop {
        let window = reader.search(at, WINDOW)?;
        let mut from = 0;
        while let Some(found) = film.find(&window[from..]).map(|found| from + found) {
            let size = found.checked_sub(4).and_then(|size| window[size..].first_chunk());
            let Some(size) = size.map(|size| u32::from_be_bytes(*size)) else {
                from = found + 1;
                continue;
            };
            if !(8..=LARGEST_TYPE).contains(&size) {
                from = found + 1;
                continue;
            }
            films += 1;
            if films > MOST_FILMS {
                return Err(RedactError::TooComplex);
            }
            pictures.extend(find_iter(&window[..found], JPEG).map(|found| at + found as u64));
            let begins = at + found as u64 - 4;
            at = film::location(reader, begins, edits)?.max(begins + 8);
            continue 'windows;
        }
        pictures.extend(find_iter(&window, JPEG).map(|found| at + found as u64));
        if window.len() < WINDOW {
            return Ok(pictures);
        }
        at += (WINDOW - SHARED) as u64;
    }
}
