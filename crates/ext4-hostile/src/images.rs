//! The images that mutation begins with.

use std::io::Read;
use std::sync::LazyLock;

use crate::find::{self, Structures};

/// A sound image of some kind.
pub struct Image {
    /// What is special about it.
    pub name: &'static str,
    /// The whole of it.
    pub bytes: Vec<u8>,
    /// What lies where in it.
    pub structures: Structures,
}

macro_rules! kept {
    ($($name:literal),* $(,)?) => { [$(($name, include_bytes!(concat!("../images/", $name, ".gz")))),*] };
}

/// Their number is part of inputs: new ones go to the end.
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
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("kept as gzip made it");
        let structures = find::structures(&bytes);
        Image { name, bytes, structures }
    };
    KEPT.map(unpack).into()
});

/// All of them: `images/make` says what they hold.
pub fn images() -> &'static [Image] {
    &IMAGES
}
