//! Snapshots of a directory tree, taken through the kernel or the engine.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use shunt_ext4::{Filesystem, Inode, Kind, ROOT};

/// All visible properties of an inode.
#[derive(Debug, PartialEq, Eq)]
pub struct InodeProperties {
    pub inode: u32,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u64,
    pub size: u64,
    pub blocks: u64,
    pub device: u64,
    pub times: [(i64, u32); 2],
    pub content: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

pub type Tree = BTreeMap<OsString, InodeProperties>;

pub fn seen_by_kernel(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let full = root.join(&path);
        let stat = fs::symlink_metadata(&full).unwrap();
        let kind = stat.file_type();
        if kind.is_dir() {
            left.extend(fs::read_dir(&full).unwrap().map(|entry| path.join(entry.unwrap().file_name())));
        }
        let content = match () {
            () if kind.is_file() => digest(&fs::read(&full).unwrap()),
            () if kind.is_symlink() => digest(fs::read_link(&full).unwrap().as_os_str().as_bytes()),
            () => 0,
        };
        let full = CString::new(full.as_os_str().as_bytes()).unwrap();
        let mut names = vec![0; 65536];
        let length = rustix::fs::llistxattr(&*full, &mut names).unwrap();
        let xattrs = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
        let value = |name: &[u8]| {
            let mut value = vec![0; 65536];
            let length = rustix::fs::lgetxattr(&*full, &*CString::new(name).unwrap(), &mut value).unwrap();
            value.truncate(length);
            (name.to_vec(), value)
        };
        let seen = InodeProperties {
            inode: stat.ino() as u32,
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            links: stat.nlink(),
            size: stat.size(),
            blocks: stat.blocks(),
            device: if kind.is_char_device() || kind.is_block_device() { stat.rdev() } else { 0 },
            times: [(stat.mtime(), stat.mtime_nsec() as u32), (stat.ctime(), stat.ctime_nsec() as u32)],
            content,
            xattrs: xattrs.map(value).collect(),
        };
        tree.insert(path.into_os_string(), seen);
    }
    tree
}

pub fn seen_by_engine(fs: &Filesystem) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![(OsString::new(), fs.inode(ROOT).unwrap())];
    while let Some((path, inode)) = left.pop() {
        if inode.kind == Kind::Directory {
            let mut entries = Vec::new();
            fs.list(&inode, 0, |entry| {
                entries.push(entry);
                true
            })
            .unwrap();
            for entry in entries.iter().filter(|entry| !matches!(&*entry.name, b"." | b"..")) {
                let child = fs.find(&inode, &entry.name).unwrap();
                assert_eq!(child.number, entry.inode);
                assert!(entry.kind.is_none_or(|kind| kind == child.kind));
                let name = Path::new(&path).join(OsString::from_vec(entry.name.clone()));
                left.push((name.into_os_string(), child));
            }
        }
        tree.insert(path, seen_of(fs, &inode));
    }
    tree
}

pub fn seen_of(fs: &Filesystem, inode: &Inode) -> InodeProperties {
    let content = match inode.kind {
        Kind::Regular => {
            let mut content = vec![0; inode.size as usize];
            assert_eq!(fs.read(inode, 0, &mut content).unwrap(), content.len());
            digest(&content)
        }
        Kind::Symlink => digest(&fs.read_link(inode).unwrap()),
        _ => 0,
    };
    let names = fs.xattr_names(inode).unwrap();
    InodeProperties {
        inode: inode.number,
        mode: u32::from(inode.kind.mode() | inode.permissions),
        owner: (inode.uid, inode.gid),
        links: inode.links.into(),
        size: inode.size,
        blocks: inode.blocks,
        device: inode.device().map_or(0, |(major, minor)| rustix::fs::makedev(major, minor)),
        times: [inode.mtime, inode.ctime].map(|time| (time.seconds, time.nanoseconds)),
        content,
        xattrs: names
            .into_iter()
            .map(|name| (name.clone(), fs.xattr(inode, &name).unwrap().unwrap()))
            .collect(),
    }
}
