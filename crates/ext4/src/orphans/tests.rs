use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::{CREDITS, add};
use crate::device::FileDevice;
use crate::inode::{Inode, Kind};
use crate::layout::{InodeFlags, superblock_state};
use crate::time::Time;
use crate::{Filesystem, ROOT};

fn open(path: &Path) -> Filesystem {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap()
}

fn fsck(path: &Path, how: &[&str]) -> String {
    let output = Command::new("e2fsck").args(how).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Exit code 1: something was repaired, as expected.
    assert!(output.status.code().is_some_and(|code| code <= i32::from(!how.contains(&"-fn"))), "{text}");
    text
}

/// Creates a file without links, like one that was unlinked while open.
fn tmpfile(fs: &Filesystem) -> u32 {
    let mut handle = fs.store.begin(20 + CREDITS).unwrap();
    let number = fs.allocator().unwrap().take_inode(&mut handle, ROOT, false, false).unwrap();
    let root = fs.inode(ROOT).unwrap();
    let mut inode = Inode {
        number,
        kind: Kind::Regular,
        size: 0,
        links: 0,
        blocks: 0,
        block: [0; 60],
        flags: InodeFlags::empty(),
        ctime: Time { seconds: 5, nanoseconds: 0 },
        ..root
    };
    inode.save_new(&mut handle).unwrap();
    add(fs, &mut handle, &mut inode).unwrap();
    handle.complete();
    drop(handle);
    for n in 0..40 {
        fs.write(number, n * 8192, b"something").unwrap();
    }
    number
}

fn process(mkfs: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-b", "1024"]).args(mkfs).arg(&image).output();
    if !made.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none());
        eprintln!("skipped: mkfs.ext4 {mkfs:?} failed");
        return;
    }
    let engine = open(&image);
    let free = engine.free();
    let numbers: Vec<u32> = (0..30).map(|_| tmpfile(&engine)).collect();
    for number in numbers.iter().skip(5).step_by(3) {
        engine.evict_inode(*number).unwrap();
    }
    engine.sync().unwrap();
    let (crashed, other) = (dir.path().join("crashed"), dir.path().join("other"));
    fs::copy(&image, &crashed).unwrap();
    fs::copy(&image, &other).unwrap();
    // A clean close keeps the orphans in use as well.
    engine.close().unwrap();
    for path in [&image, &crashed] {
        let engine = open(path);
        assert_eq!(engine.free(), free);
        assert_eq!(engine.superblock().state.get() & superblock_state::ERROR, 0);
        engine.close().unwrap();
        fsck(path, &["-fn"]);
    }
    let output = fsck(&other, &["-fp"]);
    assert!(numbers.iter().any(|number| output.contains(&format!("inode {number}"))), "{output}");
    fsck(&other, &["-fn"]);
}

#[test]
fn in_the_list() {
    process(&[]);
    process(&["-O", "^metadata_csum", "-I", "128"]);
}

#[test]
fn in_the_file() {
    process(&["-O", "orphan_file"]);
}

#[test]
fn in_the_list_of_ext3() {
    process(&["-t", "ext3"]);
}
