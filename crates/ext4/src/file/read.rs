//! Reading file content and symbolic links.

use crate::block_mapping::{MappedRange, Mapping};
use crate::error::{Corruption, Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::map;
use crate::xattr::Xattrs;

/// Maximum length of the target of a symbolic link in bytes, as in the kernel.
pub(crate) const MAX_TARGET_BYTES: u64 = 4096;

impl Filesystem {
    /// Maps a run of blocks of a file, from block `logical` on and at most `limit` blocks long. The device holds the file's
    /// content in these blocks; inline files have none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for inline files, [`Error::Corrupt`], [`Error::Io`].
    pub fn map(&self, inode: &Inode, logical: u32, limit: u32) -> Result<MappedRange> {
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Err(Error::Invalid);
        }
        map::map(&self.geometry, &self.store, inode, logical, limit)
    }

    /// Reads bytes from `offset`; returns how many precede the end of the file.
    ///
    /// # Errors
    /// [`Error::NoKey`] for encrypted files, [`Error::Corrupt`], [`Error::Io`].
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if inode.flags.contains(InodeFlags::ENCRYPT) && inode.kind == Kind::Regular {
            return Err(Error::NoKey);
        }
        let length = inode.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..length];
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            let content = self.inline(inode)?;
            let start = (offset as usize).min(content.len());
            let stored = &content[start..content.len().min(start + length)];
            buffer[..stored.len()].copy_from_slice(stored);
            buffer[stored.len()..].fill(0);
            return Ok(length);
        }
        let bits = self.geometry.block_bits;
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let Ok(logical) = u32::try_from(at >> bits) else {
                return Err(Corruption::new(format!("size {} exceeds the maximum file size", inode.size))
                    .inode(inode.number)
                    .into());
            };
            let within = at & u64::from(self.geometry.block_size - 1);
            let requested = (length - done) as u64 + within;
            let limit = requested.div_ceil(self.geometry.block_size.into()).min(u32::MAX.into()) as u32;
            let run = self.map(inode, logical, limit)?;
            let count = ((u64::from(run.length) << bits) - within).min((length - done) as u64) as usize;
            let part = &mut buffer[done..done + count];
            match run.mapping {
                Mapping::Written(block) => self.store.device().read_at((block << bits) + within, part)?,
                Mapping::Hole | Mapping::Unwritten(_) => part.fill(0),
            }
            done += count;
        }
        Ok(length)
    }

    /// Returns the target of a symbolic link; for an encrypted one, in the kernel's no-key form.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the inode is not a symbolic link, [`Error::Corrupt`], [`Error::Io`].
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind != Kind::Symlink {
            return Err(Error::Invalid);
        }
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            return self.shown_target(inode);
        }
        if inode.size == 0 || inode.size >= MAX_TARGET_BYTES {
            return Err(Corruption::new(format!("symbolic link: invalid target length {}", inode.size))
                .inode(inode.number)
                .into());
        }
        let mut target = vec![0; inode.size as usize];
        if inode.is_short_link(&self.geometry) {
            target.copy_from_slice(&inode.block[..inode.size as usize]);
        } else {
            self.read(inode, 0, &mut target)?;
        }
        if target.contains(&0) {
            return Err(Corruption::new("symbolic link: the target contains a NUL byte")
                .inode(inode.number)
                .into());
        }
        Ok(target)
    }

    /// Returns the content of an inline file.
    pub(crate) fn inline(&self, inode: &Inode) -> Result<Vec<u8>> {
        let mut content = inode.block.to_vec();
        let xattrs = Xattrs { geometry: &self.geometry, store: &self.store, inode };
        content.extend(xattrs.inline_rest()?);
        Ok(content)
    }
}
