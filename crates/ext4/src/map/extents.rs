//! Extent trees.

use zerocopy::FromBytes;

use super::{Place, Run};
use crate::checksum::crc32c;
use crate::error::{Corruption, Result};
use crate::inode::Inode;
use crate::layout::{EXTENT_MAGIC, Extent, ExtentHeader, ExtentIndex, UNWRITTEN_ABOVE};
use crate::store::{Seal, Store};
use crate::superblock::Geometry;

/// Trees are no deeper: five levels of the smallest blocks reach every block of a file.
const DEEPEST: u16 = 5;

const ENTRY: usize = size_of::<Extent>();

/// A node whose header and entries were checked.
struct Node<'a> {
    depth: u16,
    entries: &'a [u8],
}

impl<'a> Node<'a> {
    fn parse(bytes: &'a [u8]) -> std::result::Result<Self, Corruption> {
        let wrong = |what: String| Err(Corruption::new(format!("extent node: {what}")));
        let Ok((header, rest)) = ExtentHeader::read_from_prefix(bytes) else {
            return wrong("too short".into());
        };
        let (entries, max) = (usize::from(header.entries.get()), usize::from(header.max.get()));
        if header.magic.get() != EXTENT_MAGIC {
            return wrong(format!("magic {:#06x}", header.magic));
        }
        if header.depth.get() > DEEPEST {
            return wrong(format!("depth {} is more than {DEEPEST}", header.depth));
        }
        if entries > max || max > rest.len() / ENTRY {
            return wrong(format!("{entries} entries of {max} in {} bytes", rest.len()));
        }
        if header.depth.get() > 0 && entries == 0 {
            return wrong("an inner node without entries".into());
        }
        Ok(Self { depth: header.depth.get(), entries: &rest[..entries * ENTRY] })
    }

    fn first_blocks(&self) -> impl ExactSizeIterator<Item = u32> {
        let first = |entry: &[u8]| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        self.entries.chunks_exact(ENTRY).map(first)
    }

    /// The place of the last entry that begins at or before `logical`.
    fn find(&self, logical: u32) -> Option<usize> {
        let count = self.entries.len() / ENTRY;
        let first = |place: usize| {
            let at = place * ENTRY;
            u32::from_le_bytes(self.entries[at..at + 4].try_into().expect("four bytes"))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if first(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    fn extent(&self, place: usize) -> Extent {
        Extent::read_from_bytes(&self.entries[place * ENTRY..][..ENTRY]).expect("twelve bytes")
    }

    fn index(&self, place: usize) -> ExtentIndex {
        ExtentIndex::read_from_bytes(&self.entries[place * ENTRY..][..ENTRY]).expect("twelve bytes")
    }

    /// Checks what can be checked of a node by itself: order, lengths, and that blocks are on the device.
    fn check(&self, geometry: &Geometry) -> std::result::Result<(), Corruption> {
        let mut end = 0_u64;
        for (place, first) in self.first_blocks().enumerate() {
            let first = u64::from(first);
            if first < end {
                return Err(Corruption::new(format!("extent at block {first} is out of order")));
            }
            end = if self.depth > 0 {
                geometry.check_blocks(leaf(self.index(place)), 1)?;
                first + 1
            } else {
                let extent = self.extent(place);
                let (length, _) = length(extent)?;
                geometry.check_blocks(start(extent), length.into())?;
                first + u64::from(length)
            };
            if end > 1 << 32 {
                return Err(Corruption::new(format!("extent at block {first} ends past the largest file")));
            }
        }
        Ok(())
    }
}

fn start(extent: Extent) -> u64 {
    u64::from(extent.start_hi.get()) << 32 | u64::from(extent.start_lo.get())
}

fn leaf(index: ExtentIndex) -> u64 {
    u64::from(index.leaf_hi.get()) << 32 | u64::from(index.leaf_lo.get())
}

/// Blocks of an extent, and whether they were written.
fn length(extent: Extent) -> std::result::Result<(u32, bool), Corruption> {
    match extent.len.get() {
        0 => Err(Corruption::new(format!("extent at block {} is empty", extent.block))),
        length if length > UNWRITTEN_ABOVE => Ok(((length - UNWRITTEN_ABOVE).into(), false)),
        length => Ok((length.into(), true)),
    }
}

fn verify(
    geometry: &Geometry,
    seed: Option<u32>,
    depth: u16,
    bytes: &[u8],
) -> std::result::Result<(), Corruption> {
    let node = Node::parse(bytes)?;
    if node.depth != depth {
        return Err(Corruption::new(format!(
            "extent node of depth {} where {depth} is expected",
            node.depth
        )));
    }
    if let Some(seed) = seed {
        // The sum lies behind the last entry there is room for.
        let max = u16::from_le_bytes([bytes[4], bytes[5]]);
        let tail = size_of::<ExtentHeader>() + usize::from(max) * ENTRY;
        let Some(stored) = bytes.get(tail..tail + 4) else {
            return Err(Corruption::new("extent node has no room for its checksum"));
        };
        let stored = u32::from_le_bytes(stored.try_into().expect("four bytes"));
        let computed = crc32c(seed, &bytes[..tail]);
        if stored != computed {
            return Err(Corruption::new(format!(
                "extent node: checksum {stored:#010x}, computed {computed:#010x}"
            )));
        }
    }
    node.check(geometry)
}

/// Fills in the sum of a node that was checked.
pub(crate) fn fill_sum(seed: u32, bytes: &mut [u8]) {
    let max = u16::from_le_bytes([bytes[4], bytes[5]]);
    let tail = size_of::<ExtentHeader>() + usize::from(max) * ENTRY;
    let sum = crc32c(seed, &bytes[..tail]);
    if let Some(field) = bytes.get_mut(tail..tail + 4) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

pub(super) fn map(geometry: &Geometry, store: &Store, inode: &Inode, logical: u32) -> Result<Run> {
    let seed = inode.seed(geometry);
    let root = Node::parse(&inode.block)?;
    root.check(geometry)?;
    let mut depth = root.depth;
    // Blocks from here on belong to a later entry of some level.
    let mut limit = 1_u64 << 32;
    let mut held: Option<std::sync::Arc<[u8]>> = None;
    loop {
        let node = match &held {
            Some(bytes) => Node::parse(bytes)?,
            None => Node::parse(&inode.block)?,
        };
        let found = node.find(logical);
        let after = found.map_or(0, |place| place + 1);
        if let Some(next) = node.first_blocks().nth(after) {
            limit = limit.min(next.into());
        }
        let hole = || {
            let length = u32::try_from(limit - u64::from(logical)).unwrap_or(u32::MAX);
            Ok(Run { logical, length, place: Place::Hole })
        };
        let Some(place) = found else { return hole() };
        if depth == 0 {
            let extent = node.extent(place);
            let (length, written) = length(extent)?;
            let skip = logical - extent.block.get();
            if skip >= length {
                return hole();
            }
            let at = start(extent) + u64::from(skip);
            let place = if written { Place::Written(at) } else { Place::Unwritten(at) };
            // An extent that reaches into the next index's part would show a block twice.
            let length = u64::from(length - skip).min(limit - u64::from(logical)) as u32;
            return Ok(Run { logical, length, place });
        }
        let number = leaf(node.index(place));
        depth -= 1;
        let seal = Seal::Extents(inode.number, inode.generation, depth);
        held = Some(store.get(number, seal, |bytes| {
            Ok(verify(geometry, seed, depth, bytes).map_err(|corruption| corruption.block(number))?)
        })?);
    }
}
