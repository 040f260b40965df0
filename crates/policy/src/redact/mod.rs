//! What is blanked of a file for those who may not see all of it.
//!
//! A redaction is a list of [`Edit`]s: stretches of the file and what readers see instead. The size stays, and so does
//! every other byte, so that a picture looks as before and keeps its other particulars.
//!
//! Of pictures (JPEG, PNG, HEIC and AVIF) the place where they were taken is found in EXIF (the whole GPS directory), in
//! XMP (properties of GPS and of named places) and in IPTC (city, region, country), also in further pictures and in films
//! behind the one that is shown. Not found is what makers hide in formats of their own (MakerNotes).
//!
//! A file need not be well-meant. What is announced as such data and cannot be understood is blanked as a whole; a file
//! that would take too long is refused ([`RedactError::TooComplex`]), never shown.

mod behind;
mod boxes;
mod bytes;
mod edits;
mod film;
mod heic;
mod iptc;
mod jpeg;
mod pieces;
mod png;
mod png_text;
mod tiff;
mod xmp;

use std::io;

pub use bytes::Bytes;
pub use edits::{Edit, Edits, Fill};

use crate::content::{Content, Media};
use crate::rule::Redaction;
use bytes::Reader;

/// Why a redaction cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It would take too long, or too much memory.
    #[error("too complex to find what is to be blanked")]
    TooComplex,
}

/// What a redaction blanks of a file.
///
/// # Errors
/// Nothing of the file may be shown then.
pub fn find(redaction: &Redaction, file: &dyn Bytes) -> Result<Edits, RedactError> {
    // What cannot be read is blanked as if it were such a file.
    if redaction.is_content(&Head(file)) == Some(false) {
        return redaction.otherwise.as_ref().map_or(Ok(Edits::default()), |otherwise| find(otherwise, file));
    }
    let mut edits = if redaction.location { location(file)? } else { Edits::default() };
    for range in &redaction.bytes {
        edits.add(range.start, Fill::Zeros(range.end - range.start));
    }
    Ok(edits.sorted())
}

/// What a file holds, as [`Content`].
struct Head<'a>(&'a dyn Bytes);

impl Content for Head<'_> {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        bytes::read(self.0, offset, length).ok()
    }
}

/// What tells the place where a picture was taken.
///
/// # Errors
/// Nothing of the file may be shown then.
pub fn location(file: &dyn Bytes) -> Result<Edits, RedactError> {
    let mut reader = Reader::new(file);
    let head = reader.read(0, 512)?;
    let mut edits = Edits::default();
    if Media::Jpeg.matches(&head) {
        jpeg::location(&mut reader, &mut edits)?;
    } else if Media::Png.matches(&head) {
        png::location(&mut reader, &mut edits)?;
    } else if Media::Heic.matches(&head) {
        heic::location(&mut reader, &mut edits)?;
    }
    Ok(edits.sorted())
}
