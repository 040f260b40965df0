//! The FUSE layer of [`PolicyFs`]: each request is checked against the policy and then passed to the mirror.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use shunt_fuse::{
    Attributes, CopyRange, CreateArgs, Created, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno,
    Expiry, FileHandle, FileSystem, Handle, IoctlArgs, IoctlReply, Name, NewNode, NodeId, OpenArgs, Opened,
    ReadArgs, ReleaseArgs, RenameFlags, Request, Serve, SetAttributes, StatxReply, XattrReply, forward,
};
use shunt_mirror::lower::Component;
use shunt_policy::{Op, Redaction};

use crate::PolicyFs;
use crate::content::LazyContent;
use crate::decide::{ResolvedName, Target, check_outcome};
use crate::listing::PolicyFilter;
use crate::policy_inodes::{ResolvedNode, View};
use crate::redacted::Redacted;

/// The direction bit of ioctl commands that pass data in; a command that changes something has it.
const IOC_WRITE: u32 = 1 << 30;

fn component(name: Name<'_>) -> Result<Component<'_>, Errno> {
    Component::new(name.as_cstr())
}

/// Reports whether the name is that of an ACL, by which the kernel checks permissions for every user.
fn is_acl(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"system.posix_acl_")
}

impl PolicyFs {
    /// Drops lookup references of the kernel.
    pub(crate) fn forgotten(&self, node: NodeId, lookups: u64) {
        let inner = self.views.forget(node, lookups);
        self.mirror.forget(inner, lookups);
        if self.views.is_registered(inner) && !self.mirror.engine().holds(inner) {
            self.views.remove(inner);
        }
        self.unregister(node, inner);
    }

    /// Resolves a name and checks that the caller may create it.
    fn may_create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<ResolvedName, Errno> {
        let resolved = self.resolve_name(parent, component(name)?.as_cstr().to_bytes())?;
        self.check_create(request, &resolved)?;
        Ok(resolved)
    }

    /// Checks whether the caller may remove a name.
    fn may_remove(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        if request.begun().is_some() {
            // The previous daemon allowed it and may have executed it, so the name may no longer exist.
            return Ok(());
        }
        let name_in = component(name)?;
        let resolved = self.resolve_name(parent, name_in.as_cstr().to_bytes())?;
        self.check_name(request, &resolved, (parent, name_in), Op::Delete)?;
        self.ensure_not_on_graft_path(parent, name_in)
    }

    /// Checks whether the caller may open a file with these flags; returns the engine's node and the redaction.
    fn judge_open(
        &self,
        request: &Request<'_>,
        node: NodeId,
        flags: u32,
    ) -> Result<(NodeId, Option<Arc<Redaction>>), Errno> {
        let View { inner, class, redaction, path } = match self.target(node)? {
            Target::Free(inner) => return Ok((inner, None)),
            Target::Ruled(view) => view,
        };
        let rules = self.rules();
        let content = LazyContent::new(self.mirror.engine(), inner);
        let decide = |op| self.decide(request, &rules, &class, path.as_deref(), op, &content);
        let flags = OFlags::from_bits_retain(flags);
        let access = flags & OFlags::RWMODE;
        if access != OFlags::RDONLY || flags.contains(OFlags::TRUNC) {
            check_outcome(&decide(Op::Write)?.outcome, Op::Write)?;
        }
        if access == OFlags::WRONLY {
            return Ok((inner, redaction));
        }
        let read = decide(Op::Read)?;
        check_outcome(&read.outcome, Op::Read)?;
        // The kernel reached an inode that belongs to other callers. A repeated lookup finds the right one.
        if read.redaction == redaction { Ok((inner, redaction)) } else { Err(Errno::STALE) }
    }

    /// Opens a file for a caller with a redaction, which applies even if the file has nothing to redact yet.
    async fn open_redacted(
        &self,
        request: &Request<'_>,
        inner: NodeId,
        redaction: Arc<Redaction>,
        args: OpenArgs,
    ) -> Result<Opened, Errno> {
        let forwarded = OFlags::RWMODE | OFlags::TRUNC | OFlags::APPEND | OFlags::NONBLOCK;
        let args = OpenArgs { flags: args.flags & forwarded.bits(), ..args };
        let opening = self.mirror.open_below(request, inner, args).await?;
        let handle = FileHandle(opening.handle);
        if args.flags & OFlags::RWMODE.bits() == OFlags::WRONLY.bits() {
            return Ok(Opened::direct(handle));
        }
        let writable = opening.file.writable;
        match Redacted::new(opening.file, redaction) {
            Ok(file) => {
                self.redacted.add(opening.handle, file);
                // With the page cache, write-back of a page read before would write blanks into the file.
                if writable {
                    return Ok(Opened::direct(handle));
                }
                // The open drops cached pages: the file or its redacted ranges may have changed.
                Ok(Opened::cached(handle).no_flush())
            }
            Err(errno) => {
                self.mirror.engine().close(opening.handle);
                Err(errno)
            }
        }
    }
}

impl FileSystem for PolicyFs {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        self.expires_all.store(session.negotiated().minor >= shunt_fuse::MINOR_EXPIRE_ALL, Ordering::Relaxed);
        let _ = self.session.set(session.clone());
        self.start_takeover(session)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.forgotten(node, lookups);
    }

    fn destroy(&self) {
        self.mirror.destroy();
    }

    forward! { |fs| fs.mirror => releasedir, fsyncdir, syncfs }
    forward! {
        |fs, request, node| let node = fs.inner(node)?;
        fs.mirror => write, flush, fsync, lseek, statfs
    }
    forward! {
        |fs, request, node| let node = fs.unredacted_node(node)?;
        fs.mirror => fallocate
    }
    forward! {
        |fs, request, node| let node = fs.check(request, node, Op::Read)?;
        fs.mirror => readlink, listxattr
    }
    forward! {
        |fs, request, node| let node = fs.check(request, node, Op::List)?;
        fs.mirror => opendir
    }
    forward! {
        |fs, request, node| let node = fs.check(request, node, Op::Attributes)?;
        fs.mirror => setxattr, removexattr
    }

    async fn lookup(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        // `.` and `..` come from file handles, which have no path.
        let component = component(name).map_err(|_| Errno::STALE)?;
        let resolved = self.resolve_name(parent, component.as_cstr().to_bytes())?;
        let entry = self.mirror.lookup(request, parent, name).await?;
        self.shown(request, &resolved, entry)
    }

    async fn getattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        let (attributes, expiry) = self.mirror.getattr(request, self.inner(node)?, handle).await?;
        Ok((attributes, self.attributes_expiry(node, expiry)?))
    }

    async fn statx(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        mask: u32,
    ) -> Result<StatxReply, Errno> {
        let reply = self.mirror.statx(request, self.inner(node)?, handle, mask).await?;
        Ok(StatxReply { expiry: self.attributes_expiry(node, reply.expiry)?, ..reply })
    }

    async fn setattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        let by_handle = set.handle.is_some() && set.size.is_some();
        // The truncation of an open file was checked at its open.
        let op = if set.size.is_some() { Op::Write } else { Op::Attributes };
        let inner = if by_handle { self.inner(node)? } else { self.check(request, node, op)? };
        let (attributes, expiry) = self.mirror.setattr(request, inner, set).await?;
        if inner != node {
            // The kernel may also know the file by the engine's node id.
            request.session().caches().invalidate_node(inner, None);
        }
        Ok((attributes, self.attributes_expiry(node, expiry)?))
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        let resolved = self.may_create(request, parent, name)?;
        self.made(&resolved, self.mirror.symlink(request, parent, name, target).await?)
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let resolved = self.may_create(request, parent, name)?;
        self.made(&resolved, self.mirror.mknod(request, parent, name, new).await?)
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let resolved = self.may_create(request, parent, name)?;
        self.made(&resolved, self.mirror.mkdir(request, parent, name, new).await?)
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.may_remove(request, parent, name)?;
        self.mirror.unlink(request, parent, name).await
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.may_remove(request, parent, name)?;
        self.mirror.rmdir(request, parent, name).await
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
        let moved = self.check_rename(request, from, to, flags)?;
        let done = self.mirror.rename(request, parent, name, new_parent, new_name, flags).await;
        self.renamed(request, moved, to, done.is_ok());
        done
    }

    async fn link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        let (inner, resolved) = self.check_link(request, node, new_parent, component(new_name)?)?;
        let entry = self.mirror.link(request, inner, new_parent, new_name).await?;
        self.shown(request, &resolved, entry)
    }

    async fn open(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        let inner = match self.judge_open(request, node, args.flags)? {
            (inner, None) => inner,
            (inner, Some(redaction)) => {
                return self.open_redacted(request, inner, redaction, args).await;
            }
        };
        let opened = self.mirror.open(request, inner, args).await?;
        // Cached pages are kept only if the inode is the file's only one.
        let several = inner != node && matches!(opened.serve, Serve::Cached);
        Ok(if several { Opened::cached(opened.handle) } else { opened })
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let resolved = self.may_create(request, parent, name)?;
        let Created { entry, opened } = self.mirror.create(request, parent, name, args).await?;
        self.created(&resolved, entry, opened)
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        // The file has no name; this one matches no rule that names a file.
        let resolved = self.resolve_name(parent, b"\x01")?;
        self.check_create(request, &resolved)?;
        let Created { entry, opened } = self.mirror.tmpfile(request, parent, args).await?;
        self.created(&resolved, entry, opened)
    }

    async fn read(&self, request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        if let Some(file) = self.redacted.get(args.handle.0) {
            return file.read(args.offset, args.size).map(Data::Owned);
        }
        self.mirror.read(request, self.unredacted_node(node)?, args).await
    }

    async fn release(&self, request: &Request<'_>, node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.redacted.remove(args.handle.0);
        self.mirror.release(request, node, args).await
    }

    async fn readdir(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        let mut filter = PolicyFilter::new(self, request, node)?;
        self.mirror.list_names(request, node, handle, offset, out, &mut filter)
    }

    async fn readdirplus(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        let mut filter = PolicyFilter::new(self, request, node)?;
        self.mirror.list_entries(request, node, handle, offset, out, &mut filter)
    }

    async fn getxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        let for_permissions = is_acl(name) && self.mirror.engine().features().acls;
        let inner = if for_permissions { self.inner(node)? } else { self.check(request, node, Op::Read)? };
        self.mirror.getxattr(request, inner, name, size).await
    }

    async fn ioctl(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        let changes = args.command & IOC_WRITE != 0;
        let inner = if changes { self.check(request, node, Op::Attributes)? } else { self.inner(node)? };
        self.mirror.ioctl(request, inner, args).await
    }

    async fn copy_file_range(
        &self,
        request: &Request<'_>,
        node_in: NodeId,
        node_out: NodeId,
        range: CopyRange,
    ) -> Result<usize, Errno> {
        if self.redacted.get(range.handle_in.0).is_some() {
            // EXDEV makes the kernel copy by reading.
            return Err(Errno::XDEV);
        }
        let (from, to) = (self.unredacted_node(node_in)?, self.unredacted_node(node_out)?);
        self.mirror.copy_file_range(request, from, to, range).await
    }
}

impl PolicyFs {
    fn created(&self, resolved: &ResolvedName, entry: Entry, opened: Opened) -> Result<Created, Errno> {
        let handle = opened.handle;
        match self.made(resolved, entry) {
            Ok(entry) => Ok(Created { entry, opened }),
            Err(errno) => {
                self.mirror.engine().close(handle.0);
                Err(errno)
            }
        }
    }

    /// Returns EBUSY for a rename or removal of a name that leads to a graft.
    pub(crate) fn ensure_not_on_graft_path(&self, parent: NodeId, name: Component<'_>) -> Result<(), Errno> {
        match self.mirror.pins().get(parent, name.as_cstr().to_bytes()) {
            Some(_) => Err(Errno::BUSY),
            None => Ok(()),
        }
    }

    /// Returns the engine's node of a file that is open without redaction.
    fn unredacted_node(&self, node: NodeId) -> Result<NodeId, Errno> {
        match self.views.get(node)? {
            ResolvedNode::View(view) | ResolvedNode::Retired(view) if view.redaction.is_some() => {
                Err(Errno::BADF)
            }
            ResolvedNode::View(view) | ResolvedNode::Retired(view) => Ok(view.inner),
            ResolvedNode::Free(inner) | ResolvedNode::Unknown(inner) => Ok(inner),
        }
    }
}
