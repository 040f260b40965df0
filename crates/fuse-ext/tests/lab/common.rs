//! A small file system in memory, and a mount of it with the extension.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use shunt_fuse::mount::{MountOptions, Unmount};
use shunt_fuse::*;
use shunt_fuse_ext::{AccessTimes, Extended, Extension, builtin};

/// Reports whether the module is loaded; without it the tests are skipped.
pub fn module_is_here() -> bool {
    let here = Path::new("/sys/module/shunt_fuse_ext").exists();
    if !here {
        eprintln!("skipped: the module shunt_fuse_ext is not loaded");
    }
    here
}

#[derive(Debug, Clone)]
pub struct File {
    pub mode: u32,
    pub size: u64,
    pub links: u32,
    pub xattrs: HashMap<Vec<u8>, Vec<u8>>,
}

/// A file system of nodes, names in directories and lookup counts, which counts every request.
#[derive(Default)]
pub struct CountingFs {
    pub nodes: Mutex<HashMap<u64, File>>,
    pub names: Mutex<HashMap<(u64, Vec<u8>), u64>>,
    pub lookups: Mutex<HashMap<u64, i64>>,
    pub requests: AtomicU64,
    next: AtomicU64,
    /// Errors that FORGET detected.
    pub wrong: Mutex<Vec<String>>,
}

impl CountingFs {
    pub fn new() -> Self {
        let small = Self { next: AtomicU64::new(2), ..Self::default() };
        small.nodes.lock().unwrap().insert(1, File::new(0o040_777));
        small
    }

    pub fn add(&self, parent: u64, name: &str, mode: u32) -> u64 {
        let node = self.next.fetch_add(1, Ordering::Relaxed);
        self.nodes.lock().unwrap().insert(node, File::new(mode));
        self.names.lock().unwrap().insert((parent, name.into()), node);
        node
    }

    /// Sets an extended attribute, as if it had been there at the mount.
    pub fn set_xattr(&self, node: u64, name: &str, value: &[u8]) {
        let mut nodes = self.nodes.lock().unwrap();
        nodes.get_mut(&node).unwrap().xattrs.insert(name.into(), value.to_vec());
    }

    fn entry(&self, node: u64) -> Result<Entry, Errno> {
        let attributes = self.attributes(node)?;
        *self.lookups.lock().unwrap().entry(node).or_default() += 1;
        Ok(Entry::new(NodeId(node), attributes, Expiry::FOREVER))
    }

    fn attributes(&self, node: u64) -> Result<Attributes, Errno> {
        let nodes = self.nodes.lock().unwrap();
        let file = nodes.get(&node).ok_or(Errno::STALE)?;
        Ok(Attributes {
            ino: node,
            mode: file.mode,
            size: file.size,
            nlink: file.links,
            blksize: 4096,
            ..Attributes::default()
        })
    }

    fn name(&self, parent: NodeId, name: Name<'_>) -> Option<u64> {
        self.names.lock().unwrap().get(&(parent.0, name.as_bytes().to_vec())).copied()
    }

    fn asked(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of lookups that the kernel holds, according to this daemon.
    pub fn held(&self) -> i64 {
        self.lookups.lock().unwrap().iter().filter(|(node, _)| **node != 1).map(|(_, count)| *count).sum()
    }
}

impl File {
    fn new(mode: u32) -> Self {
        Self { mode, size: 4, links: 1, xattrs: HashMap::new() }
    }
}

impl FileSystem for CountingFs {
    fn forget(&self, node: NodeId, lookups: u64) {
        let mut counts = self.lookups.lock().unwrap();
        let count = counts.entry(node.0).or_default();
        *count -= lookups as i64;
        if *count < 0 && node != NodeId::ROOT {
            self.wrong
                .lock()
                .unwrap()
                .push(format!("node {node} forgotten {} times more than looked up", -*count));
        }
    }

    async fn lookup(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        self.asked();
        match self.name(parent, name) {
            Some(node) => self.entry(node),
            None => Ok(Entry::absent(Expiry::FOREVER)),
        }
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        self.asked();
        Ok((self.attributes(node.0)?, Expiry::FOREVER))
    }

    async fn setattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        set: &SetAttributes,
    ) -> Result<(Attributes, Expiry), Errno> {
        self.asked();
        {
            let mut nodes = self.nodes.lock().unwrap();
            let file = nodes.get_mut(&node.0).ok_or(Errno::STALE)?;
            file.mode = set.mode.map_or(file.mode, |mode| file.mode & 0o170_000 | mode & 0o7777);
            file.size = set.size.unwrap_or(file.size);
        }
        Ok((self.attributes(node.0)?, Expiry::FOREVER))
    }

    async fn readlink(&self, _: &Request<'_>, _: NodeId) -> Result<Vec<u8>, Errno> {
        self.asked();
        Ok(b"file0".to_vec())
    }

    async fn mknod(
        &self,
        _: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        self.asked();
        let node = self.add(parent.0, std::str::from_utf8(name.as_bytes()).unwrap(), new.mode);
        self.entry(node)
    }

    async fn unlink(&self, _: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.asked();
        let removed = self.names.lock().unwrap().remove(&(parent.0, name.as_bytes().to_vec()));
        let removed = removed.ok_or(Errno::NOENT)?;
        self.nodes.lock().unwrap().get_mut(&removed).unwrap().links -= 1;
        Ok(())
    }

    async fn rename(
        &self,
        _: &Request<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        _: RenameFlags,
    ) -> Result<(), Errno> {
        self.asked();
        let mut names = self.names.lock().unwrap();
        let node = names.remove(&(parent.0, name.as_bytes().to_vec())).ok_or(Errno::NOENT)?;
        names.insert((new_parent.0, new_name.as_bytes().to_vec()), node);
        Ok(())
    }

    async fn link(
        &self,
        _: &Request<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry, Errno> {
        self.asked();
        self.nodes.lock().unwrap().get_mut(&node.0).ok_or(Errno::STALE)?.links += 1;
        self.names.lock().unwrap().insert((new_parent.0, new_name.as_bytes().to_vec()), node.0);
        self.entry(node.0)
    }

    async fn open(&self, _: &Request<'_>, _: NodeId, _: OpenArgs) -> Result<Opened, Errno> {
        self.asked();
        Ok(Opened::cached(FileHandle(0)))
    }

    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        self.asked();
        Ok(Data::Slice(if args.offset == 0 { b"data" } else { b"" }))
    }

    async fn write(
        &self,
        _: &Request<'_>,
        node: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        self.asked();
        let mut nodes = self.nodes.lock().unwrap();
        let file = nodes.get_mut(&node.0).ok_or(Errno::STALE)?;
        file.size = file.size.max(args.offset + data.len() as u64);
        Ok(data.len())
    }

    async fn setxattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        _: XattrSet,
    ) -> Result<(), Errno> {
        self.asked();
        let mut nodes = self.nodes.lock().unwrap();
        let file = nodes.get_mut(&node.0).ok_or(Errno::STALE)?;
        file.xattrs.insert(name.to_bytes().to_vec(), value.to_vec());
        Ok(())
    }

    async fn getxattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        name: &CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        self.asked();
        let nodes = self.nodes.lock().unwrap();
        let file = nodes.get(&node.0).ok_or(Errno::STALE)?;
        XattrReply::fit(file.xattrs.get(name.to_bytes()).ok_or(Errno::NODATA)?.clone(), size)
    }
}

/// A mount that is unmounted when this value is dropped.
pub struct Mount {
    pub fs: Arc<Extended<CountingFs>>,
    pub path: PathBuf,
    pub mounted: Option<Mounted>,
    /// The temporary directory, if one was made for this mount.
    directory: Option<PathBuf>,
}

impl Mount {
    /// Mounts with no caching in the kernel itself, so that each call is a request.
    pub fn asking(small: CountingFs) -> Self {
        Self::new(small, builtin::PROGRAM.expect("built with clang").to_vec())
    }

    pub fn new(small: CountingFs, program: Vec<u8>) -> Self {
        let directory = tempfile::tempdir().unwrap().keep();
        let mut mount = Self::with(small, program, directory.clone());
        mount.directory = Some(directory);
        mount
    }

    /// Mounts at an existing directory, which is kept.
    pub fn at(small: CountingFs, path: &Path) -> Self {
        Self::with(small, builtin::PROGRAM.expect("built with clang").to_vec(), path.to_owned())
    }

    /// Mounts as [`asking`](Self::asking) does, over io_uring. `None`: this kernel does not support it.
    pub fn over_rings(small: CountingFs) -> Option<Self> {
        enable_rings()?;
        let directory = tempfile::tempdir().unwrap().keep();
        let program = builtin::PROGRAM.expect("built with clang").to_vec();
        let config = Config::new(Profile::Passthrough).transport(Transport::Uring);
        let mut mount = Self::configured(small, program, directory.clone(), config);
        mount.directory = Some(directory);
        // The kernel may refuse a ring until it has sent the first request.
        std::fs::metadata(mount.path("")).unwrap();
        let used = mount.mounted.as_ref().unwrap().handle().transport();
        assert_eq!(used.transport, Transport::Uring, "{:?}", used.reason);
        Some(mount)
    }

    fn with(small: CountingFs, program: Vec<u8>, path: PathBuf) -> Self {
        Self::configured(small, program, path, Config::new(Profile::Passthrough))
    }

    fn configured(small: CountingFs, program: Vec<u8>, path: PathBuf, config: Config) -> Self {
        let extension = Extension {
            program: Ok(program),
            xattrs: true,
            opens: false,
            access_times: AccessTimes::Moved,
            lasting: Expiry::FOREVER,
            no_kernel_cache: true,
        };
        let fs = Arc::new(Extended::new(small, extension));
        let options = MountOptions::new().fsname("small").default_permissions(true);
        let mounted = mount::<Extended<CountingFs>>(fs.clone(), config, &path, &options).unwrap();
        Self { fs, path, mounted: Some(mounted), directory: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the number of requests that reached the daemon during `work`.
    pub fn requests(&self, work: impl FnOnce()) -> u64 {
        let count = || self.fs.inner().requests.load(Ordering::SeqCst);
        let before = count();
        work();
        count() - before
    }

    /// Asserts that no FORGET dropped too many lookups, which would be a bug of the extension.
    pub fn assert_no_violations(&self) {
        assert_eq!(*self.fs.inner().wrong.lock().unwrap(), Vec::<String>::new());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount(Unmount::Lazy).ok();
        }
        if let Some(directory) = &self.directory {
            std::fs::remove_dir(directory).ok();
        }
    }
}

/// Permits FUSE over io_uring. `None`: this kernel does not support it.
pub fn enable_rings() -> Option<()> {
    let switch = Path::new("/sys/module/fuse/parameters/enable_uring");
    if !switch.exists() {
        eprintln!("skipped: this kernel has no FUSE over io_uring");
        return None;
    }
    std::fs::write(switch, "Y").unwrap();
    Some(())
}

/// Calls `getxattr(2)` with a buffer of `room` bytes; 0 asks for the length.
pub fn getxattr_into(path: &Path, name: &str, room: usize) -> Result<(usize, Vec<u8>), Errno> {
    let (path, name) = (CString::new(path.as_os_str().as_bytes()).unwrap(), CString::new(name).unwrap());
    let mut value = vec![0u8; room];
    // SAFETY: both strings end in a NUL, and `room` bytes of `value` may be written.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), room) };
    match usize::try_from(length) {
        Ok(length) => Ok((length, value)),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

/// Returns the value of an extended attribute of at most 256 bytes.
pub fn getxattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    getxattr_into(path, name, 256).map(|(length, value)| value[..length].to_vec())
}

/// Returns the number of rounds: ten times as many with SHUNT_EXTENSION_LONG set.
pub fn rounds(short: usize) -> usize {
    if std::env::var_os("SHUNT_EXTENSION_LONG").is_some() { short * 10 } else { short }
}

/// Prints the progress of a long test.
pub fn progress(done: usize, of: usize) {
    if of >= 100 && done.is_multiple_of(10) {
        println!("{done} of {of}");
    }
}
