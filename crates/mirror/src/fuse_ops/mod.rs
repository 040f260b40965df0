//! The FUSE layer of the mirror: translates each request and passes it to the engine.

mod answer;
mod convert;
mod expiry;
mod idempotency;
mod lease;
pub(crate) mod listing;

use std::ffi::CStr;
use std::os::fd::AsFd;

use shunt_fuse::{
    Attributes, CopyRange, CreateArgs, Created, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno,
    Expiry, Fallocate, FileHandle, FileRange, FileSystem, Handle, IoctlArgs, IoctlReply, LockOwner, Name,
    NewNode, NodeId, OpenArgs, Opened, ReadArgs, ReleaseArgs, RenameFlags, Request, SetAttributes, StatFs,
    StatxReply, Whence, WriteArgs, WriteData, XattrReply, XattrSet, drop_fsetid,
};

use crate::lower::{self, Component};
use crate::{CacheMode, Mirror};
use convert::{caller, component};
use lease::past_leases;

const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();

impl Mirror {
    /// Starts a session. `inner` maps a node that the kernel holds open since an earlier daemon to the engine's node.
    ///
    /// # Errors
    /// The watcher of the source cannot be started.
    pub fn start_with(
        &self,
        session: &Handle,
        inner: &dyn Fn(NodeId) -> Option<NodeId>,
    ) -> std::io::Result<()> {
        self.pruner.start(session);
        if self.cache == CacheMode::Coherent {
            self.coherence.start(&self.lower, session)?;
        }
        self.start_takeover(session, inner)?;
        if let Some(passthrough) = session.passthrough()
            && let Some(tmpfile) = self.lower.create_tmpfile()
        {
            // The kernel reports only at a registration whether it accepts backing files of the source. One is tried
            // here, on a thread of its own that can give up CAP_FSETID. The result is in `Passthrough::refusal`.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    drop_fsetid().ok();
                    passthrough.share(NodeId(0), tmpfile.as_fd()).ok();
                });
            });
        }
        Ok(())
    }
}

impl FileSystem for Mirror {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        self.start_with(session, &Some)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.lower.forget(node, lookups);
        self.writable_mappings.forget(node, || self.lower.holds(node));
        self.pruner.check(&self.lower);
    }

    fn destroy(&self) {
        self.coherence.end();
        self.pruner.end();
        self.searches.end();
    }

    async fn lookup(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match name.as_bytes() {
            // Sent only to resolve a file handle.
            b"." => {
                let name_request = self.name_request(parent, Component::new(c"-")?);
                return Ok(self.entry(self.reconnected(request, parent).await?, &name_request));
            }
            b".." => {
                let name_request = self.name_request(parent, Component::new(c"-")?);
                return Ok(self.entry(self.lower.parent(parent)?, &name_request));
            }
            _ => {}
        }
        let name_request = self.name_request(parent, component(name)?);
        let pinned = self.pins.get(parent, name.as_bytes()).and_then(|node| self.lower.again(node).ok());
        let found = pinned.map_or_else(|| self.lower.lookup(parent, name_request.name), Ok);
        match (found, self.cache) {
            (Ok(found), _) => Ok(self.entry(found, &name_request)),
            // The negative entry is valid until this mount creates the name, or an event reports that another process
            // did.
            (Err(Errno::NOENT), CacheMode::Exclusive | CacheMode::Coherent) => {
                Ok(Entry::absent(self.name_expiry(&name_request)))
            }
            (Err(errno), _) => Err(errno),
        }
    }

    async fn getattr(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        let since = self.lower.moment();
        Ok(self.expiring(node, &self.lower.stat(node, handle.map(|handle| handle.0))?, since))
    }

    async fn statx(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        _mask: u32,
    ) -> Result<StatxReply, Errno> {
        let since = self.lower.moment();
        let stat = self.lower.stat(node, handle.map(|handle| handle.0))?;
        let (attributes, expiry) = self.expiring(node, &stat, since);
        Ok(StatxReply { attributes, expiry })
    }

    async fn setattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        let changes = convert::changes(set);
        let since = self.lower.moment();
        let stat = past_leases(request, || self.lower.change(node, &changes, caller(request))).await?;
        Ok(self.expiring(node, &stat, since))
    }

    async fn readlink(&self, _request: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.lower.readlink(node)
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        let name_request = self.name_request(parent, component(name)?);
        let make = || self.lower.symlink(parent, name_request.name, target, caller(request));
        let found = self.make_once(request, parent, name_request.name, make)?;
        Ok(self.entry(found, &name_request))
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let device = shunt_fuse::decode_device(new.rdev);
        let name_request = self.name_request(parent, component(name)?);
        let make =
            || self.lower.mknod(parent, name_request.name, new.mode, device, new.umask, caller(request));
        let found = self.make_once(request, parent, name_request.name, make)?;
        Ok(self.entry(found, &name_request))
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let name_request = self.name_request(parent, component(name)?);
        let make = || self.lower.mkdir(parent, name_request.name, new.mode, new.umask, caller(request));
        let found = self.make_once(request, parent, name_request.name, make)?;
        Ok(self.entry(found, &name_request))
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let name = component(name)?;
        self.remove_once(request, || self.lower.unlink(parent, name))
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let name = component(name)?;
        self.remove_once(request, || self.lower.rmdir(parent, name))
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
        let (from, to) = ((parent, component(name)?), (new_parent, component(new_name)?));
        self.rename_once(request, from, to, flags.bits())
    }

    async fn link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        let name_request = self.name_request(new_parent, component(new_name)?);
        let found = self.link_once(request, node, new_parent, name_request.name)?;
        Ok(self.entry(found, &name_request))
    }

    async fn open(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        if self.serves_without_open(request.session()) {
            // The kernel remembers ENOSYS: it never sends OPEN or RELEASE for files again, and requests name the inode
            // alone.
            return Err(Errno::NOSYS);
        }
        let opening = self.open_below(request, node, args).await?;
        Ok(self.opened(request, opening, args.flags))
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let flags = args.flags;
        let name_request = self.name_request(parent, component(name)?);
        let (found, opening) = self.create_once(request, parent, name_request.name, &args)?;
        // The open goes first: it decides how long the kernel may cache the attributes of the entry.
        let opened = self.made(request, &found, opening, flags);
        Ok(Created { entry: self.entry(found, &name_request), opened })
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let CreateArgs { flags, mode, umask, .. } = args;
        // A temporary file has no name to cache.
        let name_request = self.name_request(parent, Component::new(c"-")?);
        let (found, opening) = self.lower.tmpfile(parent, flags, mode, umask, caller(request))?;
        // The open goes first: it decides how long the kernel may cache the attributes of the entry.
        let opened = self.made(request, &found, opening, flags);
        Ok(Created { entry: self.entry(found, &name_request), opened })
    }

    async fn read(&self, request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        let file = self.file(request, node, args.handle, false).await?;
        Ok(Data::File(FileRange { file, offset: args.offset, length: args.size }))
    }

    async fn write(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let file = self.file(request, node, args.handle, true).await?;
        // The kernel computed the offset from a file size that others may have changed in the source. Pages written
        // back from the cache have a fixed offset.
        let appends = args.flags & O_APPEND != 0 && !args.from_cache;
        self.lower.writing(file.as_fd(), args.kill_suidgid, caller(request), || match appends {
            true => shunt_fuse::append_once(request, file.as_fd(), data),
            false => data.write_to(file.as_fd(), args.offset),
        })
    }

    async fn flush(
        &self,
        request: &Request<'_>,
        _node: NodeId,
        handle: FileHandle,
        _owner: LockOwner,
    ) -> Result<(), Errno> {
        if self.serves_without_open(request.session()) {
            // The kernel remembers ENOSYS. A close has no error to report here, and the kernel handles locks itself.
            return Err(Errno::NOSYS);
        }
        self.lower.flush(handle.0)
    }

    async fn release(&self, _request: &Request<'_>, _node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.lower.close(args.handle.0);
        Ok(())
    }

    async fn fsync(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<(), Errno> {
        lower::sync(self.file(request, node, handle, false).await?.as_fd(), data_only)
    }

    async fn opendir(&self, request: &Request<'_>, node: NodeId, _args: OpenArgs) -> Result<Opened, Errno> {
        if self.lists_without_open(request) {
            // The kernel remembers ENOSYS: it never sends OPENDIR or RELEASEDIR again, and it caches listings.
            return Err(Errno::NOSYS);
        }
        Ok(Opened::cached(FileHandle(self.lower.open_dir(node, caller(request))?)))
    }

    async fn readdir(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        self.list_names(request, node, handle, offset, out, &mut listing::Unfiltered(self))
    }

    async fn readdirplus(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.list_entries(request, node, handle, offset, out, &mut listing::Unfiltered(self))
    }

    async fn releasedir(&self, request: &Request<'_>, _node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        if let Some(handle) = self.dir_handle(request, args.handle) {
            self.lower.close_dir(handle);
        }
        Ok(())
    }

    async fn fsyncdir(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<(), Errno> {
        self.lower.sync_dir(node, self.dir_handle(request, handle), data_only)
    }

    async fn statfs(&self, _request: &Request<'_>, node: NodeId) -> Result<StatFs, Errno> {
        Ok(answer::statfs(&self.lower.statvfs(node)?))
    }

    async fn setxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        self.has_xattrs()?;
        self.setxattr_once(request, node, name, value, set)
    }

    async fn getxattr(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        self.has_xattrs()?;
        Ok(convert::xattr(self.lower.getxattr(node, name, size as usize)?))
    }

    async fn listxattr(&self, request: &Request<'_>, node: NodeId, size: u32) -> Result<XattrReply, Errno> {
        self.has_xattrs()?;
        Ok(convert::xattr(self.lower.listxattr(node, size as usize, caller(request))?))
    }

    async fn removexattr(&self, request: &Request<'_>, node: NodeId, name: &CStr) -> Result<(), Errno> {
        self.has_xattrs()?;
        self.removexattr_once(request, node, name)
    }

    async fn ioctl(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        let handle = (!args.directory).then_some(args.handle.0);
        let ioctl = || self.lower.ioctl(node, handle, args.command, args.data, args.out_size as usize);
        let (result, data) = past_leases(request, ioctl).await?;
        // A directory that becomes case-insensitive is empty, so only negative entries of it can be cached.
        let keeps = matches!(self.cache, CacheMode::Coherent | CacheMode::Exclusive);
        if args.directory && keeps && self.lower.flags_changed(node) {
            request.session().caches().invalidate_all();
        }
        Ok(IoctlReply { result, data })
    }

    async fn fallocate(&self, request: &Request<'_>, node: NodeId, args: Fallocate) -> Result<(), Errno> {
        let Fallocate { handle, offset, length, mode } = args;
        let file = self.file(request, node, handle, true).await?;
        let gave_up = || request.is_interrupted();
        // The kernel sends no mode that moves data (collapse, insert), so the request is idempotent.
        self.lower.fallocate(file.as_fd(), mode, offset, length, caller(request), gave_up)
    }

    async fn lseek(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        lower::seek(self.file(request, node, handle, false).await?.as_fd(), offset, whence == Whence::Hole)
    }

    async fn copy_file_range(
        &self,
        request: &Request<'_>,
        node_in: NodeId,
        node_out: NodeId,
        range: CopyRange,
    ) -> Result<usize, Errno> {
        // Interrupts are ignored: one step is short, and the kernel does not restart a call that got EINTR.
        let source = self.file(request, node_in, range.handle_in, false).await?;
        let target = self.file(request, node_out, range.handle_out, true).await?;
        let (from, to) = ((source.as_fd(), range.offset_in), (target.as_fd(), range.offset_out));
        let length = usize::try_from(range.length).unwrap_or(usize::MAX);
        self.lower.copy(from, to, length, caller(request))
    }

    async fn syncfs(&self, _request: &Request<'_>) -> Result<(), Errno> {
        self.lower.sync_all()
    }
}
