//! FUSE operations: translates each request into calls of the replica. Names and attributes are cached by the kernel, and
//! changes applied between the read of an inode and its reply are detected by the log position. Changes are published to peers
//! before the reply.

use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, OFlags};
use shunt_fuse::{
    Attributes, CreateArgs, Created, Data, DirectoryBuffer, DirectoryPlusBuffer, Entry, Errno, Expiry,
    Fallocate, FileHandle, FileRange, FileSystem, Handle, LockArgs, LockKind, LockOwner, LockRange, Name,
    NewNode, NodeId, OpenArgs, Opened, ReadArgs, ReleaseArgs, RenameFlags, Request, SetAttributes, StatFs,
    Whence, WriteArgs, WriteData, XattrReply, XattrSet,
};
use shunt_volume::object::Kind;
use shunt_volume::replica::{Inode, NewObject, Quota, Rename, Replica, SetAttr};

use crate::history::{ensure_live, ensure_not_reserved, is_historic, map_historic_error};
use crate::kernel_invalidator::KernelInvalidator;
use crate::readdir::OpenDirectory;
use crate::{ATTR_TTL, LEGACY_NAME_TTL, MMAP_ATTR_TTL, VolumeFs, convert, open_file};

impl VolumeFs {
    /// Returns the entry of an inode that was read at log position [`applied`](shunt_volume::replica::Replica::applied), and
    /// increments its lookup count: the inode stays in memory while the kernel holds it.
    pub(crate) fn entry(&self, inode: &Inode, applied: u64) -> Entry {
        self.replica.add_lookup(inode.ino);
        // Changes applied from now on invalidate the kernel's caches of it.
        match self.replica.applied() == applied {
            true => self.build_entry(inode),
            false => self.build_entry(self.replica.get(inode.ino).as_ref().unwrap_or(inode)),
        }
    }

    pub(crate) fn build_entry(&self, inode: &Inode) -> Entry {
        let mut entry = Entry::new(NodeId(inode.ino), self.mapped_attributes(inode), self.name_ttl());
        if inode.is_directory() {
            entry.generation = self.removed_dirs.generation(inode.ino);
        }
        let attributes_expiry = self.attr_ttl(inode);
        // The removal of one side of a conflict puts the other side in the place of this directory, and its reply precedes the
        // invalidation. So the kernel must look up the name each time.
        if inode.is_directory() && self.replica.shows_conflict(inode.ino) {
            return Entry { entry_expiry: Expiry::NEVER_CACHED, attributes_expiry, ..entry };
        }
        Entry { attributes_expiry, ..entry }
    }

    /// Creates an object. The reply is sent after peers know of it.
    async fn make(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewObject<'_>,
    ) -> Result<Entry, Errno> {
        let applied = self.replica.applied();
        let (directory, new_name) = (self.changeable(parent)?, ensure_not_reserved(name.as_bytes())?);
        let make = |replica: &Replica| replica.make(directory, new_name, new);
        let inode = self.once(request, make, |ino| self.replica.get(ino))?;
        self.changed_name(parent.0, name.as_bytes(), Some(inode.ino)).await;
        Ok(self.entry(&inode, applied))
    }

    fn attributes(&self, ino: NodeId) -> Result<(Attributes, Expiry), Errno> {
        let inode = self.inode(ino)?;
        Ok((self.mapped_attributes(&inode), self.attr_ttl(&inode)))
    }

    fn name_ttl(&self) -> Expiry {
        if self.lacks_invalidate_all.load(Ordering::Relaxed) && self.has_peers() {
            LEGACY_NAME_TTL
        } else {
            ATTR_TTL
        }
    }

    fn attr_ttl(&self, inode: &Inode) -> Expiry {
        // A reader of an older version through the page cache must request the length of that version each time.
        if self.versions.mark_size_reply(inode.ino, |session| self.replica.is_latest(inode.ino, session)) {
            return Expiry::NEVER_CACHED;
        }
        if inode.maybe_dirty && self.mappings.is_mapped(inode.ino) { MMAP_ATTR_TTL } else { ATTR_TTL }
    }
}

/// Names that the kernel reserves, or that have no meaning here.
fn is_refused(name: &[u8]) -> bool {
    name.starts_with(b"system.")
}

/// Checks whether an extended attribute of this name may be created, by the rules of the kernel's file systems.
fn check_xattr_name(name: &[u8]) -> Result<(), Errno> {
    const FAMILIES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match FAMILIES.iter().find_map(|family| name.strip_prefix(*family)) {
        None => Err(Errno::OPNOTSUPP),
        Some(b"") => Err(Errno::INVAL),
        Some(_) => Ok(()),
    }
}

impl FileSystem for VolumeFs {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        let caches = session.caches().clone();
        // A weak reference, because the replica owns these caches.
        let replica = Arc::downgrade(&self.replica);
        caches.set_is_known(move |ino| replica.upgrade().is_some_and(|replica| replica.is_looked_up(ino.0)));
        self.replica.set_caches(Arc::new(KernelInvalidator::new(
            caches,
            self.lacks_invalidate_all.clone(),
            self.versions.clone(),
            self.continued(session),
        )));
        self.start_takeover(session);
        Ok(())
    }

    fn forget(&self, ino: NodeId, lookups: u64) {
        match &self.history {
            Some(past) if is_historic(ino) => past.remove_lookups(ino.0, lookups),
            _ => {
                self.replica.remove_lookups(ino.0, lookups);
                self.removed_dirs.forget(ino.0, || !self.replica.is_looked_up(ino.0));
            }
        }
    }

    fn destroy(&self) {
        if let Err(errno) = self.replica.sync() {
            tracing::error!(
                "fsync of the replica at unmount failed: {errno}; the last changes may not be durable"
            );
        }
    }

    async fn lookup(&self, _request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        if is_historic(parent) {
            return self.lookup_historic(parent, name.as_bytes());
        }
        self.wait_before_open(parent.0).await;
        let applied = self.replica.applied();
        let found = match name.as_bytes() {
            // Only used to resolve a file handle.
            b"." => self.replica.get(parent.0),
            b".." => self.replica.parent(parent.0),
            name => self.replica.lookup(parent.0, name),
        };
        match found {
            Ok(inode) => Ok(self.entry(&inode, applied)),
            // The name stays absent until it is created, here or through synchronisation.
            Err(Errno::NOENT) => {
                let then = self.lookup_absent(parent, name.as_bytes())?;
                Ok(then.unwrap_or_else(|| Entry::absent(self.name_ttl())))
            }
            Err(errno) => Err(errno),
        }
    }

    // No STATX: a kernel that supports it sends one for each file to get its birth time, which volumes do not keep.
    async fn getattr(
        &self,
        request: &Request<'_>,
        ino: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        // Not fstat(2), which carries no handle: the kernel is about to read up to the length in the reply.
        if let Some(open) = self.older(ino, handle) {
            self.check_kernel_size(request, &open, false)?;
            let size = open.file().metadata().map_err(open_file::errno)?.len();
            return Ok((
                Attributes { size, ..self.mapped_attributes(&self.inode(ino)?) },
                Expiry::NEVER_CACHED,
            ));
        }
        self.attributes(ino)
    }

    async fn setattr(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        self.changeable(ino)?;
        if let Some(size) = set.size {
            match self.older(ino, set.handle).filter(|open| open.writes) {
                // Like writes through a handle of an older version, this changes that version.
                Some(older) => older.file().set_len(size).map_err(open_file::errno)?,
                None => self.replica.truncate(ino.0, size)?,
            }
            if set.handle.is_none() {
                self.changed_file(ino.0).await;
            }
        }
        let change = self.stored(convert::set(&self.replica.get(ino.0)?, set))?;
        if change != SetAttr::default() {
            self.replica.set(ino.0, change)?;
        }
        self.attributes(ino)
    }

    async fn readlink(&self, _request: &Request<'_>, ino: NodeId) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        if inode.kind == Kind::Symlink { Ok(inode.target.to_vec()) } else { Err(Errno::INVAL) }
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        let new = self.new_of(request, Kind::Symlink, 0o777, target.to_bytes())?;
        self.make(request, parent, name, new).await
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let kind = convert::kind(new.mode, new.rdev)?;
        let new = self.new_of(request, kind, new.mode, b"")?;
        self.make(request, parent, name, new).await
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let new = self.new_of(request, Kind::Directory, new.mode, b"")?;
        self.make(request, parent, name, new).await
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let directory = self.changeable(parent)?;
        let removed = self.once(request, |replica| replica.unlink(directory, name.as_bytes()), Ok);
        map_historic_error(name.as_bytes(), removed)?;
        self.changed_name(parent.0, name.as_bytes(), None).await;
        Ok(())
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let directory = self.changeable(parent)?;
        let removed = self.once(request, |replica| replica.rmdir(directory, name.as_bytes()), Ok);
        let gone = map_historic_error(name.as_bytes(), removed)?;
        self.removed_dirs.record_removal(gone);
        self.changed_name(parent.0, name.as_bytes(), None).await;
        Ok(())
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
        // Overlayfs takes this for the whiteout of a removed name.
        let whiteout = || self.new_of(request, Kind::Character(0, 0), 0, b"");
        let leave = flags.contains(RenameFlags::WHITEOUT).then(whiteout).transpose()?;
        let how = match flags - RenameFlags::WHITEOUT {
            RenameFlags::NOREPLACE => Rename::NoReplace,
            RenameFlags::EXCHANGE => Rename::Exchange,
            flags if flags.is_empty() => Rename::Replace,
            _ => return Err(Errno::INVAL),
        };
        let (name, new_name) = (name.as_bytes(), ensure_not_reserved(new_name.as_bytes())?);
        let (from, to) = (self.changeable(parent)?, self.changeable(new_parent)?);
        let renamed = self.once(
            request,
            |replica| replica.rename_whiteout(from, name, to, new_name, how, leave),
            |replaced| Ok((replaced != 0).then_some(replaced)),
        );
        let replaced = map_historic_error(name, renamed)?;
        replaced.into_iter().for_each(|gone| self.removed_dirs.record_removal(gone));
        self.changed_names((parent.0, name), (new_parent.0, new_name)).await;
        Ok(())
    }

    async fn link(
        &self,
        request: &Request<'_>,
        ino: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        let applied = self.replica.applied();
        let (num, directory) = (self.changeable(ino)?, self.changeable(new_parent)?);
        let name = ensure_not_reserved(new_name.as_bytes())?;
        let link = |replica: &Replica| replica.link(num, directory, name);
        let linked = self.once(request, link, |num| self.replica.get(num))?;
        self.changed_name(new_parent.0, new_name.as_bytes(), None).await;
        Ok(self.entry(&linked, applied))
    }

    async fn open(&self, request: &Request<'_>, ino: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        if is_historic(ino) {
            return self.open_historic(ino, args.flags);
        }
        self.wait_before_open(ino.0).await;
        self.open_inode(request, &self.replica.get(ino.0)?, args.flags, true).await
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let new = self.new_of(request, Kind::Regular, args.mode, b"")?;
        let applied = self.replica.applied();
        let (directory, new_name) = (self.changeable(parent)?, ensure_not_reserved(name.as_bytes())?);
        let make = |replica: &Replica| replica.make(directory, new_name, new);
        let inode = match self.once(request, make, |ino| self.replica.get(ino)) {
            // The kernel had cached the name as absent, and would treat the file as one that it created: without a permission
            // check, and without truncating it. ESTALE makes it look up the name again.
            Err(Errno::EXIST) if args.flags & OFlags::EXCL.bits() == 0 => return Err(Errno::STALE),
            made => made?,
        };
        self.changed_name(parent.0, name.as_bytes(), Some(inode.ino)).await;
        let opened = self.open_inode(request, &inode, args.flags, false).await?;
        // A mapping of an empty file is useless, and a change that extends the file sends new attributes.
        let entry = Entry { attributes_expiry: ATTR_TTL, ..self.entry(&inode, applied) };
        Ok(Created { entry, opened })
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        let new = self.new_of(request, Kind::Regular, args.mode, b"")?;
        let directory = self.changeable(parent)?;
        let create = |replica: &Replica| replica.create_tmpfile(directory, new);
        let inode = self.once(request, create, |ino| {
            let inode = self.replica.get(ino)?;
            self.replica.add_lookup(ino);
            Ok(inode)
        })?;
        match self.open_inode(request, &inode, args.flags, false).await {
            Ok(opened) => Ok(Created { entry: self.build_entry(&inode), opened }),
            Err(errno) => {
                self.replica.remove_lookups(inode.ino, 1);
                Err(errno)
            }
        }
    }

    async fn read(&self, request: &Request<'_>, ino: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        if is_historic(ino) {
            let open = self.open_historic_file(ino, args.handle)?;
            let end = args.offset.saturating_add(args.size.into());
            let file = self.fetch_historic(&open, args.offset..end)?;
            return Ok(Data::File(FileRange { file, offset: args.offset, length: args.size }));
        }
        let open = self.files.get(args.handle)?;
        self.ensure_not_deleted(&open)?;
        self.fetch_range(&open, args.offset, args.size.into())?;
        self.check_kernel_size(request, &open, true)?;
        Ok(Data::File(FileRange { file: open.data()?, offset: args.offset, length: args.size }))
    }

    async fn write(
        &self,
        request: &Request<'_>,
        ino: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let open = self.files.get(args.handle)?;
        self.ensure_not_deleted(&open)?;
        if args.kill_suidgid {
            self.replica.set(ino.0, SetAttr { drop_privileges: true, ..SetAttr::default() })?;
            if self.replica.get(ino.0)?.xattrs {
                match self.replica.set_xattr(ino.0, b"security.capability", None, Some(true)) {
                    Ok(()) | Err(Errno::NODATA) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        let appends = args.flags & OFlags::APPEND.bits() != 0 && !args.from_cache;
        let length = data.len() as u64;
        let end = |now| if appends { now } else { args.offset }.saturating_add(length);
        open_file::limited(&self.replica, &open, end, || match appends {
            true => shunt_fuse::append_once(request, open.file().as_fd(), data),
            false => data.write_to(open.file().as_fd(), args.offset),
        })
    }

    async fn flush(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        handle: FileHandle,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        if is_historic(ino) {
            return Ok(());
        }
        // Peers know the content before the lock ends: the next lock holder opens what was closed here.
        let closed = self.closing(&*self.files.get(handle)?).await;
        if let Some(locks) = &self.locks {
            locks.end(ino.0, LockKind::Posix, owner);
        }
        closed
    }

    async fn getlk(&self, _request: &Request<'_>, ino: NodeId, args: LockArgs) -> Result<LockRange, Errno> {
        let locks = self.locks.as_ref().ok_or(Errno::NOSYS)?;
        Ok(locks.get(ensure_live(ino)?, &args))
    }

    async fn setlk(&self, _request: &Request<'_>, ino: NodeId, args: LockArgs) -> Result<(), Errno> {
        let locks = self.locks.as_ref().ok_or(Errno::NOSYS)?;
        locks.set(ensure_live(ino)?, &args).await
    }

    async fn release(&self, _request: &Request<'_>, ino: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        if is_historic(ino) {
            self.historic_files.remove(args.handle);
            return Ok(());
        }
        if let Some(open) = self.files.remove(args.handle) {
            self.drop_stored(args.handle, &open);
            self.close(open).await;
        }
        if let Some(locks) = &self.locks {
            locks.end_of(ino.0, args.handle);
            if let Some(owner) = args.flock_owner {
                locks.end(ino.0, LockKind::Flock, owner);
            }
        }
        Ok(())
    }

    async fn fsync(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        handle: FileHandle,
        _data_only: bool,
    ) -> Result<(), Errno> {
        if is_historic(ino) {
            return Ok(());
        }
        let open = self.files.get(handle)?;
        match open.writes {
            true => self.replica.sync_open(ino.0, open.opened.session)?,
            false => self.replica.sync_file(ino.0)?,
        }
        open.errseq.check(&self.replica)
    }

    async fn opendir(&self, _request: &Request<'_>, ino: NodeId, _args: OpenArgs) -> Result<Opened, Errno> {
        self.wait_before_listing(ino.0).await;
        let (handle, _) = self.directories.add(OpenDirectory::new(&self.replica));
        if let Some(succession) = &self.succession {
            succession.serving.begin_listing(handle);
        }
        Ok(Opened::cached(handle))
    }

    async fn readdir(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        self.list_names(ino, (handle, &*self.directories.get(handle)?), offset, out)
    }

    async fn readdirplus(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.list_entries(ino, (handle, &*self.directories.get(handle)?), offset, out)
    }

    async fn releasedir(
        &self,
        _request: &Request<'_>,
        _node: NodeId,
        args: ReleaseArgs,
    ) -> Result<(), Errno> {
        self.directories.remove(args.handle);
        Ok(())
    }

    async fn fsyncdir(
        &self,
        _request: &Request<'_>,
        _node: NodeId,
        handle: FileHandle,
        _data_only: bool,
    ) -> Result<(), Errno> {
        self.replica.sync()?;
        self.directories.get(handle)?.errseq.check(&self.replica)
    }

    async fn syncfs(&self, _request: &Request<'_>) -> Result<(), Errno> {
        self.replica.sync()?;
        self.errseq.check(&self.replica)
    }

    async fn statfs(&self, _request: &Request<'_>, _node: NodeId) -> Result<StatFs, Errno> {
        let space = self.replica.space()?;
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (mut blocks, mut bfree, mut bavail) = (space.f_blocks, space.f_bfree, space.f_bavail);
        let (mut files, mut ffree) = (space.f_files, space.f_ffree);
        if self.replica.is_limited() {
            let Quota { used, limits, .. } = self.replica.quota()?;
            if let Some(limit) = limits.volume.bytes {
                let unit = space.f_frsize.max(1);
                (blocks, bfree) = (limit / unit, limit.saturating_sub(used.bytes) / unit);
                bavail = bavail.min(bfree);
            }
            if let Some(limit) = limits.volume.objects {
                (files, ffree) = (limit, limit.saturating_sub(used.objects));
            }
        }
        Ok(StatFs {
            blocks,
            bfree,
            bavail,
            files,
            ffree,
            bsize: narrow(space.f_bsize),
            namelen: 255,
            frsize: narrow(space.f_frsize),
        })
    }

    async fn setxattr(
        &self,
        request: &Request<'_>,
        ino: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        const CREATE: u32 = 1;
        const REPLACE: u32 = 2;
        check_xattr_name(name.to_bytes())?;
        let there = match set.flags {
            0 => None,
            CREATE => Some(false),
            REPLACE => Some(true),
            _ => return Err(Errno::INVAL),
        };
        let num = self.changeable(ino)?;
        let set = |replica: &Replica| replica.set_xattr(num, name.to_bytes(), Some(value), there);
        self.once(request, set, |_| Ok(()))
    }

    async fn getxattr(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        if is_refused(name.to_bytes()) {
            return Err(Errno::OPNOTSUPP);
        }
        if is_historic(ino) {
            let value = self.historic_xattrs(ino)?.remove(name.to_bytes()).ok_or(Errno::NODATA)?;
            return XattrReply::fit(value, size);
        }
        XattrReply::fit(self.replica.xattr(ino.0, name.to_bytes())?, size)
    }

    async fn listxattr(&self, request: &Request<'_>, ino: NodeId, size: u32) -> Result<XattrReply, Errno> {
        let mut list = Vec::new();
        let names = match is_historic(ino) {
            true => self.historic_xattrs(ino)?.into_keys().collect(),
            false => self.replica.xattr_names(ino.0)?,
        };
        for name in names {
            let shown = request.uid() == 0 || !name.starts_with(b"trusted.");
            if shown && !is_refused(&name) {
                list.extend(name);
                list.push(0);
            }
        }
        XattrReply::fit(list, size)
    }

    async fn removexattr(&self, request: &Request<'_>, ino: NodeId, name: &CStr) -> Result<(), Errno> {
        if is_refused(name.to_bytes()) {
            return Err(Errno::OPNOTSUPP);
        }
        let num = self.changeable(ino)?;
        let remove = |replica: &Replica| replica.set_xattr(num, name.to_bytes(), None, Some(true));
        self.once(request, remove, |_| Ok(()))
    }

    async fn fallocate(&self, _request: &Request<'_>, ino: NodeId, args: Fallocate) -> Result<(), Errno> {
        self.changeable(ino)?;
        let open = self.files.get(args.handle)?;
        let keeps = args.mode & FallocateFlags::KEEP_SIZE.bits() != 0;
        let end = |now| if keeps { now } else { args.offset.saturating_add(args.length) };
        open_file::limited(&self.replica, &open, end, || {
            open_file::fallocate(&open, args.mode, args.offset, args.length)
        })
    }

    async fn lseek(
        &self,
        _request: &Request<'_>,
        ino: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        if is_historic(ino) {
            let open = self.open_historic_file(ino, handle)?;
            let whole = self.fetch_historic(&open, 0..u64::MAX)?;
            return open_file::seek_in(&whole, offset, whence == Whence::Hole);
        }
        open_file::seek(&*self.files.get(handle)?, offset, whence == Whence::Hole)
    }
}
