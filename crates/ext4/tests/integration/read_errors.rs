//! Read errors in the middle of an operation: its changes are undone, or the journal is aborted. In either case, no partial
//! operation reaches the device.
//!
//! Needs mkfs.ext4 and e2fsck, and no root; in CI (`CI=true`) their absence is a failure.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use shunt_ext4::device::{Fault, Faulty, Operation};
use shunt_ext4::{
    Attributes, Error, Fallocate, Filesystem, MemoryDevice, Move, NewInode, NewInodeKind, ROOT, RenameMode,
    SetMode,
};

const NEW: NewInode = NewInode { permissions: 0o755, umask: 0, uid: 0, gid: 0 };

/// An ACL with an entry for a named group, which permission bits cannot represent.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 8, 0, 5, 0, 100, 0, 0, 0, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255,
];

fn node(fs: &Filesystem, path: &str) -> Result<u32, Error> {
    fs.walk(path.as_bytes()).map(|inode| inode.number)
}

fn long(n: usize) -> Vec<u8> {
    format!("{n:0>200}").into_bytes()
}

fn evict(fs: &Filesystem, inode: shunt_ext4::Inode) -> Result<(), Error> {
    if inode.links == 0 { fs.evict_inode(inode.number) } else { Ok(()) }
}

/// Creates indexed directories, maps with inner nodes, and shared attribute blocks.
fn furnish(fs: &Filesystem) -> Result<(), Error> {
    let many = fs.create(ROOT, b"many", NewInodeKind::Directory, &NEW)?.number;
    fs.set_xattr(many, b"system.posix_acl_default", ACL, SetMode::Either)?;
    for n in 0..60 {
        fs.create(many, &long(n), NewInodeKind::Regular, &NEW)?;
    }
    let other = fs.create(ROOT, b"other", NewInodeKind::Directory, &NEW)?.number;
    fs.create(other, b"below", NewInodeKind::Directory, &NEW)?;
    let holes = fs.create(ROOT, b"holes", NewInodeKind::Regular, &NEW)?.number;
    for n in (0..400).rev() {
        fs.write(holes, n * 2048, &[n as u8; 1024])?;
    }
    for name in ["one", "two"] {
        let file = fs.create(other, name.as_bytes(), NewInodeKind::Regular, &NEW)?.number;
        fs.set_xattr(file, b"user.shared", &[7; 600], SetMode::Either)?;
        fs.write(file, 0, &[1; 5000])?;
    }
    fs.create(other, b"link", NewInodeKind::Symlink(&[b'x'; 900]), &NEW).map(drop)
}

type Work = fn(&Filesystem) -> Result<(), Error>;

const WORKS: &[(&str, Work)] = &[
    ("create", |fs| fs.create(node(fs, "other")?, b"new", NewInodeKind::Regular, &NEW).map(drop)),
    ("create, with a split", |fs| {
        let many = node(fs, "many")?;
        (60..80).try_for_each(|n| fs.create(many, &long(n), NewInodeKind::Regular, &NEW).map(drop))
    }),
    ("mkdir with a default ACL", |fs| {
        fs.create(node(fs, "many")?, b"d", NewInodeKind::Directory, &NEW).map(drop)
    }),
    ("symlink", |fs| {
        fs.create(node(fs, "other")?, b"s", NewInodeKind::Symlink(&[b'y'; 1000]), &NEW).map(drop)
    }),
    ("tmpfile", |fs| {
        let inode = fs.create_tmpfile(node(fs, "many")?, &NEW)?;
        fs.write(inode.number, 0, &[1; 3000])?;
        fs.link(inode.number, node(fs, "other")?, b"named").map(drop)
    }),
    ("link", |fs| fs.link(node(fs, "holes")?, node(fs, "many")?, &long(90)).map(drop)),
    ("unlink", |fs| evict(fs, fs.unlink(node(fs, "other")?, b"one")?)),
    ("unlink a file with many blocks", |fs| evict(fs, fs.unlink(ROOT, b"holes")?)),
    ("unlink a link", |fs| evict(fs, fs.unlink(node(fs, "other")?, b"link")?)),
    ("rmdir", |fs| evict(fs, fs.remove_directory(node(fs, "other")?, b"below")?)),
    ("rename over another file", |fs| {
        let how = Move::default();
        match fs.rename((node(fs, "other")?, b"one"), (node(fs, "many")?, &long(3)), &how)? {
            Some(replaced) => evict(fs, replaced),
            None => Ok(()),
        }
    }),
    ("rename a directory", |fs| {
        fs.rename((node(fs, "other")?, b"below"), (node(fs, "many")?, &long(91)), &Move::default()).map(drop)
    }),
    ("rename with a whiteout", |fs| {
        let how = Move { mode: RenameMode::Keep, whiteout: Some((0, 0)) };
        fs.rename((node(fs, "many")?, &long(5)), (node(fs, "many")?, &long(92)), &how).map(drop)
    }),
    ("exchange", |fs| {
        let how = Move { mode: RenameMode::Exchange, whiteout: None };
        fs.rename((node(fs, "other")?, b"below"), (node(fs, "many")?, &long(4)), &how).map(drop)
    }),
    ("write into holes", |fs| {
        let holes = node(fs, "holes")?;
        (0..9).try_for_each(|n| fs.write(holes, 1024 + n * 9 * 8192, &[9; 1000]).map(drop))
    }),
    ("write over holes", |fs| fs.write(node(fs, "holes")?, 700, &[8; 40_000]).map(drop)),
    ("append", |fs| fs.write(node(fs, "holes")?, 900_000, &[8; 4000]).map(drop)),
    ("truncate", |fs| fs.truncate(node(fs, "holes")?, 300_100)),
    ("truncate to zero", |fs| fs.truncate(node(fs, "holes")?, 0)),
    ("punch", |fs| fs.fallocate(node(fs, "holes")?, Fallocate::Punch, 100_000, 300_000)),
    ("allocate", |fs| some(fs.fallocate(node(fs, "holes")?, Fallocate::Allocate, 0, 60_000))),
    ("zero", |fs| some(fs.fallocate(node(fs, "holes")?, Fallocate::Zero { keep_size: true }, 4096, 30_000))),
    ("collapse", |fs| some(fs.fallocate(node(fs, "holes")?, Fallocate::Collapse, 4096, 8192))),
    ("insert", |fs| some(fs.fallocate(node(fs, "holes")?, Fallocate::Insert, 700 * 1024, 8192))),
    ("set an attribute", |fs| {
        fs.set_xattr(node(fs, "holes")?, b"user.x", &[1; 800], SetMode::Either).map(drop)
    }),
    ("change a shared attribute", |fs| {
        fs.set_xattr(node(fs, "other/one")?, b"user.shared", &[2; 700], SetMode::Either).map(drop)
    }),
    ("remove a shared attribute", |fs| fs.remove_xattr(node(fs, "other/two")?, b"user.shared").map(drop)),
    ("chmod with an ACL", |fs| {
        let change = Attributes { permissions: Some(0o700), ..Attributes::default() };
        fs.set_attributes(fs.walk(&[b"many/", &*long(7)].concat())?.number, &change).map(drop)
    }),
];

/// Ignores operations that block maps do not support.
fn some(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::Unsupported(_)) => Ok(()),
        result => result,
    }
}

fn make(dir: &Path, kind: &[&str]) -> Option<Vec<u8>> {
    let path = dir.join("image");
    fs::remove_file(&path).ok();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-g", "2048", "-N", "256", "-J", "size=1"])
        .args(kind)
        .arg(&path)
        .arg("5M")
        .output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "{made:?}");
        eprintln!("skipped: mkfs.ext4: {made:?}");
        return None;
    }
    let device = Arc::new(MemoryDevice::new(fs::read(path).unwrap()));
    let fs = Filesystem::open_writable(device.clone()).unwrap();
    furnish(&fs).unwrap();
    fs.close().unwrap();
    Some(device.bytes())
}

fn check(dir: &Path, image: &[u8], what: &str) {
    let path = dir.join("image");
    fs::write(&path, image).unwrap();
    let output = Command::new("e2fsck").arg("-fn").arg(path).output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
}

/// Outcomes of operations with a failed read.
#[derive(Debug, Default)]
struct Ends {
    undone: u32,
    aborted: u32,
}

fn every_read_fails(kind: &[&str]) -> Option<Ends> {
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let base = make(scratch.path(), kind)?;
    check(scratch.path(), &base, "the image");
    let mut ends = Ends::default();
    for (name, work) in WORKS {
        for n in 0.. {
            let reads = Arc::new(AtomicU64::new(u64::MAX / 2));
            let seen = reads.clone();
            let plan = move |_, operation| match operation {
                Operation::Read(..) => {
                    let now = seen.fetch_add(1, Ordering::Relaxed);
                    (now == n).then_some(Fault::Error(Errno::IO))
                }
                _ => None,
            };
            let memory = Arc::new(MemoryDevice::new(base.clone()));
            let fs = Filesystem::open_writable(Arc::new(Faulty::new(memory.clone(), plan))).unwrap();
            // Count reads from here on.
            reads.store(0, Ordering::Relaxed);
            let result = work(&fs);
            let came = reads.load(Ordering::Relaxed) > n;
            reads.store(u64::MAX / 2, Ordering::Relaxed);
            let what = format!("{kind:?}: {name}, read {n} fails");
            match &result {
                Ok(()) => {}
                Err(Error::Io(_)) => match fs.is_writable() {
                    // A later operation must not write partial changes left in memory.
                    true => {
                        ends.undone += 1;
                        fs.create(ROOT, b"next", NewInodeKind::Directory, &NEW).unwrap();
                        fs.sync().unwrap();
                    }
                    false => {
                        ends.aborted += 1;
                        assert!(matches!(fs.sync(), Err(Error::ReadOnly)), "{what}");
                    }
                },
                Err(error) => panic!("{what}: {error}"),
            }
            drop(fs);
            // The next mount, on a working device, recovers journal and orphans.
            let device = Arc::new(MemoryDevice::new(memory.bytes()));
            Filesystem::open_writable(device.clone()).unwrap().close().unwrap();
            check(scratch.path(), &device.bytes(), &what);
            if !came {
                assert!(result.is_ok(), "{what}");
                break;
            }
        }
    }
    println!("{kind:?}: {ends:?}");
    Some(ends)
}

#[test]
fn read_errors_leave_no_partial_operation() {
    if let Some(ends) = every_read_fails(&["-O", "metadata_csum_seed,orphan_file"]) {
        assert!(ends.undone > 100 && ends.aborted > 10, "{ends:?}");
    }
}

#[test]
fn read_errors_leave_no_partial_operation_on_ext3() {
    every_read_fails(&["-t", "ext3", "-O", "^resize_inode"]);
}
