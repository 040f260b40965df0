//! Name and attribute changes on images with random damage: each operation terminates with a result or an error, and never
//! panics.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use shunt_ext4::{Filesystem, Kind, MemoryDevice, Move, NewInode, NewInodeKind, ROOT, RenameMode, SetMode};

use crate::common::Image;

fn name(n: usize) -> String {
    format!("a name that is not too short {n}")
}

/// A small image with an index and attributes. Checksums and the journal are off, so that changes reach the parsers.
fn image(options: &[&str]) -> Option<Vec<u8>> {
    let mkfs = [&["-b", "1024", "-N", "512", "-I", "256"], options].concat();
    let mut image = Image::new(&mkfs, 2, false)?;
    let at = |path: String| image.mnt().join(path);
    fs::create_dir_all(at("a/b/c".into())).unwrap();
    for n in 0..150 {
        fs::write(at(format!("a/{}", name(n))), b"").unwrap();
    }
    for (path, size) in [("a/b", 10), ("a/b/c", 500)] {
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(at(path.into()), "user.x", &vec![7; size], none).unwrap();
    }
    image.unmount();
    Command::new("e2fsck").args(["-fyD"]).arg(image.path()).output().unwrap();
    Some(fs::read(image.path()).unwrap())
}

/// Performs operations on all reachable objects; returns the number of successful ones.
fn change(bytes: Vec<u8>) -> usize {
    let Ok(fs) = Filesystem::open_writable(Arc::new(MemoryDevice::new(bytes))) else { return 0 };
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    let mut good = 0;
    let mut note = |worked: bool| good += usize::from(worked);
    let find = |path: &[u8]| fs.walk(path).map_or(ROOT, |inode| inode.number);
    let directories = [ROOT, find(b"a"), find(b"a/b"), find(b"a/b/c")];
    for (n, &directory) in directories.iter().enumerate() {
        for number in 0..40 {
            let name = format!("{number}{}", "n".repeat(number * 6));
            note(fs.create(directory, name.as_bytes(), NewInodeKind::Regular, &new).is_ok());
        }
        note(fs.create(directory, b"d", NewInodeKind::Directory, &new).is_ok());
        note(fs.create(directory, b"l", NewInodeKind::Symlink(&[b'l'; 300]), &new).is_ok());
        for number in 0..60 {
            note(fs.unlink(directory, name(number).as_bytes()).is_ok());
        }
        for (mode, to) in
            [(RenameMode::Replace, b"e"), (RenameMode::Exchange, b"d"), (RenameMode::Keep, b"f")]
        {
            let other = directories[(n + 1) % 4];
            note(fs.rename((directory, b"d"), (other, to), &Move { mode, whiteout: None }).is_ok());
        }
        note(fs.rename((directory, b"b"), (ROOT, b"moved"), &Move::default()).is_ok());
        for size in [3, 200, 800] {
            note(fs.set_xattr(directory, b"user.y", &vec![1; size], SetMode::Either).is_ok());
        }
        note(fs.remove_xattr(directory, b"user.x").is_ok());
        if let Ok(left) = fs.remove_directory(directory, b"c") {
            note(fs.evict_inode(left.number).is_ok());
        }
    }
    let mut left = Vec::new();
    if let Ok(root) = fs.inode(ROOT) {
        fs.list(&root, 0, |entry| {
            left.push(entry);
            left.len() < 1000
        })
        .ok();
    }
    for entry in left {
        let removed = match entry.kind {
            Some(Kind::Directory) => fs.remove_directory(ROOT, &entry.name),
            _ => fs.unlink(ROOT, &entry.name),
        };
        if let Ok(inode) = removed
            && inode.links == 0
        {
            note(fs.evict_inode(inode.number).is_ok());
        }
    }
    fs.close().ok();
    good
}

fn survives(options: &[&str]) {
    let Some(original) = image(options) else { return };
    assert!(change(original.clone()) > 200);
    let used: Vec<usize> = (1024..original.len()).filter(|&at| original[at] != 0 || at < 8192).collect();
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1), Just(0x80)];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), byte), 1..12);
    let config = ProptestConfig { cases: 300, ..ProptestConfig::default() };
    proptest!(config, |(changes in changes)| {
        let mut bytes = original.clone();
        for (place, byte) in &changes {
            bytes[used[place.index(used.len())]] = *byte;
        }
        let start = Instant::now();
        change(bytes);
        prop_assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    });
}

#[test]
fn names_in_extents() {
    survives(&["-O", "^metadata_csum,^uninit_bg,^has_journal"]);
}

#[test]
fn names_in_block_maps() {
    survives(&["-t", "ext2"]);
}
