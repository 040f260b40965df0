//! An open file system and its properties.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::allocate::Allocator;
use crate::buffer::{CommitTimer, MetadataCache};
use crate::error::{Error, Result};
use crate::group_desc::GroupDesc;
use crate::journal::Recovered;
use crate::layout::{Compat, Incompat, RawSuperblock};
use crate::locks::Locks;
use crate::orphan_slots::Orphans;
use crate::superblock::Geometry;
use crate::xattr_block_cache::XattrBlockCache;

/// Inode number of the root directory.
pub const ROOT: u32 = 2;

/// An open file system. All methods may be called from several threads at once.
pub struct Filesystem {
    pub(crate) geometry: Geometry,
    pub(crate) superblock: RawSuperblock,
    pub(crate) store: Arc<MetadataCache>,
    pub(crate) locks: Locks,
    pub(crate) orphans: Orphans,
    pub(crate) allocator: Option<Allocator>,
    /// Serialises renames; taken before the locks of two directories.
    pub(crate) rename_lock: Mutex<()>,
    pub(crate) xattr_block_cache: Mutex<XattrBlockCache>,
    pub(crate) timer: Option<CommitTimer>,
    pub(crate) recovered: Option<Recovered>,
}

impl Filesystem {
    /// Reports whether the file system can be changed: it was opened for writing, and no commit has failed.
    pub fn is_writable(&self) -> bool {
        self.store.is_writable()
    }

    /// Reports whether it was opened for writing, whatever happened since.
    pub fn was_opened_writable(&self) -> bool {
        self.allocator.is_some()
    }

    /// Enables or disables discard of freed ranges, after each commit: an image file becomes sparse, and a disk can reuse the
    /// blocks. Ends by itself if the device does not support discard.
    pub fn discard_freed(&self, enabled: bool) {
        self.store.discard_freed(enabled);
    }

    /// Sets the age at which a transaction is committed, by default five seconds. No effect on a read-only file system.
    pub fn commit_at(&self, age: Duration) {
        if let Some(timer) = &self.timer {
            timer.commit_at(age);
        }
    }

    /// Aborts as after a failed commit: further changes fail, the device keeps the last complete transaction, and the superblock
    /// records an error for `e2fsck`.
    pub fn abort(&self, reason: &dyn std::fmt::Display) {
        self.store.abort_without_handle(reason);
    }

    /// Returns what journal recovery replayed at open; `None` if it was not needed.
    pub fn recovered(&self) -> Option<Recovered> {
        self.recovered
    }

    /// Returns sizes, counts and features.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the on-disk superblock.
    pub fn superblock(&self) -> &RawSuperblock {
        &self.superblock
    }

    /// Returns `ext2`, `ext3` or `ext4`: the oldest format that has all features in use.
    pub fn kind(&self) -> &'static str {
        self.geometry.kind()
    }

    /// Reports whether the file system has a journal.
    pub fn has_journal(&self) -> bool {
        self.geometry.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Reports whether the journal on the device holds changes that are not checkpointed; this instance has replayed them in
    /// memory only.
    pub fn needs_recovery(&self) -> bool {
        self.timer.is_none() && self.recovered.is_some()
    }

    /// Reports whether the file system was unmounted cleanly and without recorded errors.
    pub fn is_clean(&self) -> bool {
        self.superblock.state.get() & 3 == 1 && !self.needs_recovery()
    }

    /// Returns the number of free blocks according to the superblock.
    pub fn free_blocks(&self) -> u64 {
        let high = match self.geometry.incompat.contains(Incompat::BIT64) {
            true => u64::from(self.superblock.free_blocks_count_hi.get()) << 32,
            false => 0,
        };
        let clusters = high | u64::from(self.superblock.free_blocks_count_lo.get());
        clusters.saturating_mul(self.geometry.cluster_blocks.into()).min(self.geometry.blocks)
    }

    /// Returns the current number of free blocks and inodes; `None` on a read-only file system.
    pub fn free(&self) -> Option<(u64, u64)> {
        self.store.free()
    }

    /// Returns the number of commits since the open that wrote metadata, to the journal if there is one.
    pub fn commits(&self) -> u64 {
        self.store.counts().0
    }

    /// Returns the number of metadata blocks read from the device since the open: those that were not cached.
    pub fn metadata_reads(&self) -> u64 {
        self.store.counts().1
    }

    /// Returns the descriptor of a group.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group that does not exist, [`Error::Corrupt`], [`Error::Io`].
    pub fn group(&self, group: u32) -> Result<GroupDesc> {
        if group >= self.geometry.groups {
            return Err(Error::Invalid);
        }
        GroupDesc::read(&self.geometry, &self.store, group)
    }

    /// Returns the block and inode allocator.
    pub(crate) fn allocator(&self) -> Result<&Allocator> {
        self.allocator.as_ref().ok_or(Error::ReadOnly)
    }
}
