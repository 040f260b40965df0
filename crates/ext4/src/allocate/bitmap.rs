//! Block and inode bitmaps of a group: reading and verifying them, building those that mkfs left uninitialised, and changing bits
//! together with the checksum in the group descriptor.

use super::bits;
use crate::buffer::{BlockKind, Handle, MetadataCache};
use crate::checksum::crc32c;
use crate::error::{Corruption, Result};
use crate::group_desc::GroupDesc;
use crate::layout::{GroupFlags, RoCompat};
use crate::superblock::Geometry;

/// The two bitmaps of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Blocks,
    Inodes,
}

impl Map {
    pub(super) fn number(self, group: &GroupDesc) -> u64 {
        match self {
            Self::Blocks => group.block_bitmap,
            Self::Inodes => group.inode_bitmap,
        }
    }

    fn kind(self, group: u32) -> BlockKind {
        match self {
            Self::Blocks => BlockKind::BlockBitmap(group),
            Self::Inodes => BlockKind::InodeBitmap(group),
        }
    }

    fn uninit(self) -> GroupFlags {
        match self {
            Self::Blocks => GroupFlags::BLOCK_UNINIT,
            Self::Inodes => GroupFlags::INODE_UNINIT,
        }
    }

    /// Number of bits in use per group. The last group may have fewer blocks.
    fn bits(self, geometry: &Geometry) -> u32 {
        match self {
            Self::Blocks => geometry.blocks_per_group,
            Self::Inodes => geometry.inodes_per_group,
        }
    }

    /// Checksum of a bitmap, or `None` without `metadata_csum`.
    pub(super) fn sum(self, geometry: &Geometry, bytes: &[u8]) -> Option<u32> {
        let length = (self.bits(geometry) / 8) as usize;
        geometry.checksum_seed.map(|seed| crc32c(seed, &bytes[..length]))
    }
}

/// Reports whether the group descriptor marks the bitmap as uninitialised. The flags are valid only where descriptors have
/// checksums.
pub(super) fn is_uninit(geometry: &Geometry, group: &GroupDesc, map: Map) -> bool {
    geometry.ro_compat.intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM)
        && group.flags.contains(map.uninit())
}

/// Returns the bytes of a bitmap, built in memory if it is uninitialised.
pub(super) fn read(store: &MetadataCache, number: u32, map: Map) -> Result<std::sync::Arc<[u8]>> {
    match location(store, number, map)? {
        (_, false) => Ok(initial(store, number, map)?.into()),
        (block, true) => store.get(block, map.kind(number), |bytes| verify(store, number, map, bytes)),
    }
}

/// Returns the block number of a bitmap, and whether the bitmap has ever been written.
fn location(store: &MetadataCache, number: u32, map: Map) -> Result<(u64, bool)> {
    let inodes = map == Map::Inodes;
    if let Some(block) = store.group_locations().bitmap(number, inodes) {
        return Ok((block, true));
    }
    let group = GroupDesc::read(store.geometry(), store, number)?;
    let (block, written) = (map.number(&group), !is_uninit(store.geometry(), &group, map));
    if written {
        store.group_locations().cache_bitmap(number, inodes, block);
    }
    Ok((block, written))
}

fn verify(store: &MetadataCache, number: u32, map: Map, bytes: &[u8]) -> Result<()> {
    let geometry = store.geometry();
    // Read the descriptor now: it changes together with the bitmap, under the group's lock.
    let group = GroupDesc::read(geometry, store, number)?;
    let stored = match map {
        Map::Blocks => group.block_bitmap_sum,
        Map::Inodes => group.inode_bitmap_sum,
    };
    let mask = if geometry.descriptor_size >= 64 { u32::MAX } else { 0xffff };
    let computed = map.sum(geometry, bytes).map(|sum| sum & mask);
    if let Some(computed) = computed.filter(|&computed| computed != stored) {
        let what = format!("bitmap of group {number}: checksum {stored:#010x}, computed {computed:#010x}");
        return Err(Corruption::new(what).block(map.number(&group)).into());
    }
    Ok(())
}

/// Builds the content of an uninitialised bitmap: only the blocks or inodes that the group itself needs are marked as used.
pub(super) fn initial(store: &MetadataCache, number: u32, map: Map) -> Result<Vec<u8>> {
    let geometry = store.geometry();
    let mut bytes = vec![0; geometry.block_size as usize];
    let all = geometry.block_size * 8;
    if map == Map::Inodes {
        bits::put(&mut bytes, geometry.inodes_per_group, all - geometry.inodes_per_group, true);
        return Ok(bytes);
    }
    let start = geometry.group_start(number);
    let group_blocks = geometry.group_blocks(number);
    bits::put(&mut bytes, group_blocks, all - group_blocks, true);
    bits::put(&mut bytes, 0, geometry.base_blocks(number).min(group_blocks), true);
    // With flex_bg, metadata of this group may lie in another group, and metadata of others in this one.
    let flex = geometry.groups_per_flex();
    let first = number / flex * flex;
    let table = geometry.inode_table_blocks();
    for other in first..(first + flex).min(geometry.groups) {
        let group = GroupDesc::read(geometry, store, other)?;
        for (at, count) in [(group.block_bitmap, 1), (group.inode_bitmap, 1), (group.inode_table, table)] {
            let from = at.max(start);
            let to = (at + u64::from(count)).min(start + u64::from(group_blocks));
            if from < to {
                bits::put(&mut bytes, (from - start) as u32, (to - from) as u32, true);
            }
        }
    }
    Ok(bytes)
}

/// Sets or clears bits, all of which must have the other value, and stores the new checksum. `describe` updates the descriptor in
/// the same change. The caller holds the group's lock.
pub(super) fn change(
    handle: &mut Handle<'_>,
    number: u32,
    map: Map,
    (start, count): (u32, u32),
    value: bool,
    describe: impl FnOnce(&mut crate::layout::GroupDescriptor) -> Result<()>,
) -> Result<()> {
    let store = handle.store();
    let geometry = store.geometry();
    let (block, written) = location(store, number, map)?;
    if !written {
        let bytes = initial(store, number, map)?;
        handle.create(block, map.kind(number), |block| block.copy_from_slice(&bytes))?;
        // The checksum is stored below.
    }
    let verify = |bytes: &[u8]| verify(store, number, map, bytes);
    let sum = handle.change(block, map.kind(number), verify, |bytes| {
        if !bits::all(bytes, start, count, !value) {
            let what =
                format!("bitmap of group {number}: bits {start}+{count} are not all {}", u8::from(!value));
            return Err(Corruption::new(what).block(block).into());
        }
        bits::put(bytes, start, count, value);
        Ok(map.sum(geometry, bytes))
    })?;
    GroupDesc::change(handle, number, |raw| {
        let flags = GroupFlags::from_bits_retain(raw.flags.get()) - map.uninit();
        raw.flags.set(flags.bits());
        if let Some(sum) = sum {
            let (low, high) = match map {
                Map::Blocks => (&mut raw.block_bitmap_csum_lo, &mut raw.block_bitmap_csum_hi),
                Map::Inodes => (&mut raw.inode_bitmap_csum_lo, &mut raw.inode_bitmap_csum_hi),
            };
            low.set(sum as u16);
            high.set((sum >> 16) as u16);
        }
        describe(raw)
    })
}

impl Geometry {
    /// Number of blocks in a group; the last group may have fewer.
    pub(crate) fn group_blocks(&self, group: u32) -> u32 {
        let left = self.blocks - self.group_start(group);
        left.min(self.blocks_per_group.into()) as u32
    }

    /// Number of blocks in an inode table.
    pub(crate) fn inode_table_blocks(&self) -> u32 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size)).div_ceil(self.block_size.into())
            as u32
    }

    /// Number of blocks at the start of a group for the copies of the superblock and the descriptors, and the descriptor blocks
    /// reserved for growth.
    pub(crate) fn base_blocks(&self, group: u32) -> u32 {
        if !self.has_superblock(group) {
            return 0;
        }
        let descriptors = self.groups.div_ceil(self.descriptors_per_block());
        // In the first group, the superblock may share the first block with the boot sector.
        1 + descriptors + u32::from(self.reserved_descriptors)
    }

    /// Number of groups whose metadata is packed together (flex_bg).
    pub(crate) fn groups_per_flex(&self) -> u32 {
        1 << self.flex_bits
    }
}
