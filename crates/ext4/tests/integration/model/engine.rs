//! Applies operations with the engine, and compares the result with the model.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use shunt_ext4::{
    Attributes, Error, Filesystem, Inode, Kind as Type, MemoryDevice, Move, NewInode, NewInodeKind, ROOT,
    RenameMode, SHADOW_WORDS, SharedMemory,
};
use tempfile::TempDir;
use zerocopy::FromZeros as _;

use crate::model::ops::{self, Kind, Op};
use crate::model::state::{LONG, ModelFs, Node, NodeContent, SHORT};

const NEW: NewInode = NewInode { permissions: 0o755, umask: 0, uid: 0, gid: 0 };

/// The engine on an image in memory.
pub struct Engine {
    fs: Option<Filesystem>,
    device: Arc<MemoryDevice>,
    /// The memory that outlives a killed process.
    memory: SharedMemory,
    /// Directory that contains all objects, so that they can be removed together.
    work: u32,
    held: Vec<u32>,
    scratch: TempDir,
}

/// Creates a directory for images, in memory if possible.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Opens an image so that another process can continue.
fn open(device: &Arc<MemoryDevice>) -> (Filesystem, SharedMemory) {
    let memory: SharedMemory = Arc::new(<[AtomicU64]>::new_box_zeroed_with_elems(SHADOW_WORDS).unwrap());
    let fs = Filesystem::open_resumable(device.clone(), None, memory.clone()).unwrap();
    // A killed process commits nothing more.
    fs.commit_at(Duration::MAX);
    (fs, memory)
}

/// Creates an image; `None` without mkfs, which is a failure in CI.
pub fn image(mkfs: &[&str]) -> Option<Vec<u8>> {
    let dir = scratch();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(24 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).args(mkfs).arg(&path).output();
    if made.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(fs::read(path).unwrap());
    }
    assert!(std::env::var_os("CI").is_none(), "{made:?}");
    eprintln!("skipped: {made:?}");
    None
}

impl Engine {
    pub fn new(image: &[u8]) -> Self {
        let device = Arc::new(MemoryDevice::new(image.to_vec()));
        let (fs, memory) = open(&device);
        let work = fs.create(ROOT, b"work", NewInodeKind::Directory, &NEW).unwrap().number;
        fs.sync().unwrap();
        Self { fs: Some(fs), device, memory, work, held: Vec::new(), scratch: scratch() }
    }

    pub fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("open")
    }

    /// Returns the free blocks and inodes, after a sync.
    pub fn free(&self) -> (u64, u64) {
        self.fs().sync().unwrap();
        self.fs().free().expect("open for writing")
    }

    fn walk(&self, path: &str) -> Result<Inode, Error> {
        self.fs().walk(format!("work/{path}").as_bytes())
    }

    fn place<'p>(&self, path: &'p str) -> Result<(u32, &'p [u8]), Error> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = self.walk(above)?;
        match above.kind {
            Type::Directory => Ok((above.number, name.as_bytes())),
            _ => Err(Error::NotDirectory),
        }
    }

    fn left(&self, inode: &Inode) -> Result<(), Error> {
        match inode.links == 0 && !self.held.contains(&inode.number) {
            true => self.fs().evict_inode(inode.number),
            false => Ok(()),
        }
    }

    fn release(&mut self, held: u32) -> Result<(), Error> {
        let inode = self.fs().inode(held)?;
        self.left(&inode)
    }

    /// Fails if e2fsck finds an error.
    pub fn check(&self) {
        let path = self.scratch.path().join("image");
        fs::write(&path, self.device.bytes()).unwrap();
        let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Closes the file system and opens it again.
    pub fn reopen(&mut self) {
        for held in std::mem::take(&mut self.held) {
            if self.fs().inode(held).is_ok_and(|inode| inode.links == 0) {
                self.fs().evict_inode(held).unwrap();
            }
        }
        self.fs.take().expect("open").close().unwrap();
        self.check();
        let (fs, memory) = open(&self.device);
        (self.fs, self.memory) = (Some(fs), memory);
    }

    /// Continues as after the end of the process. Inodes without names are there if they are held, and only then.
    fn kill(&mut self) {
        // Leaked: dropping it would commit.
        std::mem::forget(self.fs.take());
        let (fs, _) = Filesystem::resume(self.device.clone(), None, self.memory.clone()).unwrap();
        fs.commit_at(Duration::MAX);
        let mut expected: Vec<u32> = self.held.clone();
        expected.retain(|held| fs.inode(*held).unwrap().links == 0);
        expected.sort_unstable();
        expected.dedup();
        let mut unlinked = fs.unlinked();
        unlinked.sort_unstable();
        assert_eq!(unlinked, expected);
        self.fs = Some(fs);
    }

    fn crash(&mut self) {
        self.fs().sync().unwrap();
        let device = Arc::new(MemoryDevice::new(self.device.bytes()));
        self.held.clear();
        let (fs, memory) = open(&device);
        (self.fs, self.memory) = (Some(fs), memory);
        self.device = device;
        // Orphans were freed consistently.
        self.reopen();
    }

    pub fn apply(&mut self, op: &Op) -> Result<(), Error> {
        let fs = self.fs();
        let number = |path: &str| self.walk(path).map(|inode| inode.number);
        match op {
            Op::Make(path, kind) => {
                let (directory, name) = self.place(path)?;
                let what = match kind {
                    Kind::Directory => NewInodeKind::Directory,
                    Kind::File => NewInodeKind::Regular,
                    Kind::Short => NewInodeKind::Symlink(SHORT),
                    Kind::Long => NewInodeKind::Symlink(LONG),
                    Kind::Device => NewInodeKind::CharDevice(300, 70_000),
                };
                let link = matches!(kind, Kind::Short | Kind::Long);
                let new = NewInode { permissions: if link { 0o777 } else { 0o755 }, ..NEW };
                fs.create(directory, name, what, &new).map(drop)
            }
            Op::Link(from, to) => {
                let (directory, name) = self.place(to)?;
                fs.link(number(from)?, directory, name).map(drop)
            }
            Op::Unlink(path) => {
                let (directory, name) = self.place(path)?;
                self.left(&fs.unlink(directory, name)?)
            }
            Op::Rmdir(path) => {
                let (directory, name) = self.place(path)?;
                self.left(&fs.remove_directory(directory, name)?)
            }
            Op::Rename(from, to, how) => {
                let (from, to) = (self.place(from)?, self.place(to)?);
                let mode = match how {
                    ops::RenameMode::Replace | ops::RenameMode::Whiteout => RenameMode::Replace,
                    ops::RenameMode::Keep => RenameMode::Keep,
                    ops::RenameMode::Exchange => RenameMode::Exchange,
                };
                let whiteout = (*how == ops::RenameMode::Whiteout).then_some((0, 0));
                match fs.rename(from, to, &Move { mode, whiteout })? {
                    Some(replaced) => self.left(&replaced),
                    None => Ok(()),
                }
            }
            Op::Write(path, offset, length, byte) => {
                let written = fs.write(number(path)?, *offset, &vec![*byte; *length])?;
                assert_eq!(written, *length);
                Ok(())
            }
            Op::Truncate(path, size) => fs.truncate(number(path)?, *size),
            Op::Fallocate(path, what, offset, length) => fs.fallocate(number(path)?, *what, *offset, *length),
            Op::SetXattr(path, name, size, mode) => {
                fs.set_xattr(number(path)?, name.as_bytes(), &vec![*size as u8; *size], *mode).map(drop)
            }
            Op::RemoveXattr(path, name) => fs.remove_xattr(number(path)?, name.as_bytes()).map(drop),
            Op::Permissions(path, permissions) => {
                let change = Attributes { permissions: Some(*permissions), ..Attributes::default() };
                fs.set_attributes(number(path)?, &change).map(drop)
            }
            Op::Hold(path) => {
                let inode = self.walk(path)?;
                match inode.kind {
                    Type::Regular => self.held.push(inode.number),
                    _ => return Err(Error::Invalid),
                }
                Ok(())
            }
            Op::Nameless => {
                let made = fs.create_tmpfile(self.work, &NEW)?.number;
                self.held.push(made);
                Ok(())
            }
            Op::Name(path) => {
                let held = *self.held.first().ok_or(Error::NotFound)?;
                let (directory, name) = self.place(path)?;
                fs.link(held, directory, name).map(drop)
            }
            Op::Release => {
                if self.held.is_empty() {
                    return Err(Error::NotFound);
                }
                let held = self.held.remove(0);
                self.release(held)
            }
            Op::Sync => fs.sync(),
            Op::Reopen => {
                self.reopen();
                Ok(())
            }
            Op::Crash => {
                self.crash();
                Ok(())
            }
            Op::Kill => {
                self.kill();
                Ok(())
            }
        }
    }

    /// Compares all visible properties with the model.
    pub fn is(&self, state: &ModelFs) -> Result<(), String> {
        let links = state.links();
        let mut known = BTreeMap::new();
        let work = self.walk("").map_err(|error| error.to_string())?;
        self.same(&work, state, 0, &links, &mut known)?;
        // Held files may have no name.
        for (&number, &node) in self.held.iter().zip(&state.held) {
            let inode = self.fs().inode(number).map_err(|error| format!("held: {error}"))?;
            self.same(&inode, state, node, &links, &mut known).map_err(|why| format!("held: {why}"))?;
        }
        match known.len() == state.nodes.len() {
            true => Ok(()),
            false => Err(format!("{} inodes, not {}", known.len(), state.nodes.len())),
        }
    }

    fn same(
        &self,
        inode: &Inode,
        state: &ModelFs,
        node: usize,
        links: &BTreeMap<usize, usize>,
        known: &mut BTreeMap<usize, u32>,
    ) -> Result<(), String> {
        if let Some(before) = known.insert(node, inode.number) {
            return if before == inode.number { Ok(()) } else { Err("refers to another inode".into()) };
        }
        let to_text = |error: Error| error.to_string();
        let fs = self.fs();
        let Node { what, permissions, xattrs } = &state.nodes[&node];
        if inode.permissions != *permissions {
            return Err(format!("mode {:o}, not {permissions:o}", inode.permissions));
        }
        let mut found = BTreeMap::new();
        for name in fs.xattr_names(inode).map_err(to_text)? {
            let value = fs.xattr(inode, &name).map_err(to_text)?.ok_or("attribute name without a value")?;
            found.insert(String::from_utf8(name).expect("the name is UTF-8"), value);
        }
        if found != *xattrs {
            return Err(format!("attributes {found:?}, not {xattrs:?}"));
        }
        let mut expected_links = links.get(&node).copied().unwrap_or(0);
        match what {
            NodeContent::Directory(entries) => {
                let below = entries
                    .values()
                    .filter(|&child| matches!(state.nodes[child].what, NodeContent::Directory(_)));
                expected_links = 2 + below.count();
                let mut names = Vec::new();
                fs.list(inode, 0, |entry| {
                    names.push(entry);
                    true
                })
                .map_err(to_text)?;
                names.retain(|entry| !matches!(&*entry.name, b"." | b".."));
                names.sort_by(|a, b| a.name.cmp(&b.name));
                let listed: Vec<_> = names.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect();
                if !listed.iter().eq(entries.keys()) {
                    return Err(format!("names {listed:?}, not {:?}", entries.keys()));
                }
                for (entry, (name, child)) in names.iter().zip(entries) {
                    let found = fs.follow(inode, entry).map_err(to_text)?;
                    let looked_up = fs.find(inode, name.as_bytes()).map_err(to_text)?.number;
                    if looked_up != found.number || entry.kind.is_some_and(|kind| kind != found.kind) {
                        return Err(format!("{name}: lookup returns {looked_up}, the listing {entry:?}"));
                    }
                    self.same(&found, state, *child, links, known).map_err(|why| format!("{name}: {why}"))?;
                }
            }
            NodeContent::File(content) => {
                let mut found = vec![0xaa; inode.size as usize];
                fs.read(inode, 0, &mut found).map_err(to_text)?;
                if inode.kind != Type::Regular || found.len() != content.len() {
                    return Err(format!("{} bytes, not {}", found.len(), content.len()));
                }
                if let Some(at) = (0..found.len()).find(|&at| found[at] != content[at]) {
                    return Err(format!("byte {at} is {}, not {}", found[at], content[at]));
                }
            }
            NodeContent::Symlink(target) => {
                if inode.kind != Type::Symlink || fs.read_link(inode).map_err(to_text)? != *target {
                    return Err("another link target".into());
                }
            }
            NodeContent::Device(major, minor) => {
                if inode.kind != Type::CharDevice || inode.device() != Some((*major, *minor)) {
                    return Err(format!("{:?}", inode.device()));
                }
            }
        }
        match usize::from(inode.links as u16) == expected_links {
            true => Ok(()),
            false => Err(format!("{} links, not {expected_links}", inode.links)),
        }
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        while !self.held.is_empty() {
            self.apply(&Op::Release).unwrap();
        }
        self.empty(self.work);
        self.left(&self.fs().remove_directory(ROOT, b"work").unwrap()).unwrap();
    }

    fn empty(&self, directory: u32) {
        let fs = self.fs();
        let mut entries = Vec::new();
        fs.list(&fs.inode(directory).unwrap(), 0, |entry| {
            entries.push(entry);
            true
        })
        .unwrap();
        for entry in entries.iter().filter(|entry| !matches!(&*entry.name, b"." | b"..")) {
            let inode = fs.inode(entry.inode).unwrap();
            let removed = if inode.kind == Type::Directory {
                self.empty(entry.inode);
                fs.remove_directory(directory, &entry.name)
            } else {
                fs.unlink(directory, &entry.name)
            };
            self.left(&removed.unwrap()).unwrap();
        }
    }
}
