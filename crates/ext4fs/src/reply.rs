//! Answers that several operations share.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Error, Inode, Kind, ROOT};
use shunt_fuse::{Attributes, Data, Entry, Errno, Expiry, FileRange, NodeId, StatFs};

use crate::Ext4;
use crate::attributes::{attributes, timestamp};

/// The node of an inode: its number, but for the root, whose node is always 1. No name leads to inode 1.
pub(crate) fn node(number: u32) -> NodeId {
    if number == ROOT { NodeId::ROOT } else { NodeId(number.into()) }
}

impl Ext4 {
    /// The number of a node's inode.
    pub(crate) fn number(&self, node: NodeId) -> Result<u32, Errno> {
        let number = match node {
            NodeId::ROOT => ROOT,
            NodeId(number) => u32::try_from(number).map_err(|_| Errno::STALE)?,
        };
        let geometry = self.filesystem.geometry();
        let named = number == ROOT || (geometry.first_inode..=geometry.inodes).contains(&number);
        if named { Ok(number) } else { Err(Errno::STALE) }
    }

    /// The inode of a node. A file handle that somebody kept may name any.
    pub(crate) fn inode(&self, node: NodeId) -> Result<Inode, Errno> {
        match self.filesystem.inode(self.number(node)?) {
            Err(Error::NotFound) => Err(Errno::STALE),
            inode => Ok(self.as_read(self.told(inode)?)),
        }
    }

    /// The result in the words of FUSE.
    pub(crate) fn told<T>(&self, result: shunt_ext4::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| {
            if self.ends_at_damage && matches!(error, Error::Corrupt(_)) && self.filesystem.is_writable() {
                self.filesystem.give_up(&error);
            }
            self.damage.errno(&error)
        })
    }

    /// As [`entry`](Self::entry), and the kernel knows the inode from now on.
    pub(crate) fn tell(&self, inode: &Inode) -> Entry {
        if self.is_writable() {
            self.known.tell(inode.number);
        }
        self.entry(inode)
    }

    /// What the kernel may know of an inode: for ever, since nobody else changes the image, unless its writes are to ask.
    pub(crate) fn entry(&self, inode: &Inode) -> Entry {
        let mut attributes = self.attributes(inode);
        if let Some(read) = self.unstored_read(inode.number) {
            attributes.atime = timestamp(read);
        }
        let generation = inode.generation.into();
        let attributes_expiry = self.expiry(inode);
        Entry { generation, attributes_expiry, ..Entry::new(node(inode.number), attributes, Expiry::FOREVER) }
    }

    /// What `stat` tells of an inode. An encrypted link is as long as what is shown of it.
    pub(crate) fn attributes(&self, inode: &Inode) -> Attributes {
        let block_size = self.filesystem.geometry().block_size;
        let mut attributes = match &self.writing {
            Some(writing) if inode.kind == Kind::Regular => {
                let mut inode = inode.clone();
                writing.overlay(&mut inode);
                self.note_read_past_us(&mut inode);
                attributes(&inode, block_size)
            }
            _ => attributes(inode, block_size),
        };
        if inode.kind == Kind::Symlink && inode.flags.contains(InodeFlags::ENCRYPT) {
            // Who reads a damaged one gets the error.
            attributes.size = self.filesystem.read_link(inode).map_or(0, |target| target.len() as u64);
        }
        attributes
    }

    /// A part of a file: a stretch of the image where it lies in one piece, so that the kernel moves it.
    pub(crate) fn content(&self, inode: &Inode, offset: u64, size: u32) -> Result<Data<'_>, Errno> {
        if let Some(content) =
            self.writing.as_ref().and_then(|writing| writing.read(inode.number, offset, size))
        {
            return content.map(Data::Owned);
        }
        let length = inode.size.saturating_sub(offset).min(size.into()) as u32;
        if let Some(file) = &self.image
            && let Some(offset) = self.told(self.filesystem.in_one_piece(inode, offset, length))?
        {
            return Ok(Data::File(FileRange { file: file.clone(), offset, length }));
        }
        let mut content = vec![0; length as usize];
        let count = self.told(self.filesystem.read(inode, offset, &mut content))?;
        content.truncate(count);
        Ok(Data::Owned(content))
    }

    pub(crate) fn space(&self) -> Result<StatFs, Errno> {
        let usage = self.told(self.filesystem.usage())?;
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
