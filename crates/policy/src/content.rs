//! Content probes: file type detection by magic bytes, and comparison of bytes at an offset.

use serde::{Deserialize, Serialize};

/// The contents of a file.
pub trait Content {
    /// Returns up to `length` bytes from `offset` on, fewer at the end of the file; `None` if the file cannot be read.
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>>;
}

/// Empty contents: directories, symbolic links, and files that do not exist yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContent;

impl Content for NoContent {
    fn read(&self, _offset: u64, _length: usize) -> Option<Vec<u8>> {
        Some(Vec::new())
    }
}

impl Content for [u8] {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let start = self.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        Some(self[start..].iter().take(length).copied().collect())
    }
}

/// A condition on the contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Probe {
    /// The file has this type.
    Is(Media),
    /// The file contains these bytes at this offset.
    Has {
        /// The offset.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// File types that are detected by their first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Media {
    /// `image/jpeg`
    Jpeg,
    /// `image/png`
    Png,
    /// `image/heic`, and AVIF, which has the same structure
    Heic,
    /// `image/gif`
    Gif,
    /// `image/webp`
    Webp,
    /// `video/mp4`, and QuickTime
    Mp4,
    /// `application/pdf`
    Pdf,
    /// `application/zip`, and formats based on it
    Zip,
    /// `application/x-executable`: ELF
    Elf,
    /// `text/x-script`: begins with `#!`
    Script,
}

/// Number of bytes that the type detection needs.
const HEAD_BYTES: usize = 512;

impl Media {
    const ALL: [(&str, Self); 10] = [
        ("image/jpeg", Self::Jpeg),
        ("image/png", Self::Png),
        ("image/heic", Self::Heic),
        ("image/gif", Self::Gif),
        ("image/webp", Self::Webp),
        ("video/mp4", Self::Mp4),
        ("application/pdf", Self::Pdf),
        ("application/zip", Self::Zip),
        ("application/x-executable", Self::Elf),
        ("text/x-script", Self::Script),
    ];

    /// Returns the type with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, media)| *media)
    }

    /// Returns all names, for a message.
    pub(crate) fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, media)| *media == self).map_or("", |(name, _)| name)
    }

    /// Reports whether a file that begins with `head` has this type.
    pub fn matches(self, head: &[u8]) -> bool {
        let at = |offset: usize, bytes: &[u8]| head.get(offset..offset + bytes.len()) == Some(bytes);
        match self {
            Self::Jpeg => at(0, b"\xff\xd8\xff"),
            Self::Png => at(0, b"\x89PNG\r\n\x1a\n"),
            Self::Heic => at(4, b"ftyp") && brands(head).any(|brand| PICTURES.contains(&brand)),
            Self::Gif => at(0, b"GIF8"),
            Self::Webp => at(0, b"RIFF") && at(8, b"WEBP"),
            Self::Mp4 => at(4, b"ftyp") && !brands(head).any(|brand| PICTURES.contains(&brand)),
            Self::Pdf => at(0, b"%PDF-"),
            Self::Zip => at(0, b"PK\x03\x04") || at(0, b"PK\x05\x06"),
            Self::Elf => at(0, b"\x7fELF"),
            Self::Script => at(0, b"#!"),
        }
    }
}

const PICTURES: [&[u8]; 10] =
    [b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1", b"mif2", b"avif", b"avis"];

/// Iterates over the major brand and the compatible brands.
fn brands(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let size = head.first_chunk().map_or(0, |size| u32::from_be_bytes(*size) as usize);
    let end = size.min(head.len());
    // A version separates them.
    let compatible = head.get(16..end.max(16)).unwrap_or_default();
    head.get(8..12).into_iter().chain(compatible.chunks_exact(4))
}

impl Probe {
    /// Evaluates the condition; `None` if the file cannot be read.
    pub fn matches(&self, content: &(impl Content + ?Sized)) -> Option<bool> {
        match self {
            Self::Is(media) => Some(media.matches(&content.read(0, HEAD_BYTES)?)),
            Self::Has { offset, bytes } => Some(content.read(*offset, bytes.len())? == *bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told() {
        for (head, media) in [
            (&b"\xff\xd8\xff\xe0"[..], Media::Jpeg),
            (b"\x89PNG\r\n\x1a\n", Media::Png),
            (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", Media::Heic),
            (b"\0\0\0\x18ftypisom\0\0\0\0isomavc1", Media::Mp4),
            (b"\0\0\0\x18ftypXXXX\0\0\0\0XXXXheic", Media::Heic),
            (b"%PDF-1.4", Media::Pdf),
        ] {
            let detected: Vec<_> =
                Media::ALL.iter().filter(|(_, media)| media.matches(head)).map(|(_, media)| *media).collect();
            assert_eq!(detected, [media]);
        }
        assert!(!Media::ALL.iter().any(|(_, media)| media.matches(b"")));
    }

    #[test]
    fn bytes_are_found_at_their_place() {
        let probe = Probe::Has { offset: 2, bytes: b"cd".to_vec() };
        assert_eq!(probe.matches(&b"abcdef"[..]), Some(true));
        assert_eq!(probe.matches(&b"abc"[..]), Some(false));
        assert_eq!(probe.matches(&NoContent), Some(false));
    }
}
