//! Search for further pictures and films appended to a picture, such as motion photos. Cameras append them in
//! proprietary ways, so they are found by their magic bytes.

use memchr::memmem::{Finder, find_iter};

use super::RedactError;
use super::bytes::Reader;
use super::edits_builder::EditsBuilder;
use super::film;

/// Search window in bytes.
const SEARCH_WINDOW_BYTES: usize = 1 << 20;
/// Overlap of two windows: longer than any magic that is searched for.
const WINDOW_OVERLAP_BYTES: usize = 16;
/// Limit on the size of the `ftyp` box that begins a film.
const MAX_FTYP_BYTES: u32 = 4096;
/// Limit on the films in one file.
const MAX_VIDEOS: usize = 64;

/// Magic of a JPEG picture: its first marker, and the beginning of the next.
const JPEG: &[u8] = b"\xff\xd8\xff";
/// Type of the box that begins a film; its size precedes it.
const FILM: &[u8] = b"ftyp";

/// Records the location metadata of films from `from` on; returns the offsets at which pictures may begin.
///
/// # Errors
/// The file is too large, or contains too many films or pictures.
pub(super) fn location(
    reader: &mut Reader<'_>,
    from: u64,
    edits: &mut EditsBuilder,
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

/// Reports whether a valid size of an `ftyp` box ends here.
fn is_after_size(before: &[u8]) -> bool {
    before.last_chunk().is_some_and(|size| (8..=MAX_FTYP_BYTES).contains(&u32::from_be_bytes(*size)))
}
