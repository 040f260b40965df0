//! Zeroing of partial blocks.

use crate::block_mapping::Mapping;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::map;

impl Filesystem {
    /// Zeroes `from..to` of a file if the block is written; the range lies within one block, or ends with it.
    pub(super) fn zero_within(&self, inode: &Inode, from: u64, to: u64) -> Result<()> {
        let bits = self.geometry.block_bits;
        let size = u64::from(self.geometry.block_size);
        if from >= to || from >> bits >= map::longest(&self.geometry, inode) {
            return Ok(());
        }
        let run = map::map(&self.geometry, &self.store, inode, (from >> bits) as u32, 1)?;
        if let Mapping::Written(block) = run.mapping {
            let within = from & (size - 1);
            let count = (to - from).min(size - within);
            self.store.device().write_at((block << bits) + within, &vec![0; count as usize])?;
        }
        Ok(())
    }

    /// Zeroes the rest of the last block before a file grows: it is not part of the content.
    pub(super) fn zero_behind_end(&self, inode: &Inode, to: u64) -> Result<()> {
        let end = inode.size.next_multiple_of(self.geometry.block_size.into());
        self.zero_within(inode, inode.size, end.min(to))
    }
}
