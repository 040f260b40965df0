//! How much of a file system is used, as `statfs(2)` tells it.

use crate::allocate;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::layout::{Compat, Incompat, RoCompat};

/// Blocks and inodes, all and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that files can have: all but those of the file system's own tables and journal.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that are not kept for root, nor for a full disk's last metadata.
    pub available: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
}

/// Clusters that the kernel keeps back at most, so that extents can be split on a full disk.
const MAX_CACHED_GROUPS: u64 = 4096;

impl Filesystem {
    /// Counts what is used.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
    pub fn usage(&self) -> Result<Usage> {
        let geometry = &self.geometry;
        let (clusters, inodes) = match self.free() {
            Some(free) => free,
            None => self.count()?,
        };
        let per_cluster = u64::from(geometry.cluster_blocks);
        let free = (clusters * per_cluster).min(geometry.blocks);
        let reserved = allocate::reserved(&self.superblock, geometry.incompat);
        let kept = match geometry.incompat.contains(Incompat::EXTENT) {
            true => (geometry.blocks / per_cluster / 50).min(MAX_CACHED_GROUPS) * per_cluster,
            false => 0,
        };
        Ok(Usage {
            blocks: geometry.blocks.saturating_sub(self.overhead()),
            free,
            available: free.saturating_sub(reserved.saturating_add(kept)),
            inodes: geometry.inodes,
            free_inodes: inodes.min(geometry.inodes.into()) as u32,
        })
    }

    /// Free clusters and inodes, from the descriptors of all groups.
    fn count(&self) -> Result<(u64, u64)> {
        let (mut clusters, mut inodes) = (0, 0);
        for group in 0..self.geometry.groups {
            let group = self.group(group)?;
            clusters += u64::from(group.free_clusters);
            inodes += u64::from(group.free_inodes);
        }
        Ok((clusters, inodes))
    }

    /// Blocks of the file system's own.
    fn overhead(&self) -> u64 {
        let geometry = &self.geometry;
        let per_cluster = u64::from(geometry.cluster_blocks);
        let known = u64::from(self.superblock.overhead_clusters.get()) * per_cluster;
        // With clusters it takes a look at all bitmaps, so what `mkfs` counted is believed.
        if geometry.ro_compat.contains(RoCompat::BIGALLOC) && known > 0 && known <= geometry.blocks {
            return known;
        }
        let inode_table =
            (u64::from(geometry.inodes_per_group) * u64::from(geometry.inode_size)) >> geometry.block_bits;
        let descriptors = u64::from(geometry.groups.div_ceil(geometry.descriptors_per_block()));
        let each = inode_table + 2;
        let groups = 0..geometry.groups;
        let copies: u64 = groups
            .map(|group| {
                let superblock = u64::from(geometry.has_superblock(group));
                let reserved = u64::from(self.superblock.reserved_gdt_blocks.get());
                superblock * (1 + reserved) + self.descriptors_in(group, descriptors)
            })
            .sum();
        let journal = match geometry.compat.contains(Compat::HAS_JOURNAL) {
            true => self
                .inode(self.superblock.journal_inum.get())
                .map_or(0, |inode| inode.size >> geometry.block_bits),
            false => 0,
        };
        u64::from(geometry.first_data_block) + u64::from(geometry.groups) * each + copies + journal
    }

    /// Blocks of descriptors at the start of a group.
    fn descriptors_in(&self, group: u32, all: u64) -> u64 {
        let geometry = &self.geometry;
        let copy = geometry.has_superblock(group);
        match geometry.first_meta_bg {
            // One for each run of groups whose descriptors fill a block: in its first two and its last.
            Some(first) if group / geometry.descriptors_per_block() >= first => {
                let within = group % geometry.descriptors_per_block();
                u64::from(within <= 1 || within == geometry.descriptors_per_block() - 1)
            }
            Some(first) => u64::from(copy) * u64::from(first),
            None => u64::from(copy) * all,
        }
    }
}
