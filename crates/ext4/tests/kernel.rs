//! What the kernel wrote, the engine reads: byte for byte and attribute for attribute, on images of many kinds.
//!
//! Needs root, loop devices and mkfs.ext4; in CI (`CI=true`) their absence is a failure.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{FileDevice, Filesystem, Inode, Kind, Place, ROOT};
use tempfile::TempDir;

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A new image, mounted by the kernel until it is dropped.
struct Image {
    dir: TempDir,
    mounted: bool,
}

impl Image {
    /// `None` where the kernel or mkfs cannot have it; that is a failure in CI unless `optional`.
    fn new(mkfs: &[&str], mebibytes: u64, optional: bool) -> Option<Self> {
        let made = || {
            let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
            fs::create_dir(dir.path().join("mnt")).map_err(|error| error.to_string())?;
            let image = Self { dir, mounted: false };
            let file = File::create(image.path()).map_err(|error| error.to_string())?;
            file.set_len(mebibytes << 20).map_err(|error| error.to_string())?;
            let path = image.path();
            let path = path.to_str().expect("a path of ours");
            run("mkfs.ext4", &[mkfs, &["-q", "-F", path]].concat())?;
            image.mount()
        };
        match made() {
            Ok(image) => Some(image),
            Err(reason) => {
                assert!(optional || std::env::var_os("CI").is_none(), "{mkfs:?}: {reason}");
                eprintln!("skipped {mkfs:?}: {reason}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(mut self) -> Result<Self, String> {
        let (image, mnt) = (self.path(), self.mnt());
        run("mount", &["-o", "loop,user_xattr,acl", image.to_str().unwrap(), mnt.to_str().unwrap()])?;
        self.mounted = true;
        Ok(self)
    }

    fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            run("umount", &[self.mnt().to_str().unwrap()]).unwrap();
        }
    }

    fn open(&self) -> Filesystem {
        let device = FileDevice::new(File::open(self.path()).unwrap(), true).unwrap();
        Filesystem::open(Arc::new(device)).unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// All that can be seen of an inode.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inode: u32,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    blocks: u64,
    device: u64,
    times: [(i64, u32); 2],
    content: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

type Tree = BTreeMap<OsString, Seen>;

fn seen_by_kernel(root: &Path) -> Tree {
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
        let seen = Seen {
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

fn seen_by_engine(fs: &Filesystem) -> Tree {
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

fn seen_of(fs: &Filesystem, inode: &Inode) -> Seen {
    let kind = match inode.kind {
        Kind::Fifo => 0o01,
        Kind::CharDevice => 0o02,
        Kind::Directory => 0o04,
        Kind::BlockDevice => 0o06,
        Kind::Regular => 0o10,
        Kind::Symlink => 0o12,
        Kind::Socket => 0o14,
    };
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
    Seen {
        inode: inode.number,
        mode: u32::from(inode.permissions) | kind << 12,
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

/// Something of everything.
fn populate(root: &Path, names: usize) {
    let at = |name: &str| root.join(name);
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("tiny"), b"fits an inode").unwrap();
    fs::write(at("small"), vec![7; 100]).unwrap();
    let noise: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(at("large"), &noise).unwrap();
    // Holes, a block far out, and room that was never written.
    let sparse = File::create(at("sparse")).unwrap();
    for n in 0..400_u64 {
        sparse.write_all_at(&[n as u8; 1500], n * 20_000).unwrap();
    }
    sparse.set_len(30_000_000).unwrap();
    sparse.write_all_at(b"end", 29_000_000).unwrap();
    let room = File::create(at("room")).unwrap();
    room.write_all_at(b"start", 0).unwrap();
    if rustix::fs::fallocate(&room, rustix::fs::FallocateFlags::empty(), 0, 500_000).is_ok() {
        room.write_all_at(b"middle", 200_000).unwrap();
    }
    symlink("short", at("link")).unwrap();
    symlink("l".repeat(59), at("link59")).unwrap();
    symlink("l".repeat(60), at("link60")).unwrap();
    symlink("l".repeat(1000), at("link1000")).unwrap();
    fs::hard_link(at("large"), at("other")).unwrap();
    fs::create_dir_all(at("a/b/c/d/e")).unwrap();
    fs::write(at("a/b/c/d/e/f"), b"deep").unwrap();
    fs::set_permissions(at("tiny"), PermissionsExt::from_mode(0o6755)).unwrap();
    std::os::unix::fs::chown(at("small"), Some(70_000), Some(80_000)).unwrap();
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(rustix::fs::CWD, at(name), kind, 0o640.into(), device).unwrap();
    };
    node("fifo", rustix::fs::FileType::Fifo, 0);
    node("socket", rustix::fs::FileType::Socket, 0);
    node("char", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(5, 1));
    node("block", rustix::fs::FileType::BlockDevice, rustix::fs::makedev(259, 70_000));
    let none = rustix::fs::XattrFlags::empty();
    for (name, size) in [("user.small", 10), ("user.more", 300), ("trusted.t", 40), ("security.s", 60)] {
        rustix::fs::setxattr(at("tiny"), name, &noise[..size], none).unwrap();
    }
    // More than fits a block: only with ea_inode.
    rustix::fs::setxattr(at("small"), "user.large", &noise[..20_000], none).ok();
    run("setfacl", &["-m", "u:1234:r,g:4321:rw,m::rwx", at("small").to_str().unwrap()]).unwrap();
    run("setfacl", &["-d", "-m", "u:1234:rwx", at("a").to_str().unwrap()]).unwrap();
    // Old and far times.
    for (name, seconds) in [("old", -1_000_000_000), ("far", 8_000_000_000_i64)] {
        fs::write(at(name), b"x").unwrap();
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, at(name), &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    fs::create_dir(at("many")).unwrap();
    for n in 0..names {
        fs::write(at("many").join(format!("a name that is not too short {n}")), format!("{n}")).unwrap();
    }
    for n in (0..names).step_by(7) {
        fs::remove_file(at("many").join(format!("a name that is not too short {n}"))).unwrap();
    }
    let odd = OsString::from_vec((1..=255).filter(|&byte| byte != b'/').chain([b'x'; 1]).collect());
    fs::write(root.join(odd), b"odd").unwrap();
}

fn agrees(mkfs: &[&str], optional: bool) {
    let Some(mut image) = Image::new(mkfs, 96, optional) else { return };
    populate(&image.mnt(), 3000);
    run("sync", &["-f", image.mnt().to_str().unwrap()]).unwrap();
    let expected = seen_by_kernel(&image.mnt());
    image.unmount();
    let fs = image.open();
    let seen = seen_by_engine(&fs);
    for (path, expected) in &expected {
        assert_eq!(seen.get(path), Some(expected), "{mkfs:?}: {path:?}");
    }
    assert_eq!(seen.len(), expected.len(), "{mkfs:?}");
    // Names that are not there.
    let many = fs.walk(b"many").unwrap();
    for n in (0..3000).step_by(7) {
        let name = format!("a name that is not too short {n}");
        assert!(matches!(fs.find(&many, name.as_bytes()), Err(shunt_ext4::Error::NotFound)), "{name}");
    }
}

macro_rules! images {
    ($($name:ident: $mkfs:expr, $optional:expr;)*) => {
        $(#[test] fn $name() { agrees(&$mkfs, $optional); })*
    };
}

images! {
    defaults: ["-b", "4096"], false;
    blocks_of_1k: ["-b", "1024"], false;
    blocks_of_2k: ["-b", "2048"], false;
    ext2: ["-t", "ext2", "-b", "1024"], false;
    ext3: ["-t", "ext3", "-b", "1024", "-I", "128"], false;
    orphan_file_and_seed: ["-O", "orphan_file,metadata_csum_seed"], true;
    without_sums: ["-O", "^metadata_csum,uninit_bg"], false;
    without_64bit: ["-O", "^64bit", "-b", "1024"], false;
    inline_data: ["-O", "inline_data", "-I", "512"], false;
    ea_inode: ["-O", "ea_inode"], false;
    bigalloc: ["-O", "bigalloc", "-C", "16384"], false;
    meta_bg: ["-O", "meta_bg,^resize_inode", "-b", "1024"], false;
    without_types: ["-O", "^filetype", "-b", "1024"], false;
    without_index: ["-O", "^dir_index"], false;
    large_dir: ["-O", "large_dir", "-b", "1024"], false;
}

#[test]
fn each_hash_of_names_finds() {
    for hash in ["legacy", "half_md4", "tea"] {
        let Some(mut image) = Image::new(&["-b", "1024"], 32, false) else { return };
        image.unmount();
        run("tune2fs", &["-E", &format!("hash_alg={hash}"), image.path().to_str().unwrap()]).unwrap();
        let mut image = image.mount().unwrap();
        // Names beyond ASCII, whose bytes have a sign.
        let name = |n: usize| format!("ü{n}ß{}", "é".repeat(n % 60));
        (0..2000).for_each(|n| fs::write(image.mnt().join(name(n)), b"").unwrap());
        image.unmount();
        let fs = image.open();
        let root = fs.inode(ROOT).unwrap();
        assert!(root.flags.contains(shunt_ext4::layout::InodeFlags::INDEX));
        (0..2000).for_each(|n| drop(fs.find(&root, name(n).as_bytes()).unwrap()));
        assert!(fs.find(&root, b"none").is_err());
    }
}

#[test]
fn runs_are_those_of_the_kernel() {
    let Some(mut image) = Image::new(&[], 96, false) else { return };
    populate(&image.mnt(), 10);
    image.unmount();
    let fs = image.open();
    for name in ["large", "sparse", "room"] {
        let inode = fs.walk(name.as_bytes()).unwrap();
        let (mut logical, mut blocks) = (0_u32, 0_u64);
        let size = u64::from(fs.geometry().block_size);
        let end = inode.size.div_ceil(size) as u32;
        while logical < end {
            let run = fs.map(&inode, logical, end - logical).unwrap();
            assert_eq!((run.logical, run.length > 0), (logical, true));
            if !matches!(run.place, Place::Hole) {
                blocks += u64::from(run.length);
            }
            logical += run.length;
        }
        assert_eq!(logical, end);
        // What is mapped is what it occupies, less the nodes of its own tree.
        let occupied = inode.blocks * 512 / size;
        assert!((blocks..=blocks + 10).contains(&occupied), "{name}: {blocks} of {occupied}");
    }
}
