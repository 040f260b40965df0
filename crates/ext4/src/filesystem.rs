//! An open file system.

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
use crate::orphan_lists::Orphans;
use crate::shared_xattrs::SharedXattrs;
use crate::superblock::Geometry;

/// The inode of the root directory.
pub const ROOT: u32 = 2;

/// An open file system. All methods may be called from several threads at once.
pub struct Filesystem {
    pub(crate) geometry: Geometry,
    pub(crate) superblock: RawSuperblock,
    pub(crate) store: Arc<MetadataCache>,
    pub(crate) locks: Locks,
    pub(crate) orphans: Orphans,
    pub(crate) allocator: Option<Allocator>,
    /// Taken before the locks of two directories.
    pub(crate) moves: Mutex<()>,
    pub(crate) shared_xattrs: Mutex<SharedXattrs>,
    pub(crate) timer: Option<CommitTimer>,
    pub(crate) recovered: Option<Recovered>,
}

impl Filesystem {
    /// Whether it can be changed: it was opened for that, and no commit failed.
    pub fn is_writable(&self) -> bool {
        self.store.is_writable()
    }

    /// Tells the device of ranges that are freed from now on, after each commit: an image in a file becomes sparse there,
    /// and a disk need not keep them. Ends by itself on a device that cannot use that.
    pub fn discard_freed(&self, wanted: bool) {
        self.store.discard_freed(wanted);
    }

    /// Commits a transaction once it is so old, rather than five seconds. Without effect where nothing can be changed.
    pub fn commit_at(&self, age: Duration) {
        if let Some(timer) = &self.timer {
            timer.commit_at(age);
        }
    }

    /// Ends all changes, as after a commit that failed: the device keeps the last whole transaction, and the superblock notes an
    /// error for `e2fsck`.
    pub fn give_up(&self, why: &dyn std::fmt::Display) {
        self.store.give_up_from_outside(why);
    }

    /// What was recovered from the journal when it was opened; `None` where nothing had to be.
    pub fn recovered(&self) -> Option<Recovered> {
        self.recovered
    }

    /// Sizes, counts and features.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The superblock as it lies on the disk.
    pub fn superblock(&self) -> &RawSuperblock {
        &self.superblock
    }

    /// `ext2`, `ext3` or `ext4`: the oldest that has all its features.
    pub fn kind(&self) -> &'static str {
        self.geometry.kind()
    }

    /// There is a journal.
    pub fn has_journal(&self) -> bool {
        self.geometry.compat.contains(Compat::HAS_JOURNAL)
    }

    /// On the device, the journal holds changes that are not in their places: here they are, in memory alone.
    pub fn needs_recovery(&self) -> bool {
        self.timer.is_none() && self.recovered.is_some()
    }

    /// It was unmounted, and no error was found.
    pub fn is_clean(&self) -> bool {
        self.superblock.state.get() & 3 == 1 && !self.needs_recovery()
    }

    /// Free blocks, as the superblock has them.
    pub fn free_blocks(&self) -> u64 {
        let high = match self.geometry.incompat.contains(Incompat::BIT64) {
            true => u64::from(self.superblock.free_blocks_count_hi.get()) << 32,
            false => 0,
        };
        let clusters = high | u64::from(self.superblock.free_blocks_count_lo.get());
        clusters.saturating_mul(self.geometry.cluster_blocks.into()).min(self.geometry.blocks)
    }

    /// Free blocks and inodes as they are now; `None` where it is only read.
    pub fn free(&self) -> Option<(u64, u64)> {
        self.store.free()
    }

    /// The descriptor of a group.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn group(&self, group: u32) -> Result<GroupDesc> {
        if group >= self.geometry.groups {
            return Err(Error::Invalid);
        }
        GroupDesc::read(&self.geometry, &self.store, group)
    }

    /// Gives out blocks and inodes.
    pub(crate) fn allocator(&self) -> Result<&Allocator> {
        self.allocator.as_ref().ok_or(Error::ReadOnly)
    }
}
