//! Indirect block maps of ext2 and ext3: twelve block numbers, then tables of block numbers of one, two and three levels.

mod edit;

pub(crate) use edit::{dense, longest, replace};

use crate::block_mapping::{MappedRange, Mapping};
use crate::buffer::{BlockKind, MetadataCache};
use crate::error::{Corruption, Result};
use crate::inode::Inode;
use crate::superblock::Geometry;

const DIRECT_BLOCKS: u64 = 12;

fn entry(bytes: &[u8], index: u64) -> u32 {
    let at = index as usize * 4;
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn map(
    geometry: &Geometry,
    store: &MetadataCache,
    inode: &Inode,
    logical: u32,
    limit: u32,
) -> Result<MappedRange> {
    let per_block = u64::from(geometry.block_size / 4);
    let mut rest = u64::from(logical);
    if rest < DIRECT_BLOCKS {
        return run(geometry, &inode.block[..DIRECT_BLOCKS as usize * 4], rest, logical, limit);
    }
    rest -= DIRECT_BLOCKS;
    // Number of blocks that one entry of the level covers.
    let mut span = 1_u64;
    for level in 0..3 {
        let whole = span * per_block;
        if rest < whole {
            return descend(geometry, store, inode, DIRECT_BLOCKS + level, span, rest, (logical, limit));
        }
        rest -= whole;
        span = whole;
    }
    Err(Corruption::new(format!("block {logical} is beyond the end of the block map")).into())
}

fn descend(
    geometry: &Geometry,
    store: &MetadataCache,
    inode: &Inode,
    root: u64,
    mut span: u64,
    mut rest: u64,
    (logical, limit): (u32, u32),
) -> Result<MappedRange> {
    let per_block = u64::from(geometry.block_size / 4);
    let mut number = entry(&inode.block, root);
    // Everything below a missing table is one hole.
    let mut left = span * per_block - rest;
    loop {
        if number == 0 {
            let length = u32::try_from(left).unwrap_or(u32::MAX);
            return Ok(MappedRange { logical, length, mapping: Mapping::Hole });
        }
        store.check_file_blocks(number.into(), 1)?;
        let bytes = store.get(number.into(), BlockKind::Indirect, |_| Ok(()))?;
        if span == 1 {
            return run(geometry, &bytes, rest, logical, limit);
        }
        number = entry(&bytes, rest / span);
        rest %= span;
        left = span - rest;
        span /= per_block;
    }
}

/// Returns the run of consecutive blocks, or of holes, from `index` on in a table.
fn run(geometry: &Geometry, table: &[u8], index: u64, logical: u32, limit: u32) -> Result<MappedRange> {
    let count = (table.len() as u64 / 4 - index).min(limit.max(1).into());
    let first = u64::from(entry(table, index));
    let follows = |n: &u64| match u64::from(entry(table, index + n)) {
        0 => first == 0,
        block => first != 0 && block == first + n,
    };
    let length = (0..count).take_while(follows).count() as u32;
    let mapping = match first {
        0 => Mapping::Hole,
        first => {
            geometry.check_blocks(first, length.into())?;
            Mapping::Written(first)
        }
    };
    Ok(MappedRange { logical, length, mapping })
}
