//! The thin face: each request is translated, and the engine does it.

use std::ffi::CStr;

use shunt_ext4::layout::{Compat, InodeFlags};
use shunt_ext4::{Corruption, Error, Inode, Kind, ROOT};
use shunt_fuse::{
    Attributes, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno, Expiry, FileHandle, FileSystem,
    IoctlArgs, IoctlReply, LockOwner, Name, NodeId, OpenArgs, Opened, ReadArgs, Request, StatFs, StatxReply,
    Whence, XattrReply,
};

use crate::attributes::attributes;
use crate::{Ext4, flags};

impl FileSystem for Ext4 {
    async fn lookup(&self, _request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let directory = self.inode(parent)?;
        // Only to make sense of a file handle.
        if name.as_bytes() == b"." {
            return Ok(self.entry(&directory));
        }
        match self.filesystem.find(&directory, name.as_bytes()) {
            Ok(inode) if inode.number == ROOT && name.as_bytes() != b".." => {
                self.told(Err(second_root(&directory)))
            }
            Ok(inode) => Ok(self.entry(&inode)),
            // Absent until we make it.
            Err(Error::NotFound) => Ok(Entry::absent(Expiry::FOREVER)),
            Err(error) => self.told(Err(error)),
        }
    }

    async fn getattr(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        let inode = self.inode(node)?;
        Ok((attributes(&inode, self.filesystem.geometry().block_size), Expiry::FOREVER))
    }

    async fn statx(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: Option<FileHandle>,
        _mask: u32,
    ) -> Result<StatxReply, Errno> {
        let attributes = attributes(&self.inode(node)?, self.filesystem.geometry().block_size);
        Ok(StatxReply { attributes, expiry: Expiry::FOREVER })
    }

    async fn readlink(&self, _request: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(node)?;
        self.told(self.filesystem.read_link(&inode))
    }

    async fn open(&self, _request: &Request<'_>, node: NodeId, _args: OpenArgs) -> Result<Opened, Errno> {
        if !self.opens_matter() {
            // Remembered: files are never opened or released again, and every request names the inode alone.
            return Err(Errno::NOSYS);
        }
        let inode = self.inode(node)?;
        if inode.kind == Kind::Regular && inode.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Errno::NOKEY);
        }
        Ok(Opened::cached(FileHandle(0)).keep_cache())
    }

    async fn read(&self, _request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        self.content(&self.inode(node)?, args.offset, args.size)
    }

    async fn flush(
        &self,
        _request: &Request<'_>,
        _node: NodeId,
        _handle: FileHandle,
        _owner: LockOwner,
    ) -> Result<(), Errno> {
        // Remembered. Nothing is learnt at close, and locks are the kernel's own.
        Err(Errno::NOSYS)
    }

    async fn opendir(&self, _request: &Request<'_>, _node: NodeId, _args: OpenArgs) -> Result<Opened, Errno> {
        // Remembered: directories are never opened or released again, and listings are cached.
        Err(Errno::NOSYS)
    }

    async fn readdir(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        self.list(&self.inode(node)?, offset, out)
    }

    async fn readdirplus(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.list_plus(&self.inode(node)?, offset, out)
    }

    async fn statfs(&self, _request: &Request<'_>, _node: NodeId) -> Result<StatFs, Errno> {
        self.space()
    }

    async fn getxattr(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        self.has_xattrs()?;
        let inode = self.inode(node)?;
        let value = self.told(self.filesystem.xattr(&inode, name.to_bytes()))?;
        XattrReply::fit(value.ok_or(Errno::NODATA)?, size)
    }

    async fn listxattr(&self, request: &Request<'_>, node: NodeId, size: u32) -> Result<XattrReply, Errno> {
        self.has_xattrs()?;
        let names = self.told(self.filesystem.xattr_names(&self.inode(node)?))?;
        let mut list = Vec::new();
        for name in names {
            // Names that only root may know of.
            if request.uid() == 0 || !name.starts_with(b"trusted.") {
                list.extend(name);
                list.push(0);
            }
        }
        XattrReply::fit(list, size)
    }

    async fn ioctl(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        let mut data = flags::answer(&self.inode(node)?, args.command).ok_or(Errno::NOTTY)?;
        data.truncate(args.out_size as usize);
        Ok(IoctlReply { result: 0, data })
    }

    async fn lseek(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let inode = self.inode(node)?;
        let found = match whence {
            Whence::Data => self.told(self.filesystem.next_data(&inode, offset))?,
            Whence::Hole => self.told(self.filesystem.next_hole(&inode, offset))?,
        };
        found.ok_or(Errno::NXIO)
    }
}

fn second_root(directory: &Inode) -> Error {
    Corruption::new("a name leads to the root").inode(directory.number).into()
}

impl Ext4 {
    /// The inode of a name that was listed.
    pub(crate) fn follow(&self, directory: &Inode, entry: &shunt_ext4::Entry) -> Result<Inode, Error> {
        let inode = self.filesystem.follow(directory, entry)?;
        if inode.number == ROOT { Err(second_root(directory)) } else { Ok(inode) }
    }

    /// ENOSYS, which the kernel remembers, where the file system has no extended attributes at all.
    fn has_xattrs(&self) -> Result<(), Errno> {
        match self.filesystem.geometry().compat.contains(Compat::EXT_ATTR) {
            true => Ok(()),
            false => Err(Errno::NOSYS),
        }
    }
}
