//! Group descriptors: read and verified on demand, and changed in transactions.

use zerocopy::FromBytes;

use crate::buffer::{BlockKind, Handle, MetadataCache};
use crate::checksum::{crc16, crc32c};
use crate::error::{Corruption, Result};
use crate::layout::{GroupDescriptor, GroupFlags, RoCompat};
use crate::superblock::Geometry;

/// Location of a group's metadata, and its free counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupDesc {
    /// Block number of the block bitmap.
    pub block_bitmap: u64,
    /// Block number of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// Number of free clusters.
    pub free_clusters: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of directories.
    pub directories: u32,
    /// Number of inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// Flags that mark uninitialised parts of the group.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; its lower half if descriptors have 32 bytes.
    pub block_bitmap_sum: u32,
    /// Checksum of the inode bitmap.
    pub inode_bitmap_sum: u32,
}

impl GroupDesc {
    /// Reads the descriptor of a group.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), and the errors of the device.
    pub(crate) fn read(geometry: &Geometry, store: &MetadataCache, group: u32) -> Result<Self> {
        let per_block = geometry.descriptors_per_block();
        let size = usize::from(geometry.descriptor_size);
        let nth = group / per_block;
        let number = geometry.descriptor_block(nth);
        let verify = |bytes: &[u8]| verify(geometry, nth, number, bytes);
        let bytes = store.get(number, BlockKind::Descriptors(nth), verify)?;
        let start = (group % per_block) as usize * size;
        Ok(parse(&bytes[start..start + size]))
    }
}

impl GroupDesc {
    /// Changes the descriptor of a group and fills in its checksum. The caller holds the group's lock.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub(crate) fn change(
        handle: &mut Handle<'_>,
        group: u32,
        change: impl FnOnce(&mut GroupDescriptor) -> Result<()>,
    ) -> Result<()> {
        let geometry = handle.store().geometry();
        let per_block = geometry.descriptors_per_block();
        let size = usize::from(geometry.descriptor_size);
        let nth = group / per_block;
        let number = geometry.descriptor_block(nth);
        let start = (group % per_block) as usize * size;
        let verify = |bytes: &[u8]| verify(geometry, nth, number, bytes);
        handle.change(number, BlockKind::Descriptors(nth), verify, |bytes| {
            let bytes = &mut bytes[start..start + size];
            let mut whole = [0; size_of::<GroupDescriptor>()];
            let length = size.min(whole.len());
            whole[..length].copy_from_slice(&bytes[..length]);
            change(GroupDescriptor::mut_from_bytes(&mut whole).expect("the size is that of the type"))?;
            bytes[..length].copy_from_slice(&whole[..length]);
            if let Some(sum) = sum(geometry, group, bytes) {
                bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_le_bytes());
            }
            Ok(())
        })
    }
}

fn verify(geometry: &Geometry, nth: u32, number: u64, bytes: &[u8]) -> Result<()> {
    let per_block = geometry.descriptors_per_block();
    let first = nth * per_block;
    let count = per_block.min(geometry.groups - first) as usize;
    let size = usize::from(geometry.descriptor_size);
    for (group, bytes) in (first..).zip(bytes.chunks_exact(size).take(count)) {
        check(geometry, group, bytes).map_err(|corruption| corruption.block(number))?;
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> GroupDesc {
    let mut whole = [0; size_of::<GroupDescriptor>()];
    let length = bytes.len().min(whole.len());
    whole[..length].copy_from_slice(&bytes[..length]);
    let raw = GroupDescriptor::ref_from_bytes(&whole).expect("the size is that of the type");
    let block = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let count = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
    GroupDesc {
        block_bitmap: block(raw.block_bitmap_lo.get(), raw.block_bitmap_hi.get()),
        inode_bitmap: block(raw.inode_bitmap_lo.get(), raw.inode_bitmap_hi.get()),
        inode_table: block(raw.inode_table_lo.get(), raw.inode_table_hi.get()),
        free_clusters: count(raw.free_blocks_count_lo.get(), raw.free_blocks_count_hi.get()),
        free_inodes: count(raw.free_inodes_count_lo.get(), raw.free_inodes_count_hi.get()),
        directories: count(raw.used_dirs_count_lo.get(), raw.used_dirs_count_hi.get()),
        unused_inodes: count(raw.itable_unused_lo.get(), raw.itable_unused_hi.get()),
        flags: GroupFlags::from_bits_retain(raw.flags.get()),
        block_bitmap_sum: count(raw.block_bitmap_csum_lo.get(), raw.block_bitmap_csum_hi.get()),
        inode_bitmap_sum: count(raw.inode_bitmap_csum_lo.get(), raw.inode_bitmap_csum_hi.get()),
    }
}

/// Offset of the checksum in a descriptor.
const CHECKSUM_OFFSET: usize = 0x1e;

/// Returns the checksum of a descriptor, or `None` if descriptors have none.
fn sum(geometry: &Geometry, number: u32, bytes: &[u8]) -> Option<u16> {
    let (before, after) = (&bytes[..CHECKSUM_OFFSET], &bytes[CHECKSUM_OFFSET + 2..]);
    let number = number.to_le_bytes();
    if let Some(seed) = geometry.checksum_seed {
        let sum = crc32c(crc32c(seed, &number), before);
        return Some(crc32c(crc32c(sum, &[0; 2]), after) as u16);
    }
    let old = geometry.ro_compat.contains(RoCompat::GDT_CSUM);
    old.then(|| crc16(crc16(crc16(crc16(!0, &geometry.uuid), &number), before), after))
}

fn check(geometry: &Geometry, number: u32, bytes: &[u8]) -> std::result::Result<(), Corruption> {
    let stored = u16::from_le_bytes([bytes[CHECKSUM_OFFSET], bytes[CHECKSUM_OFFSET + 1]]);
    let computed = sum(geometry, number, bytes).unwrap_or(stored);
    if stored != computed {
        return Err(Corruption::new(format!(
            "descriptor of group {number}: checksum {stored:#06x}, computed {computed:#06x}"
        )));
    }
    let group = parse(bytes);
    let table =
        (u64::from(geometry.inodes_per_group) * u64::from(geometry.inode_size)) >> geometry.block_bits;
    let ranges = [(group.block_bitmap, 1), (group.inode_bitmap, 1), (group.inode_table, table)];
    for (start, count) in ranges {
        geometry.check_blocks(start, count).map_err(|corruption| {
            Corruption::new(format!("descriptor of group {number}: {}", corruption.what))
        })?;
    }
    if group.free_inodes > geometry.inodes_per_group || group.unused_inodes > geometry.inodes_per_group {
        return Err(Corruption::new(format!(
            "descriptor of group {number}: invalid counts of {} free and {} unused inodes of {}",
            group.free_inodes, group.unused_inodes, geometry.inodes_per_group
        )));
    }
    Ok(())
}

/// The first block of a group's inode table. Every lookup of an inode asks for it, so it is read from the descriptor once.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
pub(crate) fn inode_table(geometry: &Geometry, store: &MetadataCache, group: u32) -> Result<u64> {
    if let Some(table) = store.group_locations().inode_table(group) {
        return Ok(table);
    }
    let table = GroupDesc::read(geometry, store, group)?.inode_table;
    store.group_locations().cache_inode_table(group, table);
    Ok(table)
}
