//! Mutations of images.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::fields::fields;
use crate::find::{KINDS, Site, Structures};
use crate::images::{Image, images};
use crate::input::Input;
use crate::repair::repair;

/// Unit of comparing and copying, in bytes.
pub(crate) const PAGE: usize = 4096;

/// Maximum number of changes of one image.
const MAX_MUTATIONS: u8 = 32;

/// A mutated image.
#[derive(Clone)]
pub struct Mutant {
    /// Original image.
    pub image: &'static Image,
    /// Changed pages, by number.
    pub(crate) pages: BTreeMap<usize, Box<[u8]>>,
}

impl Mutant {
    /// Creates a mutant without changes.
    pub fn sound(image: &'static Image) -> Self {
        Self { image, pages: BTreeMap::new() }
    }

    /// Changes fields of structures, and corrects the checksums.
    ///
    /// An input consists of the number of an image, flags (bit 0: leave checksums wrong), a count, and that many changes of ten
    /// bytes each. The rest is left for the user of the image.
    pub fn structured(input: &mut Input<'_>) -> Self {
        let image = choose(input);
        let structures = &image.structures;
        let (flags, count) = (input.byte(), input.byte() % MAX_MUTATIONS);
        Self::with(image, |bytes| {
            for _ in 0..count {
                change(bytes, structures, input);
            }
            if flags & 1 == 0 {
                repair(bytes, structures);
            }
            let sites = structures.sites.values().flatten();
            let journal = structures.journal.iter().flat_map(|journal| &journal.fast).copied();
            sites
                .map(|site| site.start..site.start + site.length)
                .chain(journal.map(|start| start..start + 1))
                .flat_map(|range| range.start / PAGE..=(range.end - 1) / PAGE)
                .collect()
        })
    }

    /// Overwrites arbitrary bytes without correcting checksums. An input consists of the number of an image, a count, and that
    /// many pieces, each preceded by offset (four bytes) and length (one byte).
    pub fn raw(input: &mut Input<'_>) -> Self {
        let image = choose(input);
        let count = input.byte() % MAX_MUTATIONS;
        Self::with(image, |bytes| {
            let mut pages = BTreeSet::new();
            for _ in 0..count {
                let place = input.word() as usize % bytes.len();
                let length = usize::from(input.byte());
                let piece = input.take(length.min(bytes.len() - place));
                bytes[place..place + piece.len()].copy_from_slice(piece);
                pages.extend(place / PAGE..=(place + piece.len()) / PAGE);
            }
            pages
        })
    }

    /// Applies `change`, which returns the pages that it may have changed.
    fn with(image: &'static Image, change: impl FnOnce(&mut [u8]) -> BTreeSet<usize>) -> Self {
        thread_local! {
            /// Copies of the images: cloning one for each mutant would dominate the run time.
            static COPIES: RefCell<BTreeMap<&'static str, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
        }
        COPIES.with_borrow_mut(|copies| {
            let copy = copies.entry(image.name).or_insert_with(|| image.bytes.clone());
            let mut pages = BTreeMap::new();
            for page in change(copy) {
                let start = page * PAGE;
                let Some(original) = image.bytes.get(start..start + PAGE) else { continue };
                let changed = &mut copy[start..start + PAGE];
                if changed != original {
                    pages.insert(page, changed.into());
                    changed.copy_from_slice(original);
                }
            }
            Self { image, pages }
        })
    }

    /// Returns the content of the mutant.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.image.bytes.clone();
        for (page, changed) in &self.pages {
            bytes[page * PAGE..][..PAGE].copy_from_slice(changed);
        }
        bytes
    }
}

fn choose(input: &mut Input<'_>) -> &'static Image {
    let images = images();
    &images[usize::from(input.byte()) % images.len()]
}

/// Applies one change: kind of structure, index of the structure, index of the field, operation, and value.
fn change(image: &mut [u8], structures: &Structures, input: &mut Input<'_>) {
    let kind = usize::from(input.byte());
    let (place, nth, how, value) = (input.short(), input.short(), input.byte(), input.word());
    // Next kind that exists in this image.
    let kinds = (0..KINDS.len()).map(|more| KINDS[(kind + more) % KINDS.len()]);
    let Some(sites) = kinds.filter_map(|kind| structures.sites.get(&kind)).next() else { return };
    let site = sites[usize::from(place) % sites.len()];
    let other = sites[value as usize % sites.len()];
    let range = site.start..site.start + site.length;
    let fields = fields(site.kind, &image[range.clone()]);
    let field = fields[usize::from(nth) % fields.len()];
    let old = field.get(&image[range.clone()]);
    let geometry = &structures.geometry;
    let small = i64::from(value as i8) as u64;
    let new = match how % 16 {
        0 => value.into(),
        1 => u64::from(value & 0xff),
        2 => old.wrapping_add(small),
        3 => old ^ 1 << (value % (field.width as u32 * 8)),
        4 => u64::MAX >> (value % 64),
        5 => 1 << (value % 64),
        6 => any(structures, value).block.wrapping_add(u64::from(value >> 24 & 3)),
        7 => any(structures, value).owner.into(),
        8 => geometry.blocks.wrapping_add(small),
        9 => field.get(&image[other.start..other.start + other.length]),
        10 => {
            let length = site.length.min(other.length);
            return image.copy_within(other.start..other.start + length, site.start);
        }
        11 => {
            let at = site.start + usize::from(nth) % site.length;
            image[at] = value as u8;
            return;
        }
        12 => u64::from(geometry.inodes).wrapping_add(small),
        13 => u64::from(geometry.block_size).wrapping_add(small),
        14 => old << 1 | 1,
        _ => {
            // Shift the bytes behind the field.
            let at = (site.start + field.at + field.width).min(range.end);
            let by = (1 + value as usize % 16).min(range.end - at);
            return image.copy_within(at..range.end - by, at + by);
        }
    };
    field.put(&mut image[range], new);
}

fn any(structures: &Structures, value: u32) -> Site {
    let count: usize = structures.sites.values().map(Vec::len).sum();
    let nth = value as usize % count;
    *structures.sites.values().flatten().nth(nth).expect("the index is less than the number of sites")
}
