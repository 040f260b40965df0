//! Freed inodes cannot be used any more, although they still look like inodes. Needs no root.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{
    Attributes, Error, Fallocate, Filesystem, MemoryDevice, NewInode, NewInodeKind, ROOT, SetMode,
};

fn refuses_what_was_freed(options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    match Command::new("mkfs.ext4").args(["-q", "-F", "-b", "1024"]).args(options).arg(&path).output() {
        Ok(output) if output.status.success() => {}
        other => {
            assert!(std::env::var_os("CI").is_none(), "{other:?}");
            eprintln!("skipped: mkfs.ext4: {other:?}");
            return;
        }
    }
    let device = Arc::new(MemoryDevice::new(fs::read(&path).unwrap()));
    let fs = Filesystem::open_writable(device.clone()).unwrap();
    let file = fs.create(ROOT, b"file", NewInodeKind::Regular, &NewInode::default()).unwrap().number;
    fs.unlink(ROOT, b"file").unwrap();
    // The file is still open.
    fs.write(file, 0, &[7; 5000]).unwrap();
    let free = fs.free();
    fs.evict_inode(file).unwrap();
    let after = fs.free();
    assert!(after > free);
    let refused = [
        fs.write(file, 0, &[7; 5000]).map(drop),
        fs.truncate(file, 5000),
        fs.fallocate(file, Fallocate::Punch, 0, 1024),
        fs.set_xattr(file, b"user.x", &[7; 500], SetMode::Either).map(drop),
        fs.remove_xattr(file, b"user.x").map(drop),
        fs.set_attributes(file, &Attributes { uid: Some(1), ..Attributes::default() }).map(drop),
        fs.link(file, ROOT, b"again").map(drop),
        fs.evict_inode(file),
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        assert!(matches!(refused, Err(Error::NotFound)), "{place}: {refused:?}");
    }
    assert_eq!(fs.free(), after);
    fs.close().unwrap();
    fs::write(&path, device.bytes()).unwrap();
    let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn from_the_list() {
    refuses_what_was_freed(&[]);
}

#[test]
fn from_the_file() {
    refuses_what_was_freed(&["-O", "orphan_file"]);
}

#[test]
fn with_block_maps() {
    refuses_what_was_freed(&["-t", "ext2"]);
}
