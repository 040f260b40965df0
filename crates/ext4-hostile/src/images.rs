//! The sound images that mutation starts from.

use std::io::Read;
use std::sync::LazyLock;

use crate::find::{self, Structures};

/// A sound image.
pub struct Image {
    /// Name after its special properties.
    pub name: &'static str,
    /// Content of the image.
    pub bytes: Vec<u8>,
    /// Structures of the image.
    pub structures: Structures,
}

macro_rules! kept {
    ($($name:literal),* $(,)?) => { [$(($name, include_bytes!(concat!("../images/", $name, ".gz")))),*] };
}

/// Inputs depend on the order: append new images.
const KEPT: [(&str, &[u8]); 13] = kept![
    "sums",
    "deep",
    "large_blocks",
    "group_sums",
    "ext2",
    "ext3",
    "inline",
    "clusters",
    "meta_groups",
    "journal",
    "journal_ext3",
    "journal_orphans",
    "fast_commits",
];

static IMAGES: LazyLock<Vec<Image>> = LazyLock::new(|| {
    let unpack = |(name, packed): (&'static str, &[u8])| {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed)
            .read_to_end(&mut bytes)
            .expect("the embedded image is valid gzip");
        let structures = find::structures(&bytes);
        Image { name, bytes, structures }
    };
    KEPT.map(unpack).into()
});

/// Returns all images; `images/make` describes their content.
pub fn images() -> &'static [Image] {
    &IMAGES
}
