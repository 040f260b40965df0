//! Changes of indirect block maps.

use super::{DIRECT_BLOCKS, entry};
use crate::allocate::{Allocator, ReservedAccess};
use crate::buffer::{BlockKind, Handle};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::map::MappedExtent;

/// Maximum length of a file in blocks; block numbers must also fit 32 bits.
pub(crate) fn longest(geometry: &crate::superblock::Geometry) -> u64 {
    let table = u64::from(geometry.block_size / 4);
    (DIRECT_BLOCKS + table + table * table + table * table * table).min(u32::MAX.into())
}

/// Maximum length in blocks of a file without holes that occupies at most `limit` blocks, including its map.
pub(crate) fn dense(geometry: &crate::superblock::Geometry, limit: u64) -> u64 {
    let table = u64::from(geometry.block_size / 4);
    let whole = DIRECT_BLOCKS + table + table * table + table * table * table;
    let map = 1 + (1 + table) + (1 + table + table * table);
    if whole + map <= limit {
        return whole;
    }
    // The kernel's formula: subtract the tables of a map that addresses `limit` blocks.
    let double = limit - DIRECT_BLOCKS - table;
    if double < table * table {
        return limit - (1 + 1 + double.div_ceil(table));
    }
    let triple = double - table * table;
    limit - (1 + (1 + table) + 1 + triple.div_ceil(table) + triple.div_ceil(table * table))
}

/// Implements [`replace`](crate::map::replace) for block maps.
pub(crate) fn replace(
    fs: &Filesystem,
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    range: (u64, u64),
    new: &[MappedExtent],
) -> Result<Vec<MappedExtent>> {
    if new.iter().any(|piece| !piece.written) {
        return Err(Error::Unsupported("unwritten extents in a file with a block map".into()));
    }
    // Block maps have 32-bit block numbers.
    if new.iter().any(|piece| piece.start + u64::from(piece.length) > 1 << 32) {
        return Err(Error::NoSpace);
    }
    // Reserve before anything is changed: one table per level.
    if !new.is_empty() {
        fs.allocator()?.check(3, ReservedAccess::Reserved)?;
    }
    let mut edit = Edit { fs, allocator: fs.allocator()?, handle, inode, range, new, removed: Vec::new() };
    let mut block = edit.inode.block;
    let table = u64::from(fs.geometry.block_size / 4);
    let mut base = 0;
    let mut span = 1;
    for (index, slot) in block.chunks_exact_mut(4).enumerate() {
        // Twelve blocks, then one table each of one, two and three levels.
        if index as u64 >= DIRECT_BLOCKS {
            span *= table;
        }
        let number = edit.slot(entry(slot, 0), base, span)?;
        slot.copy_from_slice(&number.to_le_bytes());
        base += span;
    }
    edit.inode.block = block;
    Ok(edit.removed)
}

struct Edit<'e, 'h> {
    fs: &'e Filesystem,
    allocator: &'e Allocator,
    handle: &'e mut Handle<'h>,
    inode: &'e mut Inode,
    range: (u64, u64),
    new: &'e [MappedExtent],
    removed: Vec<MappedExtent>,
}

impl Edit<'_, '_> {
    /// Returns the new value of a slot that covers `span` blocks of the file from `base` on.
    fn slot(&mut self, number: u32, base: u64, span: u64) -> Result<u32> {
        if base >= self.range.1 || base + span <= self.range.0 {
            return Ok(number);
        }
        if span == 1 {
            return Ok(self.block(number, base));
        }
        let needed = |piece: &MappedExtent| u64::from(piece.logical) < base + span && piece.end() > base;
        let needed = self.new.iter().any(needed);
        if number == 0 && !needed {
            return Ok(0);
        }
        let store = self.handle.store();
        let size = self.fs.geometry.block_size as usize;
        let units = (size / 512) as u64;
        let (block, mut table) = match number {
            0 => {
                let block = self.allocator.take_one(self.handle, self.goal(), ReservedAccess::Reserved)?;
                self.handle.create(block, BlockKind::Indirect, |_| {})?;
                self.inode.blocks += units;
                (block, vec![0; size])
            }
            number => {
                store.check_file_blocks(number.into(), 1)?;
                (number.into(), store.get(number.into(), BlockKind::Indirect, |_| Ok(()))?.to_vec())
            }
        };
        let below = span / (size as u64 / 4);
        let first = self.range.0.saturating_sub(base) / below;
        let mut changed = false;
        for index in first..(size as u64 / 4).min((self.range.1 - base).div_ceil(below)) {
            let before = entry(&table, index);
            let after = self.slot(before, base + index * below, below)?;
            if after != before {
                table[index as usize * 4..][..4].copy_from_slice(&after.to_le_bytes());
                changed = true;
            }
        }
        if !needed && table.iter().all(|&byte| byte == 0) {
            self.allocator.free(self.handle, block, 1)?;
            self.handle.forget(block);
            self.inode.blocks = self.inode.blocks.saturating_sub(units);
            return Ok(0);
        }
        if changed {
            let put = |bytes: &mut [u8]| {
                bytes.copy_from_slice(&table);
                Ok(())
            };
            self.handle.change(block, BlockKind::Indirect, |_| Ok(()), put)?;
        }
        u32::try_from(block).map_err(|_| Error::NoSpace)
    }

    fn goal(&self) -> u64 {
        match self.new.first() {
            Some(piece) => piece.start,
            None => 0,
        }
    }

    /// Returns the new block number of one block of the file.
    fn block(&mut self, number: u32, logical: u64) -> u32 {
        if number != 0 {
            let start = u64::from(number);
            match self.removed.last_mut() {
                Some(last) if last.end() == logical && last.start + u64::from(last.length) == start => {
                    last.length += 1;
                }
                _ => {
                    let logical = logical as u32;
                    self.removed.push(MappedExtent { logical, length: 1, start, written: true });
                }
            }
        }
        let piece = self.new.iter().find(|piece| (u64::from(piece.logical)..piece.end()).contains(&logical));
        piece.map_or(0, |piece| (piece.start + logical - u64::from(piece.logical)) as u32)
    }
}
