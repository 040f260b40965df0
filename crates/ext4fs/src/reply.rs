//! Replies that several operations share: entries, attributes, content and errors. Errors of the engine become errnos, and
//! metadata corruption ends all changes if the mount is set to.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Error, Inode, Kind, ROOT};
use shunt_fuse::{Attributes, Data, Entry, Errno, Expiry, FileRange, NodeId, Request, StatFs};

use crate::Ext4;
use crate::attributes::{attributes, timestamp};

/// Returns the node id of an inode: its number, except for the root, whose node id is always 1. No name leads to inode 1.
pub(crate) fn node(number: u32) -> NodeId {
    if number == ROOT { NodeId::ROOT } else { NodeId(number.into()) }
}

impl Ext4 {
    /// Returns the inode number of a node.
    pub(crate) fn number(&self, node: NodeId) -> Result<u32, Errno> {
        let number = match node {
            NodeId::ROOT => ROOT,
            NodeId(number) => u32::try_from(number).map_err(|_| Errno::STALE)?,
        };
        let geometry = self.filesystem.geometry();
        let named = number == ROOT || (geometry.first_inode..=geometry.inodes).contains(&number);
        if named { Ok(number) } else { Err(Errno::STALE) }
    }

    /// Returns the inode of a node. A stored file handle may name any number.
    pub(crate) fn inode(&self, node: NodeId) -> Result<Inode, Errno> {
        match self.filesystem.inode(self.number(node)?) {
            Err(Error::NotFound) => Err(Errno::STALE),
            inode => Ok(self.with_pending_atime(self.to_errno(inode)?)),
        }
    }

    /// Like [`entry`](Self::entry), and increments the lookup count.
    pub(crate) fn entry_with_lookup(&self, request: &Request<'_>, inode: &Inode) -> Entry {
        if self.is_writable() {
            self.count_lookup(request, inode.number);
        }
        self.entry(inode)
    }

    /// Returns the entry of an inode. The kernel may cache it without expiry, because only this mount changes the image, unless
    /// writes must send a GETATTR first.
    pub(crate) fn entry(&self, inode: &Inode) -> Entry {
        let mut attributes = self.attributes(inode);
        if let Some(read) = self.pending_atime(inode.number) {
            attributes.atime = timestamp(read);
        }
        let generation = inode.generation.into();
        let attributes_expiry = self.expiry(inode);
        Entry { generation, attributes_expiry, ..Entry::new(node(inode.number), attributes, Expiry::FOREVER) }
    }

    /// Returns the attributes for `stat`. The size of an encrypted symlink is that of the target as shown.
    pub(crate) fn attributes(&self, inode: &Inode) -> Attributes {
        let block_size = self.filesystem.geometry().block_size;
        let mut attributes = match &self.writing {
            Some(writing) if inode.kind == Kind::Regular => {
                let mut inode = inode.clone();
                writing.overlay(&mut inode);
                self.record_direct_read(&mut inode);
                attributes(&inode, block_size)
            }
            _ => attributes(inode, block_size),
        };
        if inode.kind == Kind::Symlink && inode.flags.contains(InodeFlags::ENCRYPT) {
            // Reading a damaged symlink returns the error.
            attributes.size = self.filesystem.read_link(inode).map_or(0, |target| target.len() as u64);
        }
        attributes
    }

    /// Returns a range of a file, as a range of the image where it is contiguous, so that the kernel splices it.
    pub(crate) fn content(&self, inode: &Inode, offset: u64, size: u32) -> Result<Data<'_>, Errno> {
        if let Some(content) =
            self.writing.as_ref().and_then(|writing| writing.read(inode.number, offset, size))
        {
            return content.map(Data::Owned);
        }
        let length = inode.size.saturating_sub(offset).min(size.into()) as u32;
        if let Some(file) = &self.image
            && let Some(offset) = self.to_errno(self.filesystem.in_one_piece(inode, offset, length))?
        {
            return Ok(Data::File(FileRange { file: file.clone(), offset, length }));
        }
        let mut content = vec![0; length as usize];
        let count = self.to_errno(self.filesystem.read(inode, offset, &mut content))?;
        content.truncate(count);
        Ok(Data::Owned(content))
    }

    pub(crate) fn space(&self) -> Result<StatFs, Errno> {
        let usage = self.to_errno(self.filesystem.usage())?;
        let block_size = self.filesystem.geometry().block_size;
        Ok(StatFs {
            blocks: usage.blocks,
            bfree: usage.free,
            bavail: usage.available,
            files: usage.inodes.into(),
            ffree: usage.free_inodes.into(),
            bsize: block_size,
            namelen: shunt_ext4::MAX_NAME_BYTES as u32,
            frsize: block_size,
        })
    }
}
