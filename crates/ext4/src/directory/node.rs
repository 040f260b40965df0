//! Index nodes (`dx_node`, `dx_root`): parsing and changes of their bytes.

use zerocopy::{FromBytes, IntoBytes};

use super::entries::set_length;
use crate::error::Corruption;
use crate::layout::{DirEntry, DxCountLimit, DxEntry, DxRootInfo};

/// Offset of the tree information: behind the entries of `.` and `..`, twelve bytes each.
const INFO_OFFSET: usize = 24;

const ENTRY_BYTES: usize = size_of::<DxEntry>();

/// Size of the checksum tail of a node: four reserved bytes and four of the checksum.
const TAIL_BYTES: usize = 8;

/// A parsed node.
pub(super) struct Node<'a> {
    /// Offset of the entries in the block.
    start: usize,
    entries: &'a [u8],
    pub(super) count: usize,
    pub(super) limit: usize,
}

fn wrong<T>(what: impl std::fmt::Display) -> Result<T, Corruption> {
    Err(Corruption::new(format!("directory index: {what}")))
}

impl<'a> Node<'a> {
    /// Parses a node. The root is the first block; all other nodes start with one empty directory entry.
    pub(super) fn parse(block: &'a [u8], root: bool) -> Result<Self, Corruption> {
        let start = match root {
            true => INFO_OFFSET + usize::from(info(block)?.info_length),
            false => size_of::<DirEntry>(),
        };
        let Some(rest) = block.get(start..) else { return wrong("no room for entries") };
        let Ok((head, _)) = DxCountLimit::read_from_prefix(rest) else { return wrong("no room for entries") };
        let (count, limit) = (usize::from(head.count.get()), usize::from(head.limit.get()));
        if count == 0 || count > limit || limit > rest.len() / ENTRY_BYTES {
            return wrong(format!("invalid entry count {count} or limit {limit} in {} bytes", rest.len()));
        }
        Ok(Self { start, entries: &rest[..count * ENTRY_BYTES], count, limit })
    }

    fn entry(&self, slot: usize) -> DxEntry {
        DxEntry::read_from_bytes(&self.entries[slot * ENTRY_BYTES..][..ENTRY_BYTES]).expect("eight bytes")
    }

    /// Returns the hash of an entry. The first entry has the counts in its place; it covers all hashes below the second entry's.
    pub(super) fn hash(&self, slot: usize) -> u32 {
        if slot == 0 { 0 } else { self.entry(slot).hash.get() }
    }

    /// Returns the position of the last entry whose range starts at or before `hash`.
    pub(super) fn find(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(middle) <= hash { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    /// Returns the block of an entry; flags share the word with the block number.
    pub(super) fn block(&self, slot: usize) -> u32 {
        self.entry(slot).block.get() & 0x0fff_ffff
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    pub(super) fn check_order(&self) -> Result<(), Corruption> {
        match (2..self.count).find(|&slot| self.hash(slot) < self.hash(slot - 1)) {
            Some(slot) => wrong(format!("entry {slot} is out of order")),
            None => Ok(()),
        }
    }

    /// Returns the offsets of the end of the used entries and of the checksum tail, if there is room for a tail.
    pub(super) fn tail(&self, block: &[u8]) -> Option<(usize, usize)> {
        let tail = self.start + self.limit * ENTRY_BYTES;
        (tail + TAIL_BYTES <= block.len()).then_some((self.start + self.count * ENTRY_BYTES, tail))
    }
}

/// Returns the tree information of the root.
pub(super) fn info(block: &[u8]) -> Result<DxRootInfo, Corruption> {
    let Some((info, _)) = block.get(INFO_OFFSET..).and_then(|rest| DxRootInfo::read_from_prefix(rest).ok())
    else {
        return wrong("no room for the root");
    };
    if info.reserved_zero.get() != 0 || usize::from(info.info_length) != size_of::<DxRootInfo>() {
        return wrong(format!("invalid length {} of the root information", info.info_length));
    }
    Ok(info)
}

fn put(block: &mut [u8], start: usize, slot: usize, entry: DxEntry) {
    block[start + slot * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(entry.as_bytes());
}

fn set_counts(block: &mut [u8], start: usize, count: usize, limit: usize) {
    let head = DxCountLimit { limit: (limit as u16).into(), count: (count as u16).into() };
    block[start..start + size_of_val(&head)].copy_from_slice(head.as_bytes());
}

fn room(block: &[u8], start: usize, summed: bool) -> usize {
    (block.len() - start - if summed { TAIL_BYTES } else { 0 }) / ENTRY_BYTES
}

/// Turns the first block of a directory into the root of a tree with one leaf. The entries `.` and `..` stay; the latter spans
/// the rest of the block.
pub(super) fn make_root(block: &mut [u8], hash_version: u8, leaf: u32, summed: bool) {
    let dots = size_of::<DirEntry>() + 4;
    block[2 * dots..].fill(0);
    set_length(block, dots, block.len() - dots);
    let info = DxRootInfo {
        reserved_zero: 0.into(),
        hash_version,
        info_length: size_of::<DxRootInfo>() as u8,
        indirect_levels: 0,
        unused_flags: 0,
    };
    block[INFO_OFFSET..INFO_OFFSET + size_of_val(&info)].copy_from_slice(info.as_bytes());
    let start = INFO_OFFSET + size_of_val(&info);
    put(block, start, 0, DxEntry { hash: 0.into(), block: leaf.into() });
    set_counts(block, start, 1, room(block, start, summed));
}

/// Initialises a zeroed block as a node with these entries; the hash of the first one is ignored.
fn make_node(block: &mut [u8], entries: &[u8], summed: bool) {
    set_length(block, 0, block.len());
    let start = size_of::<DirEntry>();
    block[start..start + entries.len()].copy_from_slice(entries);
    set_counts(block, start, entries.len() / ENTRY_BYTES, room(block, start, summed));
}

/// Returns the bytes of the entries from `slot` on.
fn entries_from<'a>(node: &Node<'a>, slot: usize) -> &'a [u8] {
    &node.entries[slot * ENTRY_BYTES..]
}

/// Inserts a block whose names start at `hash` behind the entry at `after`.
pub(super) fn insert(
    block: &mut [u8],
    root: bool,
    after: usize,
    hash: u32,
    leaf: u32,
) -> Result<(), Corruption> {
    let node = Node::parse(block, root)?;
    let Node { start, count, limit, .. } = node;
    if node.is_full() || after >= count {
        return wrong(format!("no room for an entry after {after}: {count} of {limit} are in use"));
    }
    let gap = start + (after + 1) * ENTRY_BYTES;
    block.copy_within(gap..start + count * ENTRY_BYTES, gap + ENTRY_BYTES);
    put(block, start, after + 1, DxEntry { hash: hash.into(), block: leaf.into() });
    set_counts(block, start, count + 1, limit);
    Ok(())
}

/// Writes the upper half of a node into a new block; returns the position and the hash at which it starts.
pub(super) fn split_upper(
    node: &[u8],
    root: bool,
    upper: &mut [u8],
    summed: bool,
) -> Result<(usize, u32), Corruption> {
    let node = Node::parse(node, root)?;
    let half = node.count / 2;
    if half == 0 {
        return wrong("a node with one entry cannot be split");
    }
    make_node(upper, entries_from(&node, half), summed);
    Ok((half, node.hash(half)))
}

/// Drops the entries from `count` on.
pub(super) fn cut(block: &mut [u8], root: bool, count: usize) -> Result<(), Corruption> {
    let node = Node::parse(block, root)?;
    let Node { start, count: now, limit, .. } = node;
    set_counts(block, start, count, limit);
    block[start + count * ENTRY_BYTES..start + now * ENTRY_BYTES].fill(0);
    Ok(())
}

/// Copies all entries of the root into a new node.
pub(super) fn copy_root(root: &[u8], below: &mut [u8], summed: bool) -> Result<(), Corruption> {
    let node = Node::parse(root, true)?;
    make_node(below, entries_from(&node, 0), summed);
    Ok(())
}

/// Makes the tree one level deeper: the root references only `below`, which has the previous entries of the root.
pub(super) fn deepen(root: &mut [u8], below: u32) -> Result<(), Corruption> {
    cut(root, true, 1)?;
    let mut info = info(root)?;
    info.indirect_levels += 1;
    root[INFO_OFFSET..INFO_OFFSET + size_of_val(&info)].copy_from_slice(info.as_bytes());
    let start = INFO_OFFSET + size_of_val(&info);
    // The word before it holds the counts.
    root[start + 4..start + ENTRY_BYTES].copy_from_slice(&below.to_le_bytes());
    Ok(())
}
