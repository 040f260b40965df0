//! Attribute blocks that inodes share: finding one with the same attributes by its hash, and its reference count.

use zerocopy::FromBytes;

use super::verify;
use crate::buffer::{BlockKind, Handle, MetadataCache};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::XattrHeader;
use crate::superblock::Geometry;
use crate::xattr_block_cache::XattrBlockCache;

/// Maximum number of inodes that share a block.
const MAX_REFERENCES: u32 = 1024;

/// Number of attribute blocks in the cache.
const MAX_CACHED_BLOCKS: usize = 4096;

pub(super) fn read(geometry: &Geometry, store: &MetadataCache, number: u64) -> Result<std::sync::Arc<[u8]>> {
    store.check_file_blocks(number, 1)?;
    store.get(number, BlockKind::Xattrs, |bytes| {
        Ok(verify(geometry, number, bytes).map_err(|wrong| wrong.block(number))?)
    })
}

pub(super) fn header(block: &[u8]) -> Result<XattrHeader> {
    Ok(XattrHeader::read_from_prefix(block).map_err(|_| Error::Invalid)?.0)
}

/// Sets the reference count of a block.
pub(super) fn count(handle: &mut Handle<'_>, number: u64, refcount: u32) -> Result<()> {
    let geometry = handle.store().geometry();
    handle.change(
        number,
        BlockKind::Xattrs,
        |bytes| Ok(verify(geometry, number, bytes).map_err(|wrong| wrong.block(number))?),
        |bytes| {
            bytes[4..8].copy_from_slice(&refcount.to_le_bytes());
            Ok(())
        },
    )
}

/// Drops an inode's reference to its attribute block. The caller must save the inode.
pub(crate) fn release(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    fs.xattr_block_cache.lock().release(fs, handle, inode)
}

impl XattrBlockCache {
    /// Finds a block other than `but` with the same attributes whose reference count can grow.
    pub(super) fn find(&self, fs: &Filesystem, bytes: &[u8], hash: u32, but: u64) -> Result<Option<u64>> {
        let Some(&number) = self.0.get(&hash).filter(|&&number| hash != 0 && number != but) else {
            return Ok(None);
        };
        let block = read(&fs.geometry, &fs.store, number)?;
        let header = header(&block)?;
        let head = size_of::<XattrHeader>();
        let same = (1..MAX_REFERENCES).contains(&header.refcount.get()) && block[head..] == bytes[head..];
        Ok(same.then_some(number))
    }

    pub(super) fn remember(&mut self, hash: u32, number: u64) {
        if hash == 0 {
            return;
        }
        if self.0.len() >= MAX_CACHED_BLOCKS {
            self.0.clear();
        }
        self.0.insert(hash, number);
    }

    pub(super) fn forget(&mut self, hash: u32, number: u64) {
        if self.0.get(&hash) == Some(&number) {
            self.0.remove(&hash);
        }
    }

    pub(super) fn release(
        &mut self,
        fs: &Filesystem,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
    ) -> Result<()> {
        let number = inode.xattr_block;
        if number == 0 {
            return Ok(());
        }
        let header = header(&read(&fs.geometry, &fs.store, number)?)?;
        match header.refcount.get() {
            0 | 1 => {
                self.forget(header.hash.get(), number);
                handle.forget(number);
                fs.allocator()?.free(handle, number, 1)?;
            }
            references => count(handle, number, references - 1)?,
        }
        inode.xattr_block = 0;
        inode.blocks = inode.blocks.saturating_sub(u64::from(fs.geometry.block_size / 512));
        Ok(())
    }
}
