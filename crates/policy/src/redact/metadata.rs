//! Formats of metadata, and where each may reveal a location.

use super::blank::Blank;
use super::{iptc, photoshop, tiff, xmp};

/// The format of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Exif,
    Xmp,
    Iptc,
    Photoshop,
    /// Text that only names a location.
    Place,
}

impl Kind {
    /// Returns the ranges to blank in data of this format.
    pub(super) fn blanks(self, data: &[u8]) -> Vec<Blank> {
        match self {
            Self::Exif => tiff::blanks(data),
            Self::Xmp => xmp::blanks(data),
            Self::Iptc => iptc::blanks(data),
            Self::Photoshop => photoshop::blanks(data, tiff::blanks),
            Self::Place => vec![Blank::spaces(0..data.len())],
        }
    }
}
