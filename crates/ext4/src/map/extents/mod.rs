//! Extent trees: lookup, verification and changes.

mod edit;
mod node;
mod splice;

pub(crate) use edit::replace;
use node::{ENTRY_BYTES, Node, leaf, length, start};

use crate::block_mapping::{MappedRange, Mapping};
use crate::buffer::MetadataCache;
use crate::checksum::crc32c;
use crate::error::{Corruption, Result};
use crate::inode::Inode;
use crate::layout::ExtentHeader;
use crate::superblock::Geometry;

fn verify(
    geometry: &Geometry,
    seed: Option<u32>,
    depth: u16,
    bytes: &[u8],
) -> std::result::Result<(), Corruption> {
    let node = Node::parse(bytes)?;
    if node.depth != depth {
        return Err(Corruption::new(format!("extent node: depth {} instead of {depth}", node.depth)));
    }
    if let Some(seed) = seed {
        // The checksum is behind the last entry that the node has room for.
        let max = u16::from_le_bytes([bytes[4], bytes[5]]);
        let tail = size_of::<ExtentHeader>() + usize::from(max) * ENTRY_BYTES;
        let Some(stored) = bytes.get(tail..tail + 4) else {
            return Err(Corruption::new("extent node: no room for its checksum"));
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

/// Fills in the checksum of a validated node.
pub(crate) fn fill_sum(seed: u32, bytes: &mut [u8]) {
    let max = u16::from_le_bytes([bytes[4], bytes[5]]);
    let tail = size_of::<ExtentHeader>() + usize::from(max) * ENTRY_BYTES;
    let sum = crc32c(seed, &bytes[..tail]);
    if let Some(field) = bytes.get_mut(tail..tail + 4) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

pub(super) fn map(
    geometry: &Geometry,
    store: &MetadataCache,
    inode: &Inode,
    logical: u32,
) -> Result<MappedRange> {
    let root = Node::parse(&inode.block)?;
    root.check(geometry)?;
    let mut depth = root.depth;
    // First block that belongs to a later entry on any level.
    let mut limit = 1_u64 << 32;
    let mut block: Option<std::sync::Arc<[u8]>> = None;
    loop {
        let node = match &block {
            Some(bytes) => Node::parse(bytes)?,
            None => Node::parse(&inode.block)?,
        };
        let found = node.find(logical);
        let after = found.map_or(0, |slot| slot + 1);
        if let Some(next) = node.first_blocks().nth(after) {
            limit = limit.min(next.into());
        }
        let hole = || {
            let length = u32::try_from(limit - u64::from(logical)).unwrap_or(u32::MAX);
            Ok(MappedRange { logical, length, mapping: Mapping::Hole })
        };
        let Some(slot) = found else { return hole() };
        if depth == 0 {
            let extent = node.extent(slot);
            let (length, written) = length(extent)?;
            let skip = logical - extent.block.get();
            if skip >= length {
                return hole();
            }
            let at = start(extent) + u64::from(skip);
            let mapping = if written { Mapping::Written(at) } else { Mapping::Unwritten(at) };
            // Limit an extent that overlaps the range of the next index: it would map a block twice.
            let length = u64::from(length - skip).min(limit - u64::from(logical)) as u32;
            return Ok(MappedRange { logical, length, mapping });
        }
        let number = leaf(node.index(slot));
        depth -= 1;
        block = Some(node::get(geometry, store, inode, number, depth)?);
    }
}
