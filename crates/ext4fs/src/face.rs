//! The thin face: each request is translated, and the engine does it.

use std::ffi::CStr;

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Corruption, Error, Inode, Kind, Making, ROOT, Rights};
use shunt_fuse::{
    Attributes, CreateArgs, Created, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno, Expiry,
    Fallocate, FileHandle, FileSystem, IoctlArgs, IoctlReply, LockOwner, Name, NewNode, NodeId, OpenArgs,
    Opened, ReadArgs, RenameFlags, Request, SetAttributes, StatFs, StatxReply, Whence, WriteArgs, WriteData,
    XattrReply, XattrSet,
};

use crate::attributes::attributes;
use crate::known::Held;
use crate::{Ext4, changes, flags, names};

const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_ACCMODE: u32 = rustix::fs::OFlags::RWMODE.bits();

impl FileSystem for Ext4 {
    fn forget(&self, node: NodeId, lookups: u64) {
        let (Some(reaper), Ok(number)) = (&self.reaper, self.number(node)) else { return };
        let forgotten = self.known.forget(number, lookups);
        if forgotten.is_some() {
            self.filesystem.release(number);
        }
        match forgotten {
            Some(Held { nameless: true, .. }) => reaper.free(number),
            // What fails is in the log.
            Some(Held { read: Some(time), .. }) => drop(self.store_read(number, time)),
            _ => {}
        }
    }

    fn destroy(&self) {
        self.finish();
    }

    async fn lookup(&self, _request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let directory = self.inode(parent)?;
        // Only to make sense of a file handle.
        if name.as_bytes() == b"." {
            return Ok(self.tell(&directory));
        }
        match self.filesystem.find(&directory, name.as_bytes()) {
            Ok(inode) if inode.number == ROOT && name.as_bytes() != b".." => {
                self.told(Err(second_root(&directory)))
            }
            Ok(inode) => Ok(self.tell(&inode)),
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

    async fn open(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        if !self.opens_matter() {
            // Remembered: files are never opened or released again, and every request names the inode alone.
            return Err(Errno::NOSYS);
        }
        let inode = self.inode(node)?;
        if inode.kind == Kind::Regular && inode.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Errno::NOKEY);
        }
        may_open(&inode, args.flags)?;
        Ok(self.opened(request))
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let made = self.make(request, parent, name.as_bytes(), Making::Regular, args.mode, args.umask);
        let inode = match made {
            Err(Errno::EXIST) if args.flags & O_EXCL == 0 => {
                let inode = self.made_already(parent, name.as_bytes())?;
                may_open(&inode, args.flags)?;
                inode
            }
            made => made?,
        };
        Ok(Created { entry: self.tell(&inode), opened: self.opened(request) })
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let entry = self.make_nameless(request, parent, args.mode, args.umask)?;
        Ok(Created { entry, opened: self.opened(request) })
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let what = names::making(&new)?;
        Ok(self.tell(&self.make(request, parent, name.as_bytes(), what, new.mode, new.umask)?))
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let made = self.make(request, parent, name.as_bytes(), Making::Directory, new.mode, new.umask);
        Ok(self.tell(&made?))
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        let what = Making::Symlink(target.to_bytes());
        Ok(self.tell(&self.make(request, parent, name.as_bytes(), what, 0o777, 0)?))
    }

    async fn link(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        Ok(self.tell(&self.add_name(node, new_parent, new_name.as_bytes())?))
    }

    async fn unlink(&self, _request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.take_out(parent, name.as_bytes(), false)
    }

    async fn rmdir(&self, _request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.take_out(parent, name.as_bytes(), true)
    }

    async fn rename(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.move_name(request, (parent, name.as_bytes()), (new_parent, new_name.as_bytes()), flags)
    }

    async fn setattr(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        let inode = self.change(&self.inode(node)?, set)?;
        Ok((attributes(&inode, self.filesystem.geometry().block_size), Expiry::FOREVER))
    }

    async fn read(&self, _request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        let inode = self.inode(node)?;
        self.note_read(&inode);
        self.content(&inode, args.offset, args.size)
    }

    async fn write(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let number = self.number(node)?;
        if args.kill_suidgid {
            self.drop_privileges(&self.inode(node)?)?;
        }
        let data = data.into_bytes()?;
        let rights = if args.handle == RESERVED { Rights::Reserved } else { Rights::Common };
        self.with_space(|| self.filesystem.write_as(number, args.offset, &data, rights))
    }

    async fn fallocate(&self, request: &Request<'_>, node: NodeId, args: Fallocate) -> Result<(), Errno> {
        let (number, what) = (self.number(node)?, changes::fallocation(args.mode)?);
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let range = (args.offset, args.length);
        self.with_space(|| self.filesystem.fallocate_as(number, what, range, rights))
    }

    async fn fsync(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        _data_only: bool,
    ) -> Result<(), Errno> {
        self.settle_read(self.number(node)?)?;
        self.sync()
    }

    async fn fsyncdir(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        _data_only: bool,
    ) -> Result<(), Errno> {
        self.settle_read(self.number(node)?)?;
        self.sync()
    }

    async fn syncfs(&self, _request: &Request<'_>) -> Result<(), Errno> {
        self.settle_reads()?;
        self.sync()
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

    async fn opendir(&self, request: &Request<'_>, _node: NodeId, _args: OpenArgs) -> Result<Opened, Errno> {
        if self.sees_all_reads() {
            return Ok(self.opened(request));
        }
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
        let directory = self.inode(node)?;
        self.note_listing(&directory, offset);
        self.list(&directory, offset, out)
    }

    async fn readdirplus(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        let directory = self.inode(node)?;
        self.note_listing(&directory, offset);
        self.list_plus(&directory, offset, out)
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

    async fn setxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        let (number, mode) = (self.number(node)?, changes::set_mode(set.flags)?);
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let set_it = || self.filesystem.set_xattr_as(number, name.to_bytes(), value, mode, rights);
        let inode = self.with_space(set_it)?;
        if set.acl_kill_sgid { self.drop_setgid(&inode) } else { Ok(()) }
    }

    async fn removexattr(&self, _request: &Request<'_>, node: NodeId, name: &CStr) -> Result<(), Errno> {
        let number = self.number(node)?;
        self.with_space(|| self.filesystem.remove_xattr(number, name.to_bytes())).map(drop)
    }

    async fn ioctl(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        let inode = self.inode(node)?;
        if let Some(flags) = flags::changed(&inode, args.command, args.data)? {
            self.set_flags(&inode, flags)?;
            return Ok(IoctlReply::default());
        }
        let mut data = flags::answer(&inode, args.command).ok_or(Errno::NOTTY)?;
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

/// The handle of a file that somebody opened who may have the last blocks. Handles say nothing else: each request names its
/// inode.
const RESERVED: FileHandle = FileHandle(1);
const COMMON: FileHandle = FileHandle(0);

/// The kernel does not know of these flags.
fn may_open(inode: &Inode, flags: u32) -> Result<(), Errno> {
    let writes = flags & O_ACCMODE != 0 || flags & O_TRUNC != 0;
    let appends = flags & O_APPEND != 0 && flags & O_TRUNC == 0;
    let content = matches!(inode.kind, Kind::Regular | Kind::Directory);
    let immutable = inode.flags.contains(InodeFlags::IMMUTABLE);
    let append_only = inode.flags.contains(InodeFlags::APPEND) && !appends;
    if content && writes && (immutable || append_only) { Err(Errno::PERM) } else { Ok(()) }
}

impl Ext4 {
    /// Pages are written back by nobody in particular: it counts who opened the file.
    fn opened(&self, request: &Request<'_>) -> Opened {
        let handle = match self.filesystem.rights(request.uid(), request.gid()) {
            Rights::Reserved => RESERVED,
            Rights::Common => COMMON,
        };
        let opened = Opened::cached(handle);
        if self.sees_all_reads() { opened } else { opened.keep_cache() }
    }

    /// The inode of a name that was listed.
    pub(crate) fn follow(&self, directory: &Inode, entry: &shunt_ext4::Entry) -> Result<Inode, Error> {
        let inode = self.filesystem.follow(directory, entry)?;
        if inode.number == ROOT { Err(second_root(directory)) } else { Ok(inode) }
    }

    /// ENOSYS, which the kernel remembers, where the file system has no extended attributes at all.
    fn has_xattrs(&self) -> Result<(), Errno> {
        if self.may_have_xattrs() { Ok(()) } else { Err(Errno::NOSYS) }
    }

    /// Everything that was answered lasts from here on.
    fn sync(&self) -> Result<(), Errno> {
        if self.is_writable() { self.told(self.filesystem.sync()) } else { Ok(()) }
    }
}
