//! Images with random changes: each operation terminates with a result or an error, and never panics.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use shunt_ext4::{Filesystem, Kind, MemoryDevice, ROOT};

/// A small image with various content, made without mounting. Checksums are off, so that changes reach the parsers.
fn image(options: &[&str]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for n in 0..200 {
        fs::write(tree.join("a").join(format!("a name that is not too short {n}")), vec![n as u8; n * 20])
            .unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(200), tree.join("long")).unwrap();
    std::os::unix::fs::symlink("x", tree.join("short")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    for n in 0..300_u64 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[1; 1024], n * 4096).unwrap();
    }
    rustix::fs::setxattr(tree.join("long"), "user.x", b"", rustix::fs::XattrFlags::empty()).ok();
    rustix::fs::setxattr(tree.join("sparse"), "user.x", &[7; 500], rustix::fs::XattrFlags::empty()).ok();
    let path = dir.path().join("image");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-N", "512", "-d"])
        .arg(&tree)
        .args(options)
        .arg(&path)
        .arg("4M")
        .output();
    match made {
        Ok(output) if output.status.success() => {}
        other => {
            assert!(std::env::var_os("CI").is_none(), "{other:?}");
            eprintln!("skipped: {other:?}");
            return None;
        }
    }
    // `mkfs -d` creates no directory index; e2fsck adds it.
    Command::new("e2fsck").args(["-fyD"]).arg(&path).output().unwrap();
    Some(fs::read(path).unwrap())
}

/// Reads all reachable objects, with bounds.
fn visit(bytes: Vec<u8>) -> usize {
    let Ok(fs) = Filesystem::open(Arc::new(MemoryDevice::new(bytes))) else { return 0 };
    let mut seen = HashSet::new();
    let mut left = vec![ROOT];
    let mut good = 0;
    while let Some(number) = left.pop() {
        if !seen.insert(number) {
            continue;
        }
        let Ok(inode) = fs.inode(number) else { continue };
        good += 1;
        for name in fs.xattr_names(&inode).unwrap_or_default() {
            fs.xattr(&inode, &name).ok();
        }
        match inode.kind {
            Kind::Directory => {
                let mut names = Vec::new();
                fs.list(&inode, 0, |entry| {
                    left.push(entry.inode);
                    names.push(entry.name);
                    names.len() < 10_000
                })
                .ok();
                for name in names.iter().take(300) {
                    fs.find(&inode, name).ok();
                }
                fs.find(&inode, b"none").ok();
            }
            Kind::Symlink => drop(fs.read_link(&inode)),
            _ => {
                let mut buffer = vec![0; 65536];
                fs.read(&inode, 0, &mut buffer).ok();
                fs.read(&inode, inode.size.saturating_sub(5000), &mut buffer).ok();
                fs.map(&inode, u32::MAX, u32::MAX).ok();
            }
        }
    }
    for group in 0..fs.geometry().groups.min(100) {
        fs.group(group).ok();
    }
    good
}

fn survives(options: &[&str]) {
    let Some(original) = image(options) else { return };
    assert!(visit(original.clone()) > 200);
    // Non-zero bytes: zeros are seldom read.
    let used: Vec<usize> = (1024..original.len()).filter(|&at| original[at] != 0 || at < 8192).collect();
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1), Just(0x80)];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), byte), 1..12);
    let config = ProptestConfig { cases: 600, ..ProptestConfig::default() };
    proptest!(config, |(changes in changes)| {
        let mut bytes = original.clone();
        for (place, byte) in &changes {
            bytes[used[place.index(used.len())]] = *byte;
        }
        let start = Instant::now();
        visit(bytes);
        prop_assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    });
}

#[test]
fn extents() {
    survives(&["-O", "^metadata_csum,^uninit_bg"]);
}

#[test]
fn block_maps() {
    survives(&["-t", "ext3"]);
}

#[test]
fn inline_data() {
    survives(&["-O", "^metadata_csum,^uninit_bg,inline_data,ea_inode", "-I", "256"]);
}

#[test]
fn truncated_image_is_reported() {
    let Some(original) = image(&[]) else { return };
    let cut = original[..original.len() / 2].to_vec();
    let error = Filesystem::open(Arc::new(MemoryDevice::new(cut))).err().unwrap();
    assert!(error.to_string().starts_with("the image is truncated"), "{error}");
}

#[test]
fn other_format_is_named() {
    let message =
        |bytes: Vec<u8>| Filesystem::open(Arc::new(MemoryDevice::new(bytes))).err().unwrap().to_string();
    assert!(message(Vec::new()).ends_with("an empty file"));
    assert!(message(vec![0; 5000]).ends_with("zeros"));
    assert!(message([b"XFSB".to_vec(), vec![1; 5000]].concat()).ends_with("XFS"));
    assert!(message(b"hello".repeat(5000)).ends_with("an unknown format"));
}
