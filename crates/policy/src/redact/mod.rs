//! Redaction of files for readers who may not see all of their contents.
//!
//! A redaction is a list of [`Edit`]s: byte ranges of the file and their replacements. The size and every other byte
//! stay unchanged, so that a picture looks as before and keeps its other metadata. Where the redaction of metadata and
//! the hidden byte ranges of a policy overlap, the ranges prevail.
//!
//! In pictures (JPEG, PNG, HEIC and AVIF) the location is found in EXIF (the whole GPS directory), in XMP (GPS
//! properties and named locations) and in IPTC (city, region, country), also in further pictures and films appended to the
//! main one. Proprietary formats of camera makers (MakerNotes) are not searched.
//!
//! Files may be malicious. Metadata that is announced but cannot be parsed is blanked as a whole; a file that would
//! take too long is refused ([`RedactError::TooComplex`]), never shown.

mod behind;
mod blank;
mod boxes;
mod bytes;
mod edits;
mod edits_builder;
mod film;
mod heic;
mod iptc;
mod jpeg;
mod metadata;
mod photoshop;
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
use edits_builder::EditsBuilder;

/// The reason why a redaction cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    /// It would take too much time or memory.
    #[error("cannot redact the file: its metadata exceeds the limits of the parser; reading it fails")]
    TooComplex,
}

/// Computes the edits of a redaction for a file.
///
/// # Errors
/// If it fails, nothing of the file may be shown.
pub fn find(redaction: &Redaction, file: &dyn Bytes) -> Result<Edits, RedactError> {
    // A file that cannot be read is redacted as if it had the type.
    if redaction.is_content(&Head(file)) == Some(false) {
        return redaction.otherwise.as_ref().map_or(Ok(Edits::default()), |otherwise| find(otherwise, file));
    }
    let mut edits = EditsBuilder::default();
    if redaction.location {
        find_location(file, &mut edits)?;
    }
    redaction.bytes.iter().for_each(|range| edits.hide(range.clone()));
    Ok(edits.build())
}

/// Adapts [`Bytes`] to [`Content`].
struct Head<'a>(&'a dyn Bytes);

impl Content for Head<'_> {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        bytes::read(self.0, offset, length).ok()
    }
}

/// Computes the edits that remove the location of a picture.
///
/// # Errors
/// If it fails, nothing of the file may be shown.
pub fn location(file: &dyn Bytes) -> Result<Edits, RedactError> {
    let mut edits = EditsBuilder::default();
    find_location(file, &mut edits)?;
    Ok(edits.build())
}

fn find_location(file: &dyn Bytes, edits: &mut EditsBuilder) -> Result<(), RedactError> {
    let mut reader = Reader::new(file);
    let head = reader.read(0, 512)?;
    if Media::Jpeg.matches(&head) {
        jpeg::location(&mut reader, edits)
    } else if Media::Png.matches(&head) {
        png::location(&mut reader, edits)
    } else if Media::Heic.matches(&head) {
        heic::location(&mut reader, edits)
    } else {
        Ok(())
    }
}
