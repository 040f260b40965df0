//! What stands in a file behind the picture that is shown: further pictures, and films of the moments around it. Cameras put
//! them there in ways of their own, so they are looked for by how they begin.

use memchr::memmem::{Finder, find_iter};

use super::RedactError;
use super::bytes::Reader;
use super::edits::Edits;
use super::film;

/// What is searched at a time.
const SEARCH_WINDOW_BYTES: usize = 1 << 20;
/// What two windows share: more than any beginning that is looked for.
const WINDOW_OVERLAP_BYTES: usize = 16;
/// The box that begins a film is not larger.
const MAX_FTYP_BYTES: u32 = 4096;
/// Films in one file.
const MAX_VIDEOS: usize = 64;

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
    loop {
        let window = reader.search(at, SEARCH_WINDOW_BYTES)?;
        let found = film.find_iter(&window).find(|found| is_after_size(&window[..*found]));
        let searched = &window[..found.unwrap_or(window.len())];
        pictures.extend(find_iter(searched, JPEG).map(|found| at + found as u64));
        if let Some(found) = found {
            films += 1;
            if films > MAX_VIDEOS {
                return Err(RedactError::TooComplex);
            }
            let begins = at + found as u64 - 4;
            at = film::location(reader, begins, edits)?.max(begins + 8);
        } else if window.len() < SEARCH_WINDOW_BYTES {
            return Ok(pictures);
        } else {
            at += (SEARCH_WINDOW_BYTES - WINDOW_OVERLAP_BYTES) as u64;
        }
    }
}

/// Whether the size of a box that can begin a film ends here.
fn is_after_size(before: &[u8]) -> bool {
    before.last_chunk().is_some_and(|size| (8..=MAX_FTYP_BYTES).contains(&u32::from_be_bytes(*size)))
}
