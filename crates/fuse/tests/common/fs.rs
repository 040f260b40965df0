//! The test file system: a tree in memory that obeys a script.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shunt_fuse::*;

use super::locks::Locks;
use super::tree::{Content, OpenAs, Tree};
use super::{Behaviour, Call, Log};

type Script = dyn Fn(&Call) -> Behaviour + Send + Sync;
type Answered = dyn Fn(&Request<'_>, &Call) + Send + Sync;

pub struct TestFs {
    pub tree: Mutex<Tree>,
    pub log: Log,
    pub locks: Locks,
    pub expiry: Mutex<Expiry>,
    /// How files are opened that do not say it themselves.
    pub open: Mutex<OpenAs>,
    pub session: OnceLock<Handle>,
    pub destroyed: AtomicBool,
    /// FLUSH ends POSIX locks. Off, the server forgets its duty.
    pub flush_unlocks: AtomicBool,
    pub polled: Mutex<Vec<PollHandle>>,
    pub poll_events: Mutex<u32>,
    script: Mutex<Option<Arc<Script>>>,
    after: Mutex<Option<Arc<Answered>>>,
    /// Shares that were refused.
    pub refusals: Mutex<Vec<Errno>>,
}

impl TestFs {
    pub fn new() -> Self {
        Self {
            tree: Mutex::new(Tree::new()),
            log: Log::default(),
            locks: Locks::default(),
            expiry: Mutex::new(Expiry::FOREVER),
            open: Mutex::new(OpenAs::KeepCache),
            session: OnceLock::new(),
            destroyed: AtomicBool::new(false),
            flush_unlocks: AtomicBool::new(true),
            polled: Mutex::default(),
            poll_events: Mutex::new(0),
            script: Mutex::default(),
            after: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    /// From now on each request is asked what to do with it.
    pub fn script(&self, script: impl Fn(&Call) -> Behaviour + Send + Sync + 'static) {
        *self.script.lock() = Some(Arc::new(script));
    }

    /// These operations fail.
    pub fn fail(&self, ops: &'static [Opcode], errno: Errno) {
        self.script(move |call| match ops.contains(&call.op) {
            true => Behaviour::Fail(errno),
            false => Behaviour::Go,
        });
    }

    /// Called by handlers that change a directory, when done and before they answer.
    pub fn before_answer(&self, call: impl Fn(&Request<'_>, &Call) + Send + Sync + 'static) {
        *self.after.lock() = Some(Arc::new(call));
    }

    pub fn no_script(&self) {
        *self.script.lock() = None;
    }

    pub fn add(&self, parent: NodeId, name: &str, mode: u32) -> NodeId {
        let mut tree = self.tree.lock();
        let node = tree.make(mode, 0, 0);
        tree.get(parent).unwrap().names.insert(name.into(), node);
        node
    }

    pub fn add_dir(&self, parent: NodeId, name: &str) -> NodeId {
        self.add(parent, name, FileType::Directory.mode() | 0o755)
    }

    pub fn add_file(&self, name: &str, content: impl Into<Content>) -> NodeId {
        let node = self.add(NodeId::ROOT, name, FileType::Regular.mode() | 0o644);
        self.tree.lock().get(node).unwrap().content = content.into();
        node
    }

    pub fn set_content(&self, node: NodeId, content: impl Into<Content>) {
        self.tree.lock().get(node).unwrap().content = content.into();
    }

    pub fn content(&self, node: NodeId) -> Vec<u8> {
        match &self.tree.lock().get(node).unwrap().content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Static(bytes) => bytes.to_vec(),
            Content::File(file) => {
                let mut bytes = vec![0; rustix::fs::fstat(file).unwrap().st_size as usize];
                let read = rustix::io::pread(file, &mut bytes, 0).unwrap();
                bytes.truncate(read);
                bytes
            }
        }
    }

    /// Removes a name behind the kernel's back.
    pub fn remove(&self, parent: NodeId, name: &str) {
        self.tree.lock().get(parent).unwrap().names.remove(name.as_bytes());
    }

    pub fn set_open(&self, node: NodeId, open: OpenAs) {
        self.tree.lock().get(node).unwrap().open = Some(open);
    }

    pub fn lookups(&self, node: NodeId) -> u64 {
        self.tree.lock().get(node).map_or(0, |node| node.lookups)
    }

    fn call(&self, request: &Request<'_>, op: Opcode, name: &[u8], args: String) -> Call {
        Call {
            op,
            node: request.node(),
            name: name.to_vec(),
            args,
            uid: request.uid(),
            gid: request.gid(),
            pid: request.pid(),
            groups: request.supplementary_groups().collect(),
        }
    }

    async fn begin(&self, request: &Request<'_>, op: Opcode, name: &[u8], args: String) -> Result<(), Errno> {
        let call = self.call(request, op, name, args);
        self.log.add(call.clone());
        let script = self.script.lock().clone();
        match script.map_or(Behaviour::Go, |script| script(&call)) {
            Behaviour::Go => {}
            Behaviour::Fail(errno) => return Err(errno),
            Behaviour::Block(time) => std::thread::sleep(time),
            Behaviour::BlockUntil(door) => door.block(),
            Behaviour::Wait(door) => door.pass().await,
            Behaviour::UntilInterrupted => {
                request.interrupted().await;
                assert!(request.is_interrupted());
                return Err(Errno::INTR);
            }
        }
        Ok(())
    }

    fn changed(&self, request: &Request<'_>, op: Opcode, name: &[u8]) {
        let after = self.after.lock().clone();
        if let Some(after) = after {
            after(request, &self.call(request, op, name, String::new()));
        }
    }

    fn entry(&self, tree: &mut Tree, node: NodeId) -> Result<Entry, Errno> {
        let attributes = tree.attributes(node)?;
        tree.get(node)?.lookups += 1;
        Ok(Entry::new(node, attributes, *self.expiry.lock()))
    }

    fn make(&self, request: &Request<'_>, parent: NodeId, name: &[u8], mode: u32) -> Result<NodeId, Errno> {
        let mut tree = self.tree.lock();
        if tree.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let node = tree.make(mode, request.uid(), request.gid());
        tree.get(parent)?.names.insert(name.to_vec(), node);
        Ok(node)
    }

    fn opened(&self, request: &Request<'_>, node: NodeId) -> Result<Opened, Errno> {
        let (open, content) = {
            let mut tree = self.tree.lock();
            let node = tree.get(node)?;
            (node.open.unwrap_or(*self.open.lock()), node.content.clone())
        };
        let handle = FileHandle(node.0 + 1000);
        Ok(match (open, content) {
            (OpenAs::Passthrough, Content::File(file)) => {
                let shared = match request.session().passthrough() {
                    Some(passthrough) => passthrough.share(node, file.as_fd()),
                    None => Err(Errno::OPNOTSUPP),
                };
                match shared {
                    Ok(backing) => Opened::passthrough(handle, backing),
                    Err(errno) => {
                        self.refusals.lock().push(errno);
                        Opened::cached(handle)
                    }
                }
            }
            (OpenAs::Cached | OpenAs::Passthrough, _) => Opened::cached(handle),
            (OpenAs::KeepCache, _) => Opened::cached(handle).keep_cache(),
            (OpenAs::Direct, _) => Opened::direct(handle),
            (OpenAs::NoFlush, _) => Opened::cached(handle).keep_cache().no_flush(),
        })
    }

    fn kill(&self, tree: &mut Tree, node: NodeId) -> Result<(), Errno> {
        let node = tree.get(node)?;
        let mode = &mut node.attributes.mode;
        *mode &= !0o4000;
        if *mode & 0o010 != 0 {
            *mode &= !0o2000;
        }
        node.xattrs.remove(&b"security.capability"[..]);
        Ok(())
    }
}

impl Default for TestFs {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for Content {
    fn from(bytes: &[u8; N]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

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
            Ok(node) => self.entry(&mut tree, node),
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
        let gone = self.tree.lock().get(parent)?.names.remove(name.as_bytes());
        self.changed(request, Opcode::Unlink, name.as_bytes());
        gone.map(drop).ok_or(Errno::NOENT)
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.begin(request, Opcode::Rmdir, name.as_bytes(), String::new()).await?;
        let gone = self.tree.lock().get(parent)?.names.remove(name.as_bytes());
        self.changed(request, Opcode::Rmdir, name.as_bytes());
        gone.map(drop).ok_or(Errno::NOENT)
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
        let gone = self.tree.lock().get(node)?.xattrs.remove(name.to_bytes());
        gone.map(drop).ok_or(Errno::NODATA)
    }

    async fn access(&self, request: &Request<'_>, node: NodeId, mask: u32) -> Result<(), Errno> {
        self.begin(request, Opcode::Access, b"", format!("{mask}")).await?;
        let mode = self.tree.lock().get(node)?.attributes.mode;
        // Only what the tests ask: nobody may what no class may.
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
        /// `FS_IOC_GETFLAGS`, with the size of a long that its number promises.
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
        // A file that large has no bytes here: the count is all that is tested.
        Ok(range.length as usize)
    }

    async fn syncfs(&self, request: &Request<'_>) -> Result<(), Errno> {
        self.begin(request, Opcode::Syncfs, b"", String::new()).await
    }
}
