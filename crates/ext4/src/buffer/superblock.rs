//! The superblock of a file system that is open for writing.
//!
//! It is part of every transaction, so that its counts agree with those of the groups after any crash.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use shunt_sharded::CachePadded;
use zerocopy::IntoBytes;

use super::shadow::Saved;
use super::{BlockKind, Handle, MetadataCache, Writer};
use crate::checksum::crc32c;
use crate::error::Result;
use crate::layout::superblock_state::ERROR;
use crate::layout::{Incompat, RawSuperblock, RoCompat, SUPERBLOCK_OFFSET};
use crate::superblock::Geometry;

pub(super) struct Super {
    raw: Mutex<RawSuperblock>,
    /// Counts changes, to detect whether there is anything to commit.
    changes: AtomicU64,
    free_blocks: CachePadded<AtomicI64>,
    free_inodes: CachePadded<AtomicI64>,
}

impl Super {
    pub(super) fn new(raw: RawSuperblock) -> Self {
        Self {
            raw: Mutex::new(raw),
            changes: AtomicU64::new(0),
            free_blocks: CachePadded::default(),
            free_inodes: CachePadded::default(),
        }
    }

    /// Records an error for e2fsck and the next mount.
    pub(super) fn record_error(&self) {
        let now = crate::time::now().seconds;
        let mut raw = self.raw.lock();
        raw.state = (raw.state.get() | ERROR).into();
        raw.error_count = raw.error_count.get().saturating_add(1).into();
        raw.last_error_time.set(now as u32);
        raw.last_error_time_hi = (now >> 32) as u8;
        // EXT4_ERR_EIO
        raw.last_error_errcode = 2;
        if raw.first_error_time.get() == 0 {
            raw.first_error_time = raw.last_error_time;
            raw.first_error_time_hi = raw.last_error_time_hi;
            raw.first_error_errcode = raw.last_error_errcode;
        }
    }

    /// Returns the superblock in memory; its counts are not current.
    pub(super) fn raw(&self) -> RawSuperblock {
        self.raw.lock().clone()
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changes.load(Ordering::Relaxed) > 0
    }

    /// Returns the superblock to write, with current counts and checksum.
    pub(super) fn image(&self, geometry: &Geometry) -> RawSuperblock {
        self.changes.store(0, Ordering::Relaxed);
        let mut raw = self.raw.lock();
        let blocks = self.free_blocks.load(Ordering::Relaxed).max(0) as u64;
        raw.free_blocks_count_lo.set(blocks as u32);
        if geometry.incompat.contains(Incompat::BIT64) {
            raw.free_blocks_count_hi.set((blocks >> 32) as u32);
        }
        raw.free_inodes_count.set(self.free_inodes.load(Ordering::Relaxed).max(0) as u32);
        let now = crate::time::now().seconds;
        raw.wtime.set(now as u32);
        raw.wtime_hi = (now >> 32) as u8;
        if geometry.ro_compat.contains(RoCompat::METADATA_CSUM) {
            let sum = crc32c(!0, &raw.as_bytes()[..0x3fc]);
            raw.checksum.set(sum);
        }
        raw.clone()
    }
}

impl Writer {
    /// Writes the superblock to its location, outside of any transaction.
    pub(super) fn place_superblock(&self, store: &MetadataCache) -> Result<()> {
        let raw = self.superblock.image(&store.geometry);
        store.device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(store.device.flush()?)
    }
}

impl MetadataCache {
    /// Changes the superblock in the handle's transaction.
    pub(crate) fn change_superblock<R>(
        &self,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut RawSuperblock) -> R,
    ) -> R {
        handle.incomplete = true;
        if let Some(turn) = &mut handle.turn {
            turn.touch_superblock();
        }
        let superblock = &handle.writer.superblock;
        superblock.changes.fetch_add(1, Ordering::Relaxed);
        change(&mut superblock.raw.lock())
    }

    /// Adds the changes that an earlier process left to the running transaction. Called before anything is read from the cache.
    pub(crate) fn restore(&self, saved: &mut Saved) -> Result<()> {
        let writer = self.writer()?;
        for (number, content) in saved.blocks.drain(..) {
            match content {
                // No block is used as this kind under this number, so each is verified as what it is used for.
                Some(content) => self.cache.create(number, content.into(), BlockKind::Superblock),
                None => {
                    writer.revoked.insert(number);
                    self.cache.forget(number);
                }
            }
        }
        if let Some(fields) = saved.superblock {
            writer.superblock.changes.fetch_add(1, Ordering::Relaxed);
            fields.apply(&mut writer.superblock.raw.lock());
        }
        Ok(())
    }

    /// Changes the superblock on the device at once: before the first transaction and after the last.
    pub(crate) fn change_superblock_now(&self, change: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        let writer = self.writer()?;
        change(&mut writer.superblock.raw.lock());
        self.put_superblock(writer)?;
        let frozen = self.cache.freeze();
        self.cache.committed(frozen, false);
        writer.place_superblock(self)
    }

    /// Adds the superblock to the changed blocks.
    pub(super) fn put_superblock(&self, writer: &Writer) -> Result<()> {
        let raw = writer.superblock.image(&self.geometry);
        let number = SUPERBLOCK_OFFSET >> self.geometry.block_bits;
        let start = (SUPERBLOCK_OFFSET & u64::from(self.geometry.block_size - 1)) as usize;
        loop {
            self.get(number, BlockKind::Superblock, |_| Ok(()))?;
            let put = self.cache.change(number, BlockKind::Superblock, |bytes| {
                bytes[start..start + size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
                Ok(())
            });
            if let Some(result) = put {
                return result;
            }
        }
    }

    /// Sets the free counts. Does nothing on a read-only cache.
    pub(crate) fn set_free(&self, blocks: u64, inodes: u64) {
        if let Some(writer) = &self.writer {
            writer.superblock.free_blocks.store(blocks as i64, Ordering::Relaxed);
            writer.superblock.free_inodes.store(inodes as i64, Ordering::Relaxed);
        }
    }

    /// Adds to the free counts, in the handle's transaction.
    pub(crate) fn add_free(&self, handle: &Handle<'_>, blocks: i64, inodes: i64) {
        let superblock = &handle.writer.superblock;
        for (count, change) in [(&superblock.free_blocks, blocks), (&superblock.free_inodes, inodes)] {
            if change != 0 {
                count.fetch_add(change, Ordering::Relaxed);
            }
        }
    }

    /// Returns free blocks and inodes, including those freed by uncommitted transactions; `None` on a read-only cache.
    pub(crate) fn free(&self) -> Option<(u64, u64)> {
        let superblock = &self.writer.as_ref()?.superblock;
        let count = |count: &AtomicI64| count.load(Ordering::Relaxed).max(0) as u64;
        Some((count(&superblock.free_blocks), count(&superblock.free_inodes)))
    }
}
