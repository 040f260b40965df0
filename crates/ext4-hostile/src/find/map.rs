//! Block maps of inodes.

use shunt_ext4::layout::{InodeFlags, RawInode};

use crate::number::{u16_at, u32_at};

/// The blocks of an inode.
#[derive(Default)]
pub(super) struct Blocks {
    /// Data blocks: logical and physical number.
    pub data: Vec<(u32, u64)>,
    /// Blocks of extent tree nodes.
    pub nodes: Vec<u64>,
    /// Indirect blocks.
    pub indirect: Vec<u64>,
}

/// Size in bytes of the header of an extent tree node, and of an entry.
const ENTRY: usize = 12;

/// Number of blocks mapped directly by an inode.
const DIRECT: u32 = 12;

/// Collects all blocks of an inode of a sound image.
pub(super) fn blocks(view: &[u8], block_size: usize, inode: &RawInode) -> Blocks {
    let mut found = Blocks::default();
    if InodeFlags::from_bits_retain(inode.flags.get()).contains(InodeFlags::EXTENTS) {
        extents(view, block_size, &inode.block, &mut found);
        return found;
    }
    for logical in 0..DIRECT {
        let block = u32_at(&inode.block, logical as usize * 4);
        if block != 0 {
            found.data.push((logical, block.into()));
        }
    }
    let mut logical = DIRECT;
    let per_block = (block_size / 4) as u32;
    for depth in 1..=3 {
        let block = u32_at(&inode.block, (DIRECT + depth - 1) as usize * 4);
        indirect(view, block_size, block, depth, logical, &mut found);
        logical = logical.saturating_add(per_block.saturating_pow(depth));
    }
    found
}

fn extents(view: &[u8], block_size: usize, node: &[u8], found: &mut Blocks) {
    let (entries, depth) = (u16_at(node, 2), u16_at(node, 6));
    for entry in node[ENTRY..].chunks_exact(ENTRY).take(entries) {
        if depth > 0 {
            let child = u64::from(u32_at(entry, 4));
            found.nodes.push(child);
            extents(view, block_size, &view[child as usize * block_size..][..block_size], found);
            continue;
        }
        let (logical, length) = (u32_at(entry, 0), u16_at(entry, 4));
        let length = if length > 0x8000 { length - 0x8000 } else { length } as u32;
        let start = u64::from(u32_at(entry, 8));
        found.data.extend((0..length).map(|n| (logical + n, start + u64::from(n))));
    }
}

fn indirect(view: &[u8], block_size: usize, block: u32, depth: u32, logical: u32, found: &mut Blocks) {
    if block == 0 {
        return;
    }
    if depth == 0 {
        found.data.push((logical, block.into()));
        return;
    }
    found.indirect.push(block.into());
    let each = ((block_size / 4) as u32).saturating_pow(depth - 1);
    for place in 0..block_size / 4 {
        let child = u32_at(view, block as usize * block_size + place * 4);
        let logical = logical.saturating_add(each.saturating_mul(place as u32));
        indirect(view, block_size, child, depth - 1, logical, found);
    }
}
