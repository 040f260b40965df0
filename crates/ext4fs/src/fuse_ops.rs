//! FUSE operations: translates each request into calls of the engine. Operations that would have no effect return ENOSYS, so
//! that the kernel stops sending them. Changes that find no space are retried once after pending inodes are freed.

use std::ffi::CStr;
use std::os::fd::AsFd as _;

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{NewInodeKind, WriteSource};
use shunt_fuse::{
    Attributes, Capabilities, CreateArgs, Created, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno,
    Expiry, Fallocate, FileHandle, FileSystem, Handle, IoctlArgs, IoctlReply, LockOwner, Name, NewNode,
    NodeId, OpenArgs, Opened, ReadArgs, ReleaseArgs, RenameFlags, Request, SetAttributes, StatFs, StatxReply,
    Whence, WriteArgs, WriteData, XattrReply, XattrSet,
};

use crate::foreign_data::DataInPages;
use crate::lookup_count::ForgottenInode;
use crate::opens::{O_EXCL, may_open, rights_of, sequence_of};
use crate::{Ext4, names, setattr};

impl FileSystem for Ext4 {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        self.resume(session);
        Ok(())
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        let (Some(reaper), Ok(number)) = (&self.reaper, self.number(node)) else { return };
        let forgotten = self.lookup_counts.forget(number, lookups);
        if forgotten.is_some() {
            self.filesystem.release(number);
            self.write_errors.forget(number);
            self.writers.forget(number);
            if let Some(writing) = &self.writing {
                writing.forgotten(number);
            }
        }
        match forgotten {
            Some(ForgottenInode { unlinked: true, .. }) => reaper.free(number),
            // Failures are logged.
            Some(ForgottenInode { atime: Some(time), .. }) => drop(self.store_atime(number, time)),
            _ => {}
        }
    }

    fn destroy(&self) {
        self.finish();
    }

    async fn lookup(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        self.look_up(request, &self.inode(parent)?, name.as_bytes())
    }

    async fn getattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        let expiry = self.before_write(request, node).await?;
        let inode = self.inode(node)?;
        if let Some(handle) = handle {
            self.may_write(handle, &inode)?;
        }
        Ok((self.attributes(&inode), expiry))
    }

    async fn statx(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: Option<FileHandle>,
        _mask: u32,
    ) -> Result<StatxReply, Errno> {
        let inode = self.inode(node)?;
        Ok(StatxReply { attributes: self.attributes(&inode), expiry: self.expiry(&inode) })
    }

    async fn readlink(&self, _request: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(node)?;
        self.to_errno(self.filesystem.read_link(&inode))
    }

    async fn open(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        if !self.opens_matter() {
            // The kernel remembers ENOSYS: it never sends OPEN or RELEASE for files again, and requests name the inode
            // alone.
            return Err(Errno::NOSYS);
        }
        let inode = self.inode(node)?;
        may_open(&inode, args.flags)?;
        let opened = self.opened(request, inode.number, args.flags);
        self.require_getattr_before_write(request, node, args.flags).await;
        Ok(self.opened_mapped(request, &inode, opened))
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let made = self.make(request, parent, name.as_bytes(), NewInodeKind::Regular, args.mode, args.umask);
        let inode = match made {
            Err(Errno::EXIST) if args.flags & O_EXCL == 0 => {
                let inode = self.existing_inode(parent, name.as_bytes())?;
                may_open(&inode, args.flags)?;
                inode
            }
            made => made?,
        };
        let opened = self.opened_mapped(request, &inode, self.opened(request, inode.number, args.flags));
        let entry =
            Entry { attributes_expiry: self.expiry(&inode), ..self.entry_with_lookup(request, &inode) };
        Ok(Created { entry, opened })
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let entry = self.create_tmpfile(request, parent, args.mode, args.umask)?;
        let inode = self.inode(entry.node)?;
        let opened = self.opened_mapped(request, &inode, self.opened(request, inode.number, args.flags));
        let entry = Entry { attributes_expiry: self.expiry(&inode), ..entry };
        Ok(Created { entry, opened })
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let kind = names::new_inode_kind(&new)?;
        Ok(self.entry_with_lookup(
            request,
            &self.make(request, parent, name.as_bytes(), kind, new.mode, new.umask)?,
        ))
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let made = self.make(request, parent, name.as_bytes(), NewInodeKind::Directory, new.mode, new.umask);
        Ok(self.entry_with_lookup(request, &made?))
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        let kind = NewInodeKind::Symlink(target.to_bytes());
        Ok(self.entry_with_lookup(request, &self.make(request, parent, name.as_bytes(), kind, 0o777, 0)?))
    }

    async fn link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        Ok(self.entry_with_lookup(request, &self.add_name(request, node, new_parent, new_name.as_bytes())?))
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.remove_dentry(request, parent, name.as_bytes(), false)
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.remove_dentry(request, parent, name.as_bytes(), true)
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
        Ok((self.attributes(&inode), self.expiry(&inode)))
    }

    async fn read(&self, _request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        let inode = self.inode(node)?;
        self.note_read(&inode);
        self.content(&inode, args.offset, args.size)
    }

    async fn write(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let number = self.number(node)?;
        if args.kill_suidgid {
            self.drop_privileges(&self.inode(node)?)?;
        }
        let (offset, rights) = (args.offset, rights_of(args.handle));
        // Data that was accepted before the file became immutable is still written back.
        if !args.from_cache && self.inode(node)?.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM);
        }
        if let Some(writing) = &self.writing {
            let data = data.into_bytes()?;
            if let Some(written) = writing.write(number, offset, &data) {
                return written;
            }
            let write =
                || self.with_space(|| self.filesystem.write_as(number, offset, data[..].into(), rights));
            return writing.unmapped(number, write);
        }
        // With the write-back cache the kernel keeps the mtime and sends it by itself.
        let back = args.from_cache && request.session().negotiated().has(Capabilities::WRITEBACK_CACHE);
        let length = data.len();
        let write = |data: WriteSource<'_>| {
            self.with_space(|| match back {
                true => self.filesystem.write_back(number, offset, data, rights),
                false => self.filesystem.write_as(number, offset, data, rights),
            })
        };
        let written = match (data.kernel_pages(), &self.image) {
            (Some(pages), Some(image)) => {
                write(WriteSource::Foreign(&DataInPages { pages, image: image.as_fd() }))
            }
            _ => write(data.into_bytes()?[..].into()),
        };
        if back && let Err(errno) = written {
            self.write_back_failed(request, number, errno, length);
        }
        written
    }

    async fn fallocate(&self, request: &Request<'_>, node: NodeId, args: Fallocate) -> Result<(), Errno> {
        let (number, mode) = (self.number(node)?, setattr::fallocation(args.mode)?);
        setattr::may_allocate(&self.inode(node)?, mode)?;
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let range = (args.offset, args.length);
        self.in_steps(request, || {
            self.with_space(|| match &self.writing {
                Some(writing) => writing.fallocate(number, mode, range, rights),
                None => self.filesystem.fallocate_as(number, mode, range, rights),
            })
        })
    }

    async fn release(&self, _request: &Request<'_>, node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.closed(self.number(node)?, &args);
        if let (Some(writing), Ok(mut inode)) = (&self.writing, self.inode(node)) {
            writing.overlay(&mut inode);
            self.record_direct_read(&mut inode);
            writing.closed(inode.number);
        }
        Ok(())
    }

    async fn fsync(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        _data_only: bool,
    ) -> Result<(), Errno> {
        // The kernel sends FSYNC only when no write-back error is left to report.
        self.write_errors.mark_reported(self.number(node)?, sequence_of(handle));
        self.sync_one(node)
    }

    async fn fsyncdir(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        _data_only: bool,
    ) -> Result<(), Errno> {
        self.sync_one(node)
    }

    async fn syncfs(&self, _request: &Request<'_>) -> Result<(), Errno> {
        self.sync_all()
    }

    async fn flush(
        &self,
        _request: &Request<'_>,
        _node: NodeId,
        _handle: FileHandle,
        _owner: LockOwner,
    ) -> Result<(), Errno> {
        // The kernel remembers ENOSYS. FLUSH would report nothing, and the kernel handles locks itself.
        Err(Errno::NOSYS)
    }

    async fn opendir(&self, request: &Request<'_>, node: NodeId, _args: OpenArgs) -> Result<Opened, Errno> {
        if self.sees_all_reads() {
            return Ok(self.opened(request, self.number(node)?, 0));
        }
        // The kernel remembers ENOSYS: it never sends OPENDIR or RELEASEDIR again, and it caches listings.
        Err(Errno::NOSYS)
    }

    async fn releasedir(&self, _request: &Request<'_>, node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.closed(self.number(node)?, &ReleaseArgs { flags: 0, ..args });
        Ok(())
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
        request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        let directory = self.inode(node)?;
        self.note_listing(&directory, offset);
        self.list_plus(request, &directory, offset, out)
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
        XattrReply::fit(self.xattr(node, name)?, size)
    }

    async fn listxattr(&self, request: &Request<'_>, node: NodeId, size: u32) -> Result<XattrReply, Errno> {
        XattrReply::fit(self.xattr_names(node, request.uid())?, size)
    }

    async fn setxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        self.set_xattr(request, node, name, value, set)
    }

    async fn removexattr(&self, request: &Request<'_>, node: NodeId, name: &CStr) -> Result<(), Errno> {
        let number = self.number(node)?;
        let remove = || self.with_space(|| self.filesystem.remove_xattr(number, name.to_bytes()));
        self.once(request, || remove().map(drop), |_| Ok(()))
    }

    async fn ioctl(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        self.command(request, node, args).await
    }

    async fn lseek(
        &self,
        request: &Request<'_>,
        node: NodeId,
        _handle: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        self.write_out(request, node, offset).await?;
        self.seek(&self.inode(node)?, offset, whence)
    }

    async fn bmap(
        &self,
        _request: &Request<'_>,
        node: NodeId,
        block: u64,
        block_size: u32,
    ) -> Result<u64, Errno> {
        self.block_of(&self.inode(node)?, block, block_size)
    }
}
