//! The operations: each is logged, passed to the script, and applied to the tree.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use shunt_fuse::*;

use super::super::tree::Content;
use super::TestFs;

fn resize(content: &mut Content, size: u64) -> Result<(), Errno> {
    match content {
        Content::Bytes(bytes) => bytes.resize(size as usize, 0),
        Content::Static(_) => return Err(Errno::PERM),
        Content::File(file) => rustix::fs::ftruncate(file, size)?,
    }
    Ok(())
}

impl FileSystem for TestFs {
    fn start(&self, session: &Handle) -> std::io::Result<()> {
        self.session.set(session.clone()).ok();
        Ok(())
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.tree.lock().forget(node, lookups);
    }

    fn destroy(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
    }

    async fn lookup(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        self.begin(request, Opcode::Lookup, name.as_bytes(), String::new()).await?;
        let mut tree = self.tree.lock();
        match tree.child(parent, name.as_bytes()) {
            Ok(node) => {
                let entry = self.entry(&mut tree, node);
                drop(tree);
                let found = self.found.lock().clone();
                found.inspect(|found| found(self, node));
                entry
            }
            Err(Errno::NOENT) => Ok(Entry::absent(*self.expiry.lock())),
            Err(errno) => Err(errno),
        }
    }

    async fn getattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        self.begin(request, Opcode::Getattr, b"", format!("{handle:?}")).await?;
        Ok((self.tree.lock().attributes(node)?, *self.expiry.lock()))
    }

    async fn statx(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        mask: u32,
    ) -> Result<StatxReply, Errno> {
        self.begin(request, Opcode::Statx, b"", format!("{handle:?} {mask:#x}")).await?;
        Ok(StatxReply { attributes: self.tree.lock().attributes(node)?, expiry: *self.expiry.lock() })
    }

    async fn setattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        self.begin(request, Opcode::Setattr, b"", format!("{set:?}")).await?;
        let mut tree = self.tree.lock();
        if set.kill_suidgid {
            self.kill(&mut tree, node)?;
        }
        let held = tree.get(node)?;
        if let Some(size) = set.size {
            resize(&mut held.content, size)?;
        }
        let attributes = &mut held.attributes;
        if let Some(mode) = set.mode {
            attributes.mode = attributes.mode & !0o7777 | mode & 0o7777;
        }
        attributes.uid = set.uid.unwrap_or(attributes.uid);
        attributes.gid = set.gid.unwrap_or(attributes.gid);
        let time = |set: Option<SetTime>, old| match set {
            None => old,
            Some(SetTime::Now) => Timestamp::now(),
            Some(SetTime::At(time)) => time,
        };
        attributes.atime = time(set.atime, attributes.atime);
        attributes.mtime = time(set.mtime, attributes.mtime);
        attributes.ctime = set.ctime.unwrap_or_else(Timestamp::now);
        Ok((tree.attributes(node)?, *self.expiry.lock()))
    }

    async fn readlink(&self, request: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.begin(request, Opcode::Readlink, b"", String::new()).await?;
        Ok(self.tree.lock().get(node)?.target.clone())
    }

    async fn symlink(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry, Errno> {
        self.begin(request, Opcode::Symlink, name.as_bytes(), format!("{target:?}")).await?;
        let node = self.make(request, parent, name.as_bytes(), FileType::Symlink.mode() | 0o777)?;
        let mut tree = self.tree.lock();
        tree.get(node)?.target = target.to_bytes().to_vec();
        self.entry(&mut tree, node)
    }

    async fn mknod(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        self.begin(request, Opcode::Mknod, name.as_bytes(), format!("{new:?}")).await?;
        let node = self.make(request, parent, name.as_bytes(), new.mode)?;
        let mut tree = self.tree.lock();
        tree.get(node)?.attributes.rdev = new.rdev;
        self.entry(&mut tree, node)
    }

    async fn mkdir(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        self.begin(request, Opcode::Mkdir, name.as_bytes(), format!("{new:?}")).await?;
        let node = self.make(request, parent, name.as_bytes(), new.mode)?;
        let entry = self.entry(&mut self.tree.lock(), node)?;
        self.changed(request, Opcode::Mkdir, name.as_bytes());
        Ok(entry)
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.begin(request, Opcode::Unlink, name.as_bytes(), String::new()).await?;
        let removed = self.tree.lock().get(parent)?.names.remove(name.as_bytes());
        self.changed(request, Opcode::Unlink, name.as_bytes());
        removed.map(drop).ok_or(Errno::NOENT)
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.begin(request, Opcode::Rmdir, name.as_bytes(), String::new()).await?;
        let removed = self.tree.lock().get(parent)?.names.remove(name.as_bytes());
        self.changed(request, Opcode::Rmdir, name.as_bytes());
        removed.map(drop).ok_or(Errno::NOENT)
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
        let to = String::from_utf8_lossy(new_name.as_bytes()).into_owned();
        self.begin(request, Opcode::Rename2, name.as_bytes(), format!("{new_parent} {to} {flags:?}")).await?;
        {
            let mut tree = self.tree.lock();
            let node = tree.child(parent, name.as_bytes())?;
            let there = tree.child(new_parent, new_name.as_bytes()).ok();
            if flags.contains(RenameFlags::NOREPLACE) && there.is_some() {
                return Err(Errno::EXIST);
            }
            tree.get(parent)?.names.remove(name.as_bytes());
            tree.get(new_parent)?.names.insert(new_name.as_bytes().to_vec(), node);
            let left = match () {
                () if flags.contains(RenameFlags::EXCHANGE) => Some(there.ok_or(Errno::NOENT)?),
                () if flags.contains(RenameFlags::WHITEOUT) => {
                    Some(tree.make(FileType::CharDevice.mode(), 0, 0))
                }
                () => None,
            };
            if let Some(left) = left {
                tree.get(parent)?.names.insert(name.as_bytes().to_vec(), left);
            }
        }
        self.changed(request, Opcode::Rename2, name.as_bytes());
        Ok(())
    }

    async fn link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        self.begin(request, Opcode::Link, new_name.as_bytes(), format!("{node}")).await?;
        let mut tree = self.tree.lock();
        tree.get(new_parent)?.names.insert(new_name.as_bytes().to_vec(), node);
        tree.get(node)?.attributes.nlink += 1;
        self.entry(&mut tree, node)
    }

    async fn open(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        self.begin(request, Opcode::Open, b"", format!("{args:?}")).await?;
        if args.flags & libc::O_TRUNC as u32 != 0 {
            let mut tree = self.tree.lock();
            if args.kill_suidgid {
                self.kill(&mut tree, node)?;
            }
            resize(&mut tree.get(node)?.content, 0)?;
        }
        self.opened(request, node)
    }

    async fn create(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        self.begin(request, Opcode::Create, name.as_bytes(), format!("{args:?}")).await?;
        let mode = FileType::Regular.mode() | args.mode & 0o7777;
        let node = self.make(request, parent, name.as_bytes(), mode)?;
        let entry = self.entry(&mut self.tree.lock(), node)?;
        let opened = self.opened(request, node)?;
        self.changed(request, Opcode::Create, name.as_bytes());
        Ok(Created { entry, opened })
    }

    async fn tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        args: CreateArgs,
    ) -> Result<Created, Errno> {
        self.begin(request, Opcode::Tmpfile, b"", format!("{parent} {args:?}")).await?;
        let mode = FileType::Regular.mode() | args.mode & 0o7777;
        let entry = {
            let mut tree = self.tree.lock();
            let node = tree.make(mode, request.uid(), request.gid());
            tree.get(node)?.attributes.nlink = 0;
            self.entry(&mut tree, node)?
        };
        Ok(Created { entry, opened: self.opened(request, entry.node)? })
    }

    async fn read(&self, request: &Request<'_>, node: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        self.begin(request, Opcode::Read, b"", format!("{args:?}")).await?;
        let content = match &self.tree.lock().get(node)?.content {
            Content::Bytes(bytes) => match Data::window(bytes, args.offset, args.size) {
                Data::Slice(window) => return Ok(Data::Owned(window.to_vec())),
                _ => unreachable!(),
            },
            other => other.clone(),
        };
        Ok(match content {
            Content::Static(bytes) => Data::window(bytes, args.offset, args.size),
            Content::File(file) => Data::File(FileRange { file, offset: args.offset, length: args.size }),
            Content::Bytes(_) => unreachable!(),
        })
    }

    async fn write(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        self.begin(request, Opcode::Write, b"", format!("{args:?} length: {}", data.len())).await?;
        if args.kill_suidgid {
            self.kill(&mut self.tree.lock(), node)?;
        }
        let content = self.tree.lock().get(node)?.content.clone();
        if let Content::File(file) = content {
            return data.write_to(file.as_fd(), args.offset);
        }
        let data = data.into_bytes()?;
        match &mut self.tree.lock().get(node)?.content {
            Content::Bytes(bytes) => {
                let start = args.offset as usize;
                let end = start + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].copy_from_slice(&data);
                Ok(data.len())
            }
            _ => Err(Errno::PERM),
        }
    }

    async fn flush(
        &self,
        request: &Request<'_>,
        node: NodeId,
        _: FileHandle,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        self.begin(request, Opcode::Flush, b"", String::new()).await?;
        if self.flush_unlocks.load(Ordering::SeqCst) {
            self.locks.release(node, owner, LockKind::Posix);
        }
        Ok(())
    }

    async fn release(&self, request: &Request<'_>, node: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.begin(request, Opcode::Release, b"", format!("{args:?}")).await?;
        if let Some(owner) = args.flock_owner {
            self.locks.release(node, owner, LockKind::Flock);
        }
        Ok(())
    }

    async fn fsync(
        &self,
        request: &Request<'_>,
        _: NodeId,
        _: FileHandle,
        data_only: bool,
    ) -> Result<(), Errno> {
        self.begin(request, Opcode::Fsync, b"", format!("data_only: {data_only}")).await
    }

    async fn opendir(&self, request: &Request<'_>, node: NodeId, args: OpenArgs) -> Result<Opened, Errno> {
        self.begin(request, Opcode::Opendir, b"", format!("{args:?}")).await?;
        Ok(Opened::cached(FileHandle(node.0 + 2000)))
    }

    async fn readdir(
        &self,
        request: &Request<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        self.begin(request, Opcode::Readdir, b"", format!("{offset}")).await?;
        let mut tree = self.tree.lock();
        let names: Vec<_> = tree.get(node)?.names.clone().into_iter().enumerate().collect();
        for (index, (name, child)) in names.into_iter().skip(offset as usize) {
            let kind = tree.get(child)?.attributes.file_type();
            if !out.push(&name, child.0, kind, index as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    async fn readdirplus(
        &self,
        request: &Request<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.begin(request, Opcode::Readdirplus, b"", format!("{offset}")).await?;
        let mut tree = self.tree.lock();
        let names: Vec<_> = tree.get(node)?.names.clone().into_iter().enumerate().collect();
        for (index, (name, child)) in names.into_iter().skip(offset as usize) {
            if !out.has_room_for(&name) {
                break;
            }
            let entry = self.entry(&mut tree, child)?;
            assert!(out.push(&name, &entry, index as u64 + 1), "has_room_for promised room");
        }
        Ok(())
    }

    async fn releasedir(&self, request: &Request<'_>, _: NodeId, args: ReleaseArgs) -> Result<(), Errno> {
        self.begin(request, Opcode::Releasedir, b"", format!("{args:?}")).await
    }

    async fn fsyncdir(
        &self,
        request: &Request<'_>,
        _: NodeId,
        _: FileHandle,
        data_only: bool,
    ) -> Result<(), Errno> {
        self.begin(request, Opcode::Fsyncdir, b"", format!("data_only: {data_only}")).await
    }

    async fn statfs(&self, request: &Request<'_>, _: NodeId) -> Result<StatFs, Errno> {
        self.begin(request, Opcode::Statfs, b"", String::new()).await?;
        Ok(StatFs {
            blocks: 1000,
            bfree: 600,
            bavail: 500,
            files: 77,
            ffree: 33,
            bsize: 4096,
            namelen: 200,
            frsize: 1024,
        })
    }

    async fn setxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        self.begin(request, Opcode::Setxattr, name.to_bytes(), format!("{set:?}")).await?;
        self.tree.lock().get(node)?.xattrs.insert(name.to_bytes().to_vec(), value.to_vec());
        Ok(())
    }

    async fn getxattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        self.begin(request, Opcode::Getxattr, name.to_bytes(), format!("{size}")).await?;
        let value = self.tree.lock().get(node)?.xattrs.get(name.to_bytes()).cloned();
        XattrReply::fit(value.ok_or(Errno::NODATA)?, size)
    }

    async fn listxattr(&self, request: &Request<'_>, node: NodeId, size: u32) -> Result<XattrReply, Errno> {
        self.begin(request, Opcode::Listxattr, b"", format!("{size}")).await?;
        let mut list = Vec::new();
        for name in self.tree.lock().get(node)?.xattrs.keys() {
            list.extend(name);
            list.push(0);
        }
        XattrReply::fit(list, size)
    }

    async fn removexattr(&self, request: &Request<'_>, node: NodeId, name: &CStr) -> Result<(), Errno> {
        self.begin(request, Opcode::Removexattr, name.to_bytes(), String::new()).await?;
        let removed = self.tree.lock().get(node)?.xattrs.remove(name.to_bytes());
        removed.map(drop).ok_or(Errno::NODATA)
    }

    async fn access(&self, request: &Request<'_>, node: NodeId, mask: u32) -> Result<(), Errno> {
        self.begin(request, Opcode::Access, b"", format!("{mask}")).await?;
        let mode = self.tree.lock().get(node)?.attributes.mode;
        // Only as much as the tests need: access is denied if no permission class grants it.
        if (mode | mode >> 3 | mode >> 6) & mask == mask { Ok(()) } else { Err(Errno::ACCESS) }
    }

    async fn getlk(&self, request: &Request<'_>, node: NodeId, args: LockArgs) -> Result<LockRange, Errno> {
        self.begin(request, Opcode::Getlk, b"", format!("{args:?}")).await?;
        Ok(self.locks.find(node, &args))
    }

    async fn setlk(&self, request: &Request<'_>, node: NodeId, args: LockArgs) -> Result<(), Errno> {
        let op = if args.wait { Opcode::Setlkw } else { Opcode::Setlk };
        self.begin(request, op, b"", format!("{args:?}")).await?;
        self.locks.set(node, args).await
    }

    async fn bmap(
        &self,
        request: &Request<'_>,
        _: NodeId,
        block: u64,
        block_size: u32,
    ) -> Result<u64, Errno> {
        self.begin(request, Opcode::Bmap, b"", format!("{block} {block_size}")).await?;
        Ok(block + 4242)
    }

    async fn ioctl(
        &self,
        request: &Request<'_>,
        _: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        self.begin(request, Opcode::Ioctl, b"", format!("{args:?}")).await?;
        /// `FS_IOC_GETFLAGS`, with the size of a long that its number encodes.
        const GETFLAGS: u32 = 0x8008_6601;
        match args.command {
            GETFLAGS => Ok(IoctlReply { result: 0, data: 0x10_u64.to_ne_bytes().to_vec() }),
            _ => Err(Errno::NOTTY),
        }
    }

    async fn poll(&self, request: &Request<'_>, _: NodeId, args: PollArgs) -> Result<u32, Errno> {
        self.begin(request, Opcode::Poll, b"", format!("{args:?}")).await?;
        let ready = *self.poll_events.lock();
        if ready == 0 {
            self.polled.lock().extend(args.notify);
        }
        Ok(ready)
    }

    async fn fallocate(&self, request: &Request<'_>, node: NodeId, args: Fallocate) -> Result<(), Errno> {
        self.begin(request, Opcode::Fallocate, b"", format!("{args:?}")).await?;
        let mut tree = self.tree.lock();
        let content = &mut tree.get(node)?.content;
        let end = args.offset + args.length;
        if args.mode == 0 && content.len() < end {
            resize(content, end)?;
        }
        Ok(())
    }

    async fn lseek(
        &self,
        request: &Request<'_>,
        _: NodeId,
        _: FileHandle,
        offset: u64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        self.begin(request, Opcode::Lseek, b"", format!("{offset} {whence:?}")).await?;
        Ok(offset + if whence == Whence::Data { 100 } else { 200 })
    }

    async fn copy_file_range(
        &self,
        request: &Request<'_>,
        node_in: NodeId,
        node_out: NodeId,
        range: CopyRange,
    ) -> Result<usize, Errno> {
        self.begin(request, Opcode::CopyFileRange, b"", format!("{node_in} {node_out} {range:?}")).await?;
        // A file that large has no data here: only the count is tested.
        Ok(range.length as usize)
    }

    async fn syncfs(&self, request: &Request<'_>) -> Result<(), Errno> {
        self.begin(request, Opcode::Syncfs, b"", String::new()).await
    }
}
