//! Space usage as reported by `statfs(2)`.

use crate::allocate;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::layout::{Compat, Incompat, RoCompat};

/// Total and free blocks and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blocks available to files: all but group metadata and the journal.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks without those reserved for root and for metadata on a full disk.
    pub available: u64,
    /// Total number of inodes.
    pub inodes: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
}

/// Upper limit of the clusters that the kernel reserves so that extents can be split on a full disk.
const MAX_METADATA_RESERVE_CLUSTERS: u64 = 4096;

impl Filesystem {
    /// Returns the space usage.
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
        let metadata_reserve = match geometry.incompat.contains(Incompat::EXTENT) {
            true => (geometry.blocks / per_cluster / 50).min(MAX_METADATA_RESERVE_CLUSTERS) * per_cluster,
            false => 0,
        };
        Ok(Usage {
            blocks: geometry.blocks.saturating_sub(self.overhead()),
            free,
            available: free.saturating_sub(reserved.saturating_add(metadata_reserve)),
            inodes: geometry.inodes,
            free_inodes: inodes.min(geometry.inodes.into()) as u32,
        })
    }

    /// Counts free clusters and inodes in the descriptors of all groups.
    fn count(&self) -> Result<(u64, u64)> {
        let (mut clusters, mut inodes) = (0, 0);
        for group in 0..self.geometry.groups {
            let group = self.group(group)?;
            clusters += u64::from(group.free_clusters);
            inodes += u64::from(group.free_inodes);
        }
        Ok((clusters, inodes))
    }

    /// Number of blocks used by the file system itself.
    fn overhead(&self) -> u64 {
        let geometry = &self.geometry;
        let per_cluster = u64::from(geometry.cluster_blocks);
        let stored = u64::from(self.superblock.overhead_clusters.get()) * per_cluster;
        // With clusters, computing it would require reading all bitmaps, so the value stored by `mkfs` is used.
        if geometry.ro_compat.contains(RoCompat::BIGALLOC) && stored > 0 && stored <= geometry.blocks {
            return stored;
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

    /// Number of descriptor blocks at the start of a group.
    fn descriptors_in(&self, group: u32, all: u64) -> u64 {
        let geometry = &self.geometry;
        let copy = geometry.has_superblock(group);
        match geometry.first_meta_bg {
            // One per meta group (the groups whose descriptors fill a block): in its first two groups and its last.
            Some(first) if group / geometry.descriptors_per_block() >= first => {
                let within = group % geometry.descriptors_per_block();
                u64::from(within <= 1 || within == geometry.descriptors_per_block() - 1)
            }
            Some(first) => u64::from(copy) * u64::from(first),
            None => u64::from(copy) * all,
        }
    }
}
