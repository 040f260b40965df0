//! Changes of a directory within a transaction handle.

use std::sync::Arc;

use crate::buffer::{BlockKind, Handle};
use crate::directory::{Directory, Source, Target, verify};
use crate::error::{Corruption, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::superblock::Geometry;

/// A locked directory; the caller must save its inode after the last change.
pub(crate) struct DirTransaction<'a, 'h> {
    pub(crate) fs: &'a Filesystem,
    pub(crate) handle: &'a mut Handle<'h>,
    pub(crate) inode: &'a mut Inode,
}

impl DirTransaction<'_, '_> {
    fn read(&self) -> Directory<'_> {
        let store = self.handle.store();
        Directory { geometry: store.geometry(), store, inode: self.inode }
    }

    fn kind(&self) -> BlockKind {
        BlockKind::Directory(self.inode.number, self.inode.generation)
    }
}

impl Source for DirTransaction<'_, '_> {
    fn geometry(&self) -> &Geometry {
        self.handle.store().geometry()
    }

    fn number(&self) -> u32 {
        self.inode.number
    }

    fn is_indexed(&self) -> bool {
        self.inode.flags.contains(InodeFlags::INDEX)
    }

    fn length(&self) -> Result<u32> {
        self.read().length()
    }

    fn block(&self, logical: u32) -> Result<Option<(u64, Arc<[u8]>)>> {
        self.read().block(logical)
    }
}

impl Target for DirTransaction<'_, '_> {
    fn change<R>(
        &mut self,
        logical: u32,
        change: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<R, Corruption>,
    ) -> Result<R> {
        let Some(number) = self.read().device_block(logical)? else {
            return Err(self.wrong(format!("block {logical} of the directory is a hole")));
        };
        let (owner, kind) = (self.inode.number, self.kind());
        let geometry = self.handle.store().geometry();
        let inode = &*self.inode;
        self.handle.change(
            number,
            kind,
            |bytes| {
                verify(geometry, inode, logical, bytes)
                    .map_err(|corruption| corruption.inode(owner).block(number).into())
            },
            |bytes| {
                change(bytes, geometry).map_err(|corruption| corruption.inode(owner).block(number).into())
            },
        )
    }

    fn append(
        &mut self,
        fill: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<(), Corruption>,
    ) -> Result<u32> {
        let geometry = self.handle.store().geometry();
        let logical = self.length()?;
        // Build the content before allocating a block, so that failure leaves nothing behind.
        let mut content = vec![0; geometry.block_size as usize];
        fill(&mut content, geometry).map_err(|corruption| corruption.inode(self.inode.number))?;
        let number = self.fs.grow(self.handle, self.inode, logical)?;
        self.inode.size += u64::from(geometry.block_size);
        let kind = self.kind();
        self.handle.create(number, kind, |bytes| bytes.copy_from_slice(&content))?;
        Ok(logical)
    }

    fn set_indexed(&mut self, indexed: bool) {
        self.inode.flags.set(InodeFlags::INDEX, indexed);
    }
}
