//! Nodes of extent trees: parsing, validation and encoding.

use zerocopy::{FromBytes, IntoBytes};

use crate::buffer::{BlockKind, MetadataCache};
use crate::error::{Corruption, Result};
use crate::inode::Inode;
use crate::layout::{EXTENT_MAGIC, Extent, ExtentHeader, ExtentIndex, UNWRITTEN_ABOVE};
use crate::map::MappedExtent;
use crate::superblock::Geometry;

/// Reference to a child node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) first: u32,
    pub(super) block: u64,
}

/// Decoded entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entries {
    Leaf(Vec<MappedExtent>),
    Inner(Vec<Child>),
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leaf(list) => list.len(),
            Self::Inner(list) => list.len(),
        }
    }

    pub(super) fn first(&self) -> u32 {
        match self {
            Self::Leaf(list) => list.first().map_or(0, |piece| piece.logical),
            Self::Inner(list) => list.first().map_or(0, |child| child.first),
        }
    }

    /// Splits the entries into parts of at most `room`. The parts are full if the last entry is new, so that growing files have
    /// full nodes, and of equal size otherwise.
    pub(super) fn parts(&self, room: usize, grows: bool) -> Vec<Self> {
        let size = if grows { room } else { self.len().div_ceil(self.len().div_ceil(room)) };
        match self {
            Self::Leaf(list) => list.chunks(size).map(|part| Self::Leaf(part.to_vec())).collect(),
            Self::Inner(list) => list.chunks(size).map(|part| Self::Inner(part.to_vec())).collect(),
        }
    }
}

/// Maximum depth: five levels of the smallest blocks address every block of a file.
pub(super) const MAX_DEPTH: u16 = 5;

pub(super) const ENTRY_BYTES: usize = size_of::<Extent>();

/// A node with validated header.
pub(super) struct Node<'a> {
    pub(super) depth: u16,
    entries: &'a [u8],
}

impl<'a> Node<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> std::result::Result<Self, Corruption> {
        let wrong = |what: String| Err(Corruption::new(format!("extent node: {what}")));
        let Ok((header, rest)) = ExtentHeader::read_from_prefix(bytes) else {
            return wrong("too short".into());
        };
        let (entries, max) = (usize::from(header.entries.get()), usize::from(header.max.get()));
        if header.magic.get() != EXTENT_MAGIC {
            return wrong(format!("invalid magic {:#06x}", header.magic));
        }
        if header.depth.get() > MAX_DEPTH {
            return wrong(format!("depth {} is more than {MAX_DEPTH}", header.depth));
        }
        if entries > max || max > rest.len() / ENTRY_BYTES {
            return wrong(format!("invalid entry count {entries} or maximum {max} in {} bytes", rest.len()));
        }
        if header.depth.get() > 0 && entries == 0 {
            return wrong("index node without entries".into());
        }
        Ok(Self { depth: header.depth.get(), entries: &rest[..entries * ENTRY_BYTES] })
    }

    pub(super) fn first_blocks(&self) -> impl ExactSizeIterator<Item = u32> {
        let first = |entry: &[u8]| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        self.entries.chunks_exact(ENTRY_BYTES).map(first)
    }

    /// Returns the position of the last entry that starts at or before `logical`.
    pub(super) fn find(&self, logical: u32) -> Option<usize> {
        let count = self.entries.len() / ENTRY_BYTES;
        let first = |slot: usize| {
            let at = slot * ENTRY_BYTES;
            u32::from_le_bytes(self.entries[at..at + 4].try_into().expect("four bytes"))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if first(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    pub(super) fn extent(&self, slot: usize) -> Extent {
        Extent::read_from_bytes(&self.entries[slot * ENTRY_BYTES..][..ENTRY_BYTES]).expect("twelve bytes")
    }

    pub(super) fn index(&self, slot: usize) -> ExtentIndex {
        ExtentIndex::read_from_bytes(&self.entries[slot * ENTRY_BYTES..][..ENTRY_BYTES])
            .expect("twelve bytes")
    }

    /// Decodes all entries, which must have been checked.
    pub(super) fn entries(&self) -> Entries {
        let slots = 0..self.entries.len() / ENTRY_BYTES;
        if self.depth > 0 {
            let child = |slot| {
                let index = self.index(slot);
                Child { first: index.block.get(), block: leaf(index) }
            };
            return Entries::Inner(slots.map(child).collect());
        }
        let piece = |slot| {
            let extent = self.extent(slot);
            let (length, written) = length(extent).ok()?;
            Some(MappedExtent { logical: extent.block.get(), length, start: start(extent), written })
        };
        Entries::Leaf(slots.filter_map(piece).collect())
    }

    /// Checks the properties of a single node: order, lengths, and that blocks are on the device.
    pub(super) fn check(&self, geometry: &Geometry) -> std::result::Result<(), Corruption> {
        let mut end = 0_u64;
        for (slot, first) in self.first_blocks().enumerate() {
            let first = u64::from(first);
            if first < end {
                return Err(Corruption::new(format!("extent at block {first} is out of order")));
            }
            end = if self.depth > 0 {
                geometry.check_blocks(leaf(self.index(slot)), 1)?;
                first + 1
            } else {
                let extent = self.extent(slot);
                let (length, _) = length(extent)?;
                geometry.check_blocks(start(extent), length.into())?;
                first + u64::from(length)
            };
            if end > 1 << 32 {
                return Err(Corruption::new(format!(
                    "extent at block {first} ends beyond the maximum file size"
                )));
            }
        }
        Ok(())
    }
}

pub(super) fn start(extent: Extent) -> u64 {
    u64::from(extent.start_hi.get()) << 32 | u64::from(extent.start_lo.get())
}

pub(super) fn leaf(index: ExtentIndex) -> u64 {
    u64::from(index.leaf_hi.get()) << 32 | u64::from(index.leaf_lo.get())
}

/// Returns the number of blocks of an extent, and whether it is written.
pub(super) fn length(extent: Extent) -> std::result::Result<(u32, bool), Corruption> {
    match extent.len.get() {
        0 => Err(Corruption::new(format!("extent at block {} is empty", extent.block))),
        length if length > UNWRITTEN_ABOVE => Ok(((length - UNWRITTEN_ABOVE).into(), false)),
        length => Ok((length.into(), true)),
    }
}

/// Number of entries of the root, in the inode.
pub(super) const MAX_ROOT_ENTRIES: usize = 4;

/// Number of entries of any other node. By the sizes of blocks and entries, four bytes remain for the checksum.
pub(super) fn room(geometry: &Geometry) -> usize {
    (geometry.block_size as usize - size_of::<ExtentHeader>()) / ENTRY_BYTES
}

/// Encodes a node.
pub(super) fn put(bytes: &mut [u8], depth: u16, room: usize, entries: &Entries) {
    let header = ExtentHeader {
        magic: EXTENT_MAGIC.into(),
        entries: (entries.len() as u16).into(),
        max: (room as u16).into(),
        depth: depth.into(),
        generation: 0.into(),
    };
    let (head, rest) = bytes.split_at_mut(size_of::<ExtentHeader>());
    head.copy_from_slice(header.as_bytes());
    let slots = rest.chunks_exact_mut(ENTRY_BYTES);
    match entries {
        Entries::Leaf(list) => slots.zip(list).for_each(|(slot, piece)| {
            let extent = Extent {
                block: piece.logical.into(),
                len: (piece.length as u16 + if piece.written { 0 } else { UNWRITTEN_ABOVE }).into(),
                start_hi: ((piece.start >> 32) as u16).into(),
                start_lo: (piece.start as u32).into(),
            };
            slot.copy_from_slice(extent.as_bytes());
        }),
        Entries::Inner(list) => slots.zip(list).for_each(|(slot, child)| {
            let index = ExtentIndex {
                block: child.first.into(),
                leaf_lo: (child.block as u32).into(),
                leaf_hi: ((child.block >> 32) as u16).into(),
                unused: 0.into(),
            };
            slot.copy_from_slice(index.as_bytes());
        }),
    }
}

/// Reads a node of an inode's tree.
pub(super) fn get(
    geometry: &Geometry,
    store: &MetadataCache,
    inode: &Inode,
    number: u64,
    depth: u16,
) -> Result<std::sync::Arc<[u8]>> {
    store.check_file_blocks(number, 1)?;
    let seed = inode.seed(geometry);
    store.get(number, BlockKind::Extents(inode.number, inode.generation, depth), |bytes| {
        Ok(super::verify(geometry, seed, depth, bytes).map_err(|corruption| corruption.block(number))?)
    })
}
