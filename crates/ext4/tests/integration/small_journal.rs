//! Journals of minimum size: no operation exceeds them, and long operations use several transactions.
//!
//! Needs mkfs.ext4 and e2fsck, and no root; in CI (`CI=true`) their absence is a failure. With debug assertions, the engine also
//! checks that each operation stays within its credits.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{
    Device, Error, Fallocate, Filesystem, Inode, MemoryDevice, Move, NewInode, NewInodeKind, ROOT, SetMode,
};

/// Minimum number of blocks of a journal.
const LEAST: u64 = 1024;

const NAMES: usize = 3000;
/// Enough to split nodes of the index, too.
const VERY_MANY: usize = 50_000;
const HOLES: u64 = 3000;

const NEW: NewInode = NewInode { permissions: 0o755, umask: 0, uid: 0, gid: 0 };

fn name(n: usize) -> Vec<u8> {
    format!("{n:x<200}").into_bytes()
}

fn evict(fs: &Filesystem, left: Inode) {
    assert_eq!(left.links, 0);
    fs.evict_inode(left.number).unwrap();
}

/// Creates an index of several levels, then empties and removes the directory.
fn directory(fs: &Filesystem) {
    let many = fs.create(ROOT, b"many", NewInodeKind::Directory, &NEW).unwrap().number;
    let other = fs.create(ROOT, b"other", NewInodeKind::Directory, &NEW).unwrap().number;
    for n in 0..NAMES {
        fs.create(other, b"new", NewInodeKind::Regular, &NEW).unwrap();
        // The rename splits the directory.
        fs.rename((other, b"new"), (many, &name(n)), &Move::default()).unwrap();
    }
    (0..NAMES).for_each(|n| evict(fs, fs.unlink(many, &name(n)).unwrap()));
    evict(fs, fs.remove_directory(ROOT, b"many").unwrap());
}

/// Creates a file of single-block extents, then truncates and shifts it in all possible ways.
fn fragments(fs: &Filesystem, block: u64) {
    let file = fs.create(ROOT, b"file", NewInodeKind::Regular, &NEW).unwrap().number;
    let scatter = || {
        for n in 0..HOLES {
            fs.write(file, 2 * n * block, &[n as u8; 100]).unwrap();
        }
    };
    scatter();
    fs.fallocate(file, Fallocate::Punch, 100 * block, 1000 * block).unwrap();
    for what in [Fallocate::Zero { keep_size: true }, Fallocate::Collapse, Fallocate::Insert] {
        match fs.fallocate(file, what, 1500 * block, 900 * block) {
            Ok(()) | Err(Error::Unsupported(_)) => {}
            Err(error) => panic!("{what:?}: {error}"),
        }
    }
    fs.truncate(file, 5000).unwrap();
    scatter();
    // Uses all tables of a block map, at distant positions.
    for n in 0..20 {
        fs.write(file, (20_000 + 70_001 * n) * block, &[1; 10]).unwrap();
    }
    evict(fs, fs.unlink(ROOT, b"file").unwrap());
}

fn attributes(fs: &Filesystem, block: usize) {
    let file = fs.create(ROOT, b"attributes", NewInodeKind::Regular, &NEW).unwrap().number;
    let mut largest_stored = 0;
    for length in (0..block).step_by(97) {
        match fs.set_xattr(file, b"user.large", &vec![length as u8; length], SetMode::Either) {
            Ok(_) => largest_stored = length,
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }
    assert!(largest_stored > block * 3 / 4, "{largest_stored}");
}

/// Creates, links and moves names into a directory, each of an inode with its own attribute block, and removes them again.
fn very_many(fs: &Filesystem) {
    let long = |n: usize| format!("{n:x<60}").into_bytes();
    let make = |name| fs.create(ROOT, name, NewInodeKind::Directory, &NEW).unwrap().number;
    let (many, from) = (make(b"very many"), make(b"from"));
    for n in 0..VERY_MANY {
        let (dir, name) = if n % 3 == 0 { (from, b"new".to_vec()) } else { (many, long(n)) };
        let file = match n % 3 {
            2 => fs.create(from, &long(n), NewInodeKind::Regular, &NEW).unwrap().number,
            _ => fs.create(dir, &name, NewInodeKind::Regular, &NEW).unwrap().number,
        };
        fs.set_xattr(file, b"user.large", format!("{n:y<300}").as_bytes(), SetMode::Either).unwrap();
        match n % 3 {
            0 => drop(fs.rename((from, &name), (many, &long(n)), &Move::default()).unwrap()),
            2 => {
                fs.link(file, many, &name).unwrap();
                fs.unlink(from, &name).unwrap();
            }
            _ => {}
        }
    }
    // Removes the names in all possible ways, including replacement by a rename.
    for n in 0..VERY_MANY {
        match n % 10 {
            0 => assert!(fs.rename((many, &long(n)), (from, &long(n)), &Move::default()).unwrap().is_none()),
            1 => evict(
                fs,
                fs.rename((many, &long(n)), (from, &long(n - 1)), &Move::default()).unwrap().unwrap(),
            ),
            _ => evict(fs, fs.unlink(many, &long(n)).unwrap()),
        }
    }
    evict(fs, fs.remove_directory(ROOT, b"very many").unwrap());
}

fn works(block: u64, kind: &[&str]) {
    on_an_image(block, kind, &["-N", "8000"], 48, |fs| {
        directory(fs);
        fragments(fs, block);
        attributes(fs, block as usize);
    });
}

/// Runs `work` on an image of this size in MiB with the smallest journal.
fn on_an_image(block: u64, kind: &[&str], size: &[&str], mebibytes: u64, work: impl FnOnce(&Filesystem)) {
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = scratch.path().join("image");
    let journal = format!("size={}", (LEAST * block) >> 20);
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", &block.to_string(), "-J", &journal])
        .args(kind)
        .args(size)
        .arg(&path)
        .arg(format!("{mebibytes}M"))
        .output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "{made:?}");
        eprintln!("skipped: {made:?}");
        return;
    }
    let device = Arc::new(MemoryDevice::new(fs::read(&path).unwrap()));
    let fs = Filesystem::open_writable(device.clone()).unwrap();
    work(&fs);
    fs.close().unwrap();
    assert_eq!(device.size(), mebibytes << 20);
    fs::write(&path, device.bytes()).unwrap();
    let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn fifty_thousand_names() {
    on_an_image(1024, &[], &["-N", "51000"], 160, very_many);
}

#[test]
fn blocks_of_1k() {
    works(1024, &[]);
}

#[test]
fn blocks_of_1k_in_block_maps() {
    works(1024, &["-t", "ext3"]);
}

#[test]
fn blocks_of_2k() {
    works(2048, &["-O", "orphan_file"]);
}

#[test]
fn blocks_of_4k() {
    works(4096, &[]);
}
