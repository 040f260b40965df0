//! The operations of the in-memory file system.

use std::ffi::CStr;

use shunt_fuse::{
    Attributes, CopyRange, CreateArgs, Created, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno,
    Expiry, Fallocate, FileHandle, FileSystem, FileType, LockOwner, Name, NewNode, NodeId, OpenArgs, Opened,
    ReadArgs, ReleaseArgs, RenameFlags, Request, SetAttributes, StatFs, StatxReply, Whence, WriteArgs,
    WriteData, XattrReply, XattrSet,
};

use super::tree::{Directory, Kind, Tree};
use super::{MemFs, State};

const EXPIRY: Expiry = Expiry::FOREVER;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
/// Maximum size of the value of an extended attribute in bytes, the kernel's limit.
const XATTR_SIZE_MAX: usize = 64 << 10;

impl Tree {
    /// Makes an entry for a reply, and counts a lookup.
    fn entry(&mut self, id: u64) -> Result<Entry, Errno> {
        let node = self.node_mut(id)?;
        node.lookups += 1;
        Ok(Entry::new(NodeId(id), node.stat(), EXPIRY))
    }

    fn contents(&self, id: u64) -> Result<&Vec<u8>, Errno> {
        match &self.node(id)?.kind {
            Kind::File(bytes) => Ok(bytes),
            Kind::Directory(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }
}

impl State {
    fn window(&self, id: u64, handle: u64, offset: u64, size: u64) -> Result<Vec<u8>, Errno> {
        let bytes = self.tree.contents(self.opened(id, handle)?)?;
        let start = offset.min(bytes.len() as u64) as usize;
        let end = offset.saturating_add(size).min(bytes.len() as u64) as usize;
        Ok(bytes[start..end].to_vec())
    }
}

fn owner(request: &Request<'_>) -> (u32, u32) {
    (request.uid(), request.gid())
}

fn mode(mode: u32, umask: u32, kind: u32) -> u32 {
    mode & 0o7777 & !(umask & 0o777) | kind
}

impl FileSystem for MemFs {
    fn forget(&self, node: NodeId, lookups: u64) {
        self.state.lock().tree.forget(node.0, lookups);
    }

    async fn lookup(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let tree = &mut self.state.lock().tree;
        let id = tree.child(parent.0, name.as_bytes())?;
        tree.entry(id)
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((self.state.lock().tree.node(node.0)?.stat(), EXPIRY))
    }

    async fn statx(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
        _: u32,
    ) -> Result<StatxReply, Errno> {
        Ok(StatxReply { attributes: self.state.lock().tree.node(node.0)?.stat(), expiry: EXPIRY })
    }

    async fn setattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((self.state.lock().tree.set(node.0, set)?, EXPIRY))
    }

    async fn readlink(&self, _: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        match &self.state.lock().tree.node(node.0)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        let kind = Kind::Symlink(target.to_bytes().to_vec());
        let tree = &mut self.state.lock().tree;
        let id = tree.make(parent.0, name.as_bytes(), kind, libc::S_IFLNK | 0o777, 0, owner(request))?;
        tree.entry(id)
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let (kind, bits) = match new.mode & libc::S_IFMT {
            0 | libc::S_IFREG => (Kind::File(Vec::new()), libc::S_IFREG),
            bits @ (libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK) => (Kind::Special, bits),
            _ => return Err(Errno::INVAL),
        };
        let mode = mode(new.mode, new.umask, bits);
        let tree = &mut self.state.lock().tree;
        let id = tree.make(parent.0, name.as_bytes(), kind, mode, new.rdev, owner(request))?;
        tree.entry(id)
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let kind = Kind::Directory(Directory::default());
        let mode = mode(new.mode, new.umask, libc::S_IFDIR);
        let tree = &mut self.state.lock().tree;
        let id = tree.make(parent.0, name.as_bytes(), kind, mode, 0, owner(request))?;
        tree.entry(id)
    }

    async fn unlink(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.state.lock().tree.unlink(parent.0, name.as_bytes())
    }

    async fn rmdir(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.state.lock().tree.rmdir(parent.0, name.as_bytes())
    }

    async fn rename(
        &self,
        _: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        self.state.lock().tree.rename(from, to, flags)
    }

    async fn link(
        &self,
        _: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        let tree = &mut self.state.lock().tree;
        tree.link(node.0, new_parent.0, new_name.as_bytes())?;
        tree.entry(node.0)
    }

    async fn open(&self, _: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        let state = &mut *self.state.lock();
        state.tree.contents(node.0)?;
        if args.flags & libc::O_TRUNC as u32 != 0 {
            state.tree.resize(node.0, 0)?;
        }
        Ok(Opened::cached(FileHandle(state.open(node.0)?)))
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let state = &mut *self.state.lock();
        let mode = mode(args.mode, args.umask, libc::S_IFREG);
        let file = Kind::File(Vec::new());
        let id = state.tree.make(parent.0, name.as_bytes(), file, mode, 0, owner(request))?;
        let opened = Opened::cached(FileHandle(state.open(id)?));
        Ok(Created { entry: state.tree.entry(id)?, opened })
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let state = &mut *self.state.lock();
        state.tree.directory(parent.0)?;
        let mode = mode(args.mode, args.umask, libc::S_IFREG);
        let id = state.tree.make_orphan(Kind::File(Vec::new()), mode, 0, owner(request))?;
        state.tree.node_mut(id)?.attributes.nlink = 0;
        let opened = Opened::cached(FileHandle(state.open(id)?));
        Ok(Created { entry: state.tree.entry(id)?, opened })
    }

    async fn read(&self, _: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        let state = self.state.lock();
        state.window(node.0, args.handle.0, args.offset, args.size.into()).map(Data::Owned)
    }

    async fn write(
        &self,
        _: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let data = data.into_bytes()?;
        let state = &mut *self.state.lock();
        state.tree.write(state.opened(node.0, args.handle.0)?, args.offset, &data)?;
        Ok(data.len())
    }

    async fn flush(
        &self,
        _: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        _: LockOwner,
    ) -> Result<(), Errno> {
        self.state.lock().opened(node.0, handle.0).map(drop)
    }

    async fn release(&self, _: &Request<'_>, _: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.state.lock().release(args.handle.0)
    }

    async fn fsync(&self, _: &Request<'_>, node: NodeId, handle: FileHandle, _: bool) -> Result<(), Errno> {
        self.state.lock().opened(node.0, handle.0).map(drop)
    }

    async fn opendir(&self, _: &Request<'_>, node: NodeId, _: OpenArgs) -> Result<Opened, Errno> {
        let state = &mut *self.state.lock();
        state.tree.directory(node.0)?;
        Ok(Opened::cached(FileHandle(state.open(node.0)?)))
    }

    async fn readdir(
        &self,
        _: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        let state = self.state.lock();
        let directory = state.tree.directory(state.opened(node.0, handle.0)?)?;
        let dots = [(&b"."[..], 1, node.0), (b"..", 2, directory.parent)];
        let lines = dots.into_iter().filter(|&(_, at, _)| at > offset).chain(directory.from(offset.max(2)));
        for (name, at, id) in lines {
            if !out.push(name, id, state.tree.file_type(id), at) {
                break;
            }
        }
        Ok(())
    }

    async fn readdirplus(
        &self,
        _: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        let state = &mut *self.state.lock();
        let directory = state.tree.directory(state.opened(node.0, handle.0)?)?;
        for (name, at, id) in [(&b"."[..], 1, node.0), (b"..", 2, directory.parent)] {
            if at > offset && !out.push_name(name, id, FileType::Directory, at) {
                return Ok(());
            }
        }
        // No more than can fit: each takes 152 bytes and its name.
        let lines = directory.from(offset.max(2)).map(|(name, at, id)| (name.to_vec(), at, id));
        for (name, at, id) in lines.take(8192).collect::<Vec<_>>() {
            if !out.has_room_for(&name) {
                break;
            }
            out.push(&name, &state.tree.entry(id)?, at);
        }
        Ok(())
    }

    async fn releasedir(&self, _: &Request<'_>, _: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.state.lock().release(args.handle.0)
    }

    async fn fsyncdir(
        &self,
        _: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        _: bool,
    ) -> Result<(), Errno> {
        self.state.lock().opened(node.0, handle.0).map(drop)
    }

    async fn statfs(&self, _: &Request<'_>, _: NodeId) -> Result<StatFs, Errno> {
        let state = self.state.lock();
        let (limits, used) = (state.tree.limits, state.tree.bytes);
        let free = limits.total.saturating_sub(used) / 4096;
        Ok(StatFs {
            blocks: limits.total / 4096,
            bfree: free,
            bavail: free,
            files: limits.nodes as u64,
            ffree: limits.nodes.saturating_sub(state.tree.nodes.len()) as u64,
            bsize: 4096,
            namelen: 255,
            frsize: 4096,
        })
    }

    async fn setxattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        let state = &mut *self.state.lock();
        let limit = state.tree.limits.xattrs;
        let xattrs = &mut state.tree.node_mut(node.0)?.xattrs;
        let there = xattrs.contains_key(name.to_bytes());
        if value.len() > XATTR_SIZE_MAX {
            return Err(Errno::TOOBIG);
        }
        match set.flags {
            XATTR_CREATE if there => return Err(Errno::EXIST),
            XATTR_REPLACE if !there => return Err(Errno::NODATA),
            0 | XATTR_CREATE | XATTR_REPLACE => {}
            _ => return Err(Errno::INVAL),
        }
        let others = xattrs.iter().filter(|(other, _)| *other != name.to_bytes());
        let used: usize = others.map(|(name, value)| name.len() + value.len()).sum();
        if used + name.count_bytes() + value.len() > limit {
            return Err(Errno::NOSPC);
        }
        xattrs.insert(name.to_bytes().to_vec(), value.to_vec());
        Ok(())
    }

    async fn getxattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        let state = self.state.lock();
        let value = state.tree.node(node.0)?.xattrs.get(name.to_bytes()).ok_or(Errno::NODATA)?;
        XattrReply::fit(value.clone(), size)
    }

    async fn listxattr(&self, _: &Request<'_>, node: NodeId, size: u32) -> Result<XattrReply, Errno> {
        let state = self.state.lock();
        let names = state.tree.node(node.0)?.xattrs.keys();
        XattrReply::fit(names.flat_map(|name| name.iter().copied().chain([0])).collect(), size)
    }

    async fn removexattr(&self, _: &Request<'_>, node: NodeId, name: &CStr) -> Result<(), Errno> {
        let state = &mut *self.state.lock();
        let removed = state.tree.node_mut(node.0)?.xattrs.remove(name.to_bytes());
        removed.map(drop).ok_or(Errno::NODATA)
    }

    async fn fallocate(&self, _: &Request<'_>, node: NodeId, args: Fallocate) -> Result<(), Errno> {
        let state = &mut *self.state.lock();
        let id = state.opened(node.0, args.handle.0)?;
        let end = args.offset.checked_add(args.length).ok_or(Errno::FBIG)?;
        let size = state.tree.contents(id)?.len() as u64;
        match args.mode {
            0 if end > size => state.tree.resize(id, end),
            0 => Ok(()),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    async fn lseek(
        &self,
        _: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let state = self.state.lock();
        let size = state.tree.contents(state.opened(node.0, handle.0)?)?.len() as u64;
        match whence {
            _ if offset >= size => Err(Errno::NXIO),
            Whence::Data => Ok(offset),
            Whence::Hole => Ok(size),
        }
    }

    async fn copy_file_range(
        &self,
        _: &Request<'_>,
        node_in: NodeId,
        node_out: NodeId,
        range: CopyRange,
    ) -> Result<usize, Errno> {
        let state = &mut *self.state.lock();
        let id = state.opened(node_out.0, range.handle_out.0)?;
        let data = state.window(node_in.0, range.handle_in.0, range.offset_in, range.length)?;
        state.tree.write(id, range.offset_out, &data)?;
        Ok(data.len())
    }
}
