//! Changes of the entry list of a directory leaf.

use zerocopy::IntoBytes;

use super::entries::{Entries, RawEntry, TAIL_BYTES, set_length, tail_sum};
use crate::error::Corruption;
use crate::inode::Kind;
use crate::layout::{DirEntry, DirTail, Incompat, TAIL_TYPE};
use crate::superblock::Geometry;

type Result<T> = std::result::Result<T, Corruption>;

/// A name and the inode it refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: u32,
    pub(crate) kind: Kind,
}

const HEAD_BYTES: usize = size_of::<DirEntry>();

/// Number of bytes that an entry needs for a name of this length.
fn needed(name: usize) -> usize {
    (HEAD_BYTES + name).next_multiple_of(4)
}

fn is_summed(geometry: &Geometry) -> bool {
    geometry.checksum_seed.is_some()
}

fn file_type(geometry: &Geometry, kind: Kind) -> u8 {
    if geometry.incompat.contains(Incompat::FILETYPE) { kind.to_entry() } else { 0 }
}

/// Iterates over the entries before the tail. Fails if a required checksum tail is missing: such a block must not be changed.
fn entries<'a>(block: &'a [u8], geometry: &Geometry) -> Result<impl Iterator<Item = Result<RawEntry<'a>>>> {
    entries_from(block, 0, geometry)
}

fn entries_from<'a>(
    block: &'a [u8],
    start: usize,
    geometry: &Geometry,
) -> Result<impl Iterator<Item = Result<RawEntry<'a>>>> {
    let summed = is_summed(geometry);
    if summed && tail_sum(block).is_none() {
        return Err(Corruption::new("directory block: no room for its checksum"));
    }
    let end = (block.len() - if summed { TAIL_BYTES } else { 0 }) as u64;
    Ok(Entries::of_verified(block, start, geometry)
        .take_while(move |entry| !entry.as_ref().is_ok_and(|entry| entry.start == end))
        .map(move |entry| match entry {
            Ok(entry) if entry.end > end => {
                Err(Corruption::new(format!("directory entry at {}: overlaps the checksum", entry.start)))
            }
            entry => entry,
        }))
}

/// Number of bytes of an entry that are in use.
fn used(entry: &RawEntry<'_>) -> usize {
    if entry.inode == 0 { 0 } else { needed(entry.name.len()) }
}

fn put(block: &mut [u8], start: usize, length: usize, inode: u32, file_type: u8, name: &[u8]) {
    let head = DirEntry { inode: inode.into(), rec_len: 0.into(), name_len: name.len() as u8, file_type };
    block[start..start + HEAD_BYTES].copy_from_slice(head.as_bytes());
    block[start + HEAD_BYTES..start + HEAD_BYTES + name.len()].copy_from_slice(name);
    set_length(block, start, length);
}

/// Writes entries without gaps into a zeroed block, which must have room for them. The last one gets the remaining space.
fn pack<'a>(block: &mut [u8], summed: bool, entries: impl Iterator<Item = RawEntry<'a>>) {
    let mut end = block.len();
    if summed {
        end -= TAIL_BYTES;
        let tail = DirTail {
            reserved_zero1: 0.into(),
            rec_len: (TAIL_BYTES as u16).into(),
            reserved_zero2: 0,
            reserved_ft: TAIL_TYPE,
            checksum: 0.into(),
        };
        block[end..].copy_from_slice(tail.as_bytes());
    }
    set_length(block, 0, end);
    let (mut last, mut at) = (0, 0);
    for entry in entries {
        let length = needed(entry.name.len());
        put(block, at, length, entry.inode, entry.file_type, entry.name);
        (last, at) = (at, at + length);
    }
    set_length(block, last, end - last);
}

/// Initialises a zeroed block as a leaf without names.
pub(super) fn make_empty(block: &mut [u8], geometry: &Geometry) {
    pack(block, is_summed(geometry), std::iter::empty());
}

/// Initialises a zeroed block as the first one of a directory, with `.` and `..`.
pub(crate) fn make_first(block: &mut [u8], geometry: &Geometry, own: u32, parent: u32) {
    let file_type = file_type(geometry, Kind::Directory);
    let entry = |name, inode| RawEntry { inode, name, kind: None, file_type, start: 0, end: 0 };
    let dots: [(&[u8], u32); 2] = [(b".", own), (b"..", parent)];
    pack(block, is_summed(geometry), dots.into_iter().map(|(name, inode)| entry(name, inode)));
}

/// Finds the entry at which a name of this length can be inserted; `None` if there is no room.
pub(super) fn find_room(block: &[u8], geometry: &Geometry, name: &[u8]) -> Result<Option<usize>> {
    let needed = needed(name.len());
    for entry in entries(block, geometry)? {
        let entry = entry?;
        if (entry.end - entry.start) as usize - used(&entry) >= needed {
            return Ok(Some(entry.start as usize));
        }
    }
    Ok(None)
}

/// Returns the entry at `start`, where an earlier search found one.
fn at<'a>(block: &'a [u8], geometry: &Geometry, start: usize) -> Result<RawEntry<'a>> {
    let found = entries_from(block, start, geometry)?.next();
    found.unwrap_or_else(|| Err(Corruption::new(format!("directory entry at {start}: no longer exists"))))
}

/// Inserts a name at the position that [`find_room`] returned: behind that entry, or in place of it if it is free.
pub(super) fn insert(block: &mut [u8], geometry: &Geometry, start: usize, link: &Link<'_>) -> Result<()> {
    let found = at(block, geometry, start)?;
    let (used, length) = (used(&found), (found.end - found.start) as usize);
    if length - used < needed(link.name.len()) {
        return Err(Corruption::new(format!("directory entry at {start}: no room after it")));
    }
    if used > 0 {
        set_length(block, start, used);
    }
    put(block, start + used, length - used, link.inode, file_type(geometry, link.kind), link.name);
    Ok(())
}

/// Removes the name at `start` and merges its space into the previous entry. The bytes of the name are erased.
pub(super) fn remove(block: &mut [u8], geometry: &Geometry, start: usize, name: &[u8]) -> Result<()> {
    let mut first = start;
    let mut end = None;
    for entry in entries(block, geometry)? {
        let entry = entry?;
        if entry.start == start as u64 {
            end = Some(entry.end as usize).filter(|_| entry.inode != 0 && entry.name == name);
            break;
        }
        first = entry.start as usize;
    }
    let Some(end) = end else {
        return Err(Corruption::new(format!("directory entry at {start}: no longer exists")));
    };
    block[start..end].fill(0);
    set_length(block, first, end - first);
    Ok(())
}

/// Redirects the name at `start` to another inode.
pub(super) fn repoint(block: &mut [u8], geometry: &Geometry, start: usize, link: &Link<'_>) -> Result<()> {
    // The root of an index, which contains `..`, has its checksum behind the index.
    let found = Entries::of_verified(block, start, geometry).next();
    let missing = || Err(Corruption::new(format!("directory entry at {start}: no longer exists")));
    let found = found.unwrap_or_else(missing)?;
    if found.inode == 0 || found.name != link.name {
        return Err(Corruption::new(format!("directory entry at {start}: no longer exists")));
    }
    block[start..start + 4].copy_from_slice(&link.inode.to_le_bytes());
    block[start + 7] = file_type(geometry, link.kind);
    Ok(())
}

/// Copies all entries behind `.` and `..` into a new leaf.
pub(super) fn copy_names(first: &[u8], geometry: &Geometry, leaf: &mut [u8]) -> Result<()> {
    let all = entries(first, geometry)?.collect::<Result<Vec<_>>>()?;
    match &*all {
        [dot, parent, names @ ..] if (dot.name, dot.end, parent.name) == (b".", 12, b"..") => {
            let names = names.iter().filter(|entry| entry.inode != 0);
            pack(leaf, is_summed(geometry), names.copied());
            Ok(())
        }
        _ => Err(Corruption::new("directory block: does not start with `.` and `..`")),
    }
}

/// The two halves of a split leaf.
pub(super) struct Halves {
    pub(super) lower: Vec<u8>,
    pub(super) upper: Vec<u8>,
    /// Lowest hash in the upper half.
    pub(super) hash: u32,
    /// The lower half ends with names of that hash.
    pub(super) continued: bool,
}

/// Splits a leaf by hash, so that both halves use about the same number of bytes.
pub(super) fn split(block: &[u8], geometry: &Geometry, hash: impl Fn(&[u8]) -> u32) -> Result<Halves> {
    let mut names = Vec::new();
    for entry in entries(block, geometry)? {
        let entry = entry?;
        if entry.inode != 0 {
            names.push((hash(entry.name), entry));
        }
    }
    if names.len() < 2 {
        return Err(Corruption::new("directory block: cannot be split, one name fills it"));
    }
    names.sort_by_key(|&(hash, _)| hash);
    let total: usize = names.iter().map(|(_, entry)| needed(entry.name.len())).sum();
    let mut bytes = 0;
    let middle = names.iter().position(|(_, entry)| {
        bytes += needed(entry.name.len());
        bytes * 2 > total
    });
    let middle = middle.unwrap_or(0).clamp(1, names.len() - 1);
    let (lower, upper) = names.split_at(middle);
    let packed = |names: &[(u32, RawEntry<'_>)]| {
        let mut packed = vec![0; block.len()];
        pack(&mut packed, is_summed(geometry), names.iter().map(|&(_, entry)| entry));
        packed
    };
    Ok(Halves {
        lower: packed(lower),
        upper: packed(upper),
        hash: upper[0].0,
        continued: lower[lower.len() - 1].0 == upper[0].0,
    })
}
