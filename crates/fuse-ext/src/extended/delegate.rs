//! The operations of an extended file system: each calls the inner file system, and fills or invalidates the tables. Invalidation
//! happens after the operation, and also when it fails or is cancelled.

use std::ffi::CStr;

use shunt_fuse::*;

use super::open::writes;
use super::publish::LookupVersions;
use super::{Extended, SharedTables};
use crate::builtin::{KERNEL_HANDLE, Stored, Tables};

impl<F: FileSystem> Extended<F> {
    /// Returns the inode of a name that is about to be removed, whose link count and ctime change with it.
    async fn named(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Option<NodeId> {
        self.tables()?;
        let entry = self.inner.lookup(request, parent, name).await.ok()?;
        if entry.node == NodeId(0) {
            return None;
        }
        self.inner.forget(entry.node, 1);
        Some(entry.node)
    }
}

fn changed(tables: &Tables, node: Option<NodeId>) {
    if let Some(node) = node {
        tables.attributes_changed(node);
    }
}

/// Invalidates a removed name of a directory, and the inode that lost a link.
fn removed(tables: &Tables, parent: NodeId, name: Name<'_>, node: Option<NodeId>) {
    tables.name_changed(parent, name.as_bytes());
    changed(tables, node);
}

/// Releases the backing file of a removed file, which must not occupy space for the sake of a future open.
fn release_backing(learnt: &SharedTables, node: Option<NodeId>) {
    if let Some(node) = node {
        learnt.open_cache.evict(node);
    }
}

impl<F: FileSystem> FileSystem for Extended<F> {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        for file in session.takeover().map_or(&[][..], |takeover| takeover.files()) {
            self.shared.opens.opened_before(file.node, file.flags);
        }
        self.shared.open_cache.start(session);
        self.listen(session);
        // Before the file system starts: after a takeover it invalidates entries that it did not observe meanwhile, and the tables of
        // the earlier program, which nobody invalidates, must not answer afterwards.
        self.attach(session);
        self.inner.start(session).inspect_err(|_| self.detach())
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.shared.open_cache.evict(node);
        self.inner.forget(node, lookups);
    }

    fn destroy(&self) {
        self.detach();
        self.shared.open_cache.end();
        self.inner.destroy();
    }

    forward! {
        |fs| fs.inner => opendir, releasedir, fsyncdir, statfs, access, getlk, setlk, bmap, poll, syncfs
    }
    forward! {
        |fs, request, node| let _change = fs.change(|tables| tables.node_changed(node));
        fs.inner => write, setxattr, removexattr, fallocate
    }
    forward! {
        |fs, request, node| let _change = fs.change(|tables| tables.attributes_changed(node));
        fs.inner => readdir
    }

    async fn lookup(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        let since = self.tables().map(|tables| LookupVersions::now(tables, parent, name));
        let entry = self.inner.lookup(request, parent, name).await?;
        if let Some(since) = since {
            self.found(parent, name, &since, &entry);
        }
        Ok(self.expiring(entry))
    }

    async fn getattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        let since = self.tables().map(|tables| (tables.attributes_version(node), tables));
        let (attributes, expiry) = self.inner.getattr(request, node, Self::own(handle)).await?;
        self.known(since, node, (&attributes).into(), expiry);
        Ok((attributes, self.expiry(expiry)))
    }

    async fn statx(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        mask: u32,
    ) -> Result<StatxReply, Errno> {
        let since = self.tables().map(|tables| (tables.attributes_version(node), tables));
        let reply = self.inner.statx(request, node, Self::own(handle), mask).await?;
        self.known(since, node, Stored::complete(&reply.attributes), reply.expiry);
        Ok(StatxReply { expiry: self.expiry(reply.expiry), ..reply })
    }

    async fn setattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        let _change = self.change(|tables| tables.node_changed(node));
        let (attributes, expiry) = self.inner.setattr(request, node, set).await?;
        Ok((attributes, self.expiry(expiry)))
    }

    async fn readlink(&self, request: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let target = self.inner.readlink(request, node).await?;
        if let Some(tables) = self.tables() {
            tables.store_link(node, &target);
        }
        Ok(target)
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        let _change = self.change(|tables| tables.name_changed(parent, name.as_bytes()));
        self.inner.symlink(request, parent, name, target).await.map(|entry| self.expiring(entry))
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let _change = self.change(|tables| tables.name_changed(parent, name.as_bytes()));
        self.inner.mknod(request, parent, name, new).await.map(|entry| self.expiring(entry))
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let _change = self.change(|tables| tables.name_changed(parent, name.as_bytes()));
        self.inner.mkdir(request, parent, name, new).await.map(|entry| self.expiring(entry))
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let node = self.named(request, parent, name).await;
        let _change = self.change(|tables| removed(tables, parent, name, node));
        self.inner.unlink(request, parent, name).await?;
        release_backing(&self.shared, node);
        Ok(())
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let node = self.named(request, parent, name).await;
        let _change = self.change(|tables| removed(tables, parent, name, node));
        self.inner.rmdir(request, parent, name).await
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
        let moved = self.named(request, parent, name).await;
        let replaced = self.named(request, new_parent, new_name).await;
        let _change = self.change(|tables| {
            tables.name_changed(parent, name.as_bytes());
            tables.name_changed(new_parent, new_name.as_bytes());
            changed(tables, moved);
            changed(tables, replaced);
        });
        self.inner.rename(request, parent, name, new_parent, new_name, flags).await?;
        release_backing(&self.shared, replaced);
        Ok(())
    }

    async fn link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        let _change = self.change(|tables| {
            tables.attributes_changed(node);
            tables.name_changed(new_parent, new_name.as_bytes());
        });
        self.inner.link(request, node, new_parent, new_name).await.map(|entry| self.expiring(entry))
    }

    async fn open(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        let flags = args.flags;
        let _change = writes(flags).then(|| self.change(|tables| tables.node_changed(node)));
        let since = self.tables().map(|tables| tables.open_version(node));
        let mut opened = self.inner.open(request, node, args).await?;
        // A backing file that the program uses must be used by all opens.
        if let Some(backing) = self.shared.open_cache.backing(node) {
            opened.serve = Serve::Passthrough(backing);
        }
        self.shared.opens.opened(node, &opened, flags);
        if let (Some(since), Serve::Passthrough(backing)) = (since, &opened.serve)
            && self.extension.opens
            && !writes(flags)
            && (self.is_cacheable)(&self.inner, node)
        {
            self.shared.open_cache.insert(node, since, backing);
        }
        Ok(opened)
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let flags = args.flags;
        let change = self.change(|tables| tables.name_changed(parent, name.as_bytes()));
        let created = self.inner.create(request, parent, name, args).await?;
        drop(change);
        Ok(self.created(created, flags))
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let flags = args.flags;
        let created = self.inner.tmpfile(request, parent, args).await?;
        Ok(self.created(created, flags))
    }

    async fn read(&self, request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        // A read changes the access time. A file range in the reply is read after this point, but the kernel requests no
        // attributes before the reply.
        let _change = self.change(|tables| tables.attributes_changed(node));
        let read = async |handle| self.inner.read(request, node, ReadArgs { handle, ..args }).await;
        self.on_file(request, node, args.handle, read).await
    }

    async fn flush(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        if handle == KERNEL_HANDLE {
            return Ok(());
        }
        self.inner.flush(request, node, handle, owner).await
    }

    async fn release(&self, request: &Request<'_>, node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        if args.handle == KERNEL_HANDLE {
            self.shared.open_cache.closed(node);
            return Ok(());
        }
        let released = self.inner.release(request, node, args).await;
        if self.shared.opens.closed(node) {
            drop(self.change(|tables| tables.node_changed(node)));
        }
        released
    }

    async fn readdirplus(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        // Reading changes the access time: the names are stored, and the attributes of the directory itself are invalidated.
        let change = self.change(|tables| tables.attributes_changed(node));
        let since = self.tables().map(|tables| (tables.change_count(), tables));
        self.inner.readdirplus(request, node, handle, offset, out).await?;
        out.change_entries(|name, entry| self.listed(since.as_ref(), node, name, entry));
        drop(change);
        Ok(())
    }

    async fn getxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        let tables =
            self.tables().filter(|_| self.extension.xattrs && (self.is_cacheable)(&self.inner, node));
        let tables = tables.map(|tables| (tables.xattr_version(node), tables));
        let reply = self.inner.getxattr(request, node, name, size).await;
        if let Some((since, tables)) = tables {
            match &reply {
                // A write removes file capabilities, and nothing reports a write that is passed through.
                Ok(_) if self.shared.opens.written_past(node) => {}
                Ok(XattrReply::Bytes(value)) => tables.store_xattr(node, name, since, Ok(value)),
                Err(errno @ (Errno::NODATA | Errno::OPNOTSUPP)) => {
                    tables.store_xattr(node, name, since, Err(*errno));
                }
                _ => {}
            }
        }
        reply
    }

    async fn listxattr(&self, request: &Request<'_>, node: NodeId, size: u32) -> Result<XattrReply, Errno> {
        let tables =
            self.tables().filter(|_| self.extension.xattrs && (self.is_cacheable)(&self.inner, node));
        let tables = tables.map(|tables| (tables.xattr_version(node), tables));
        let reply = self.inner.listxattr(request, node, size).await;
        if let (Some((since, tables)), false) = (tables, self.shared.opens.written_past(node)) {
            // Only root sees `trusted.` attributes.
            let store = |list: &[u8]| tables.store_xattr_names(node, request.uid() == 0, since, list);
            match &reply {
                Ok(XattrReply::Bytes(list)) => store(list),
                Ok(XattrReply::Size(0)) => store(&[]),
                _ => {}
            }
        }
        reply
    }

    async fn ioctl(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        if args.directory {
            // An ioctl that makes a directory ignore case changes the meaning of names that were never looked up.
            let _change = self.change(Tables::all_changed);
            return self.inner.ioctl(request, node, args).await;
        }
        let _change = self.change(|tables| tables.node_changed(node));
        let work = async |handle| self.inner.ioctl(request, node, IoctlArgs { handle, ..args }).await;
        self.on_file(request, node, args.handle, work).await
    }

    async fn copy_file_range(
        &self,
        request: &Request<'_>,
        node_in: NodeId,
        node_out: NodeId,
        range: CopyRange,
    ) -> Result<usize, Errno> {
        let _change = self.change(|tables| {
            tables.attributes_changed(node_in);
            tables.node_changed(node_out);
        });
        let copy = async |handle_in| {
            let range = CopyRange { handle_in, ..range };
            self.inner.copy_file_range(request, node_in, node_out, range).await
        };
        self.on_file(request, node_in, range.handle_in, copy).await
    }

    async fn fsync(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<(), Errno> {
        let sync = async |handle| self.inner.fsync(request, node, handle, data_only).await;
        self.on_file(request, node, handle, sync).await
    }

    async fn lseek(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let seek = async |handle| self.inner.lseek(request, node, handle, offset, whence).await;
        self.on_file(request, node, handle, seek).await
    }
}
