//! Images in which a file claims file system metadata: operations on the file never read, write or free that. Needs no root.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{Error, Fallocate, Filesystem, MemoryDevice, ROOT};

const BLOCK: usize = 1024;

/// An image with a file `victim`, and blocks that its map must not reference.
struct Prepared {
    bytes: Vec<u8>,
    /// Offset of the file's inode.
    inode: usize,
    forbidden: Vec<(&'static str, u64)>,
}

fn prepare(options: &[&str]) -> Option<Prepared> {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("victim"), vec![7; 3 * BLOCK]).unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-N", "4096", "-J", "size=4", "-d"])
        .arg(&tree)
        .args(options)
        .arg(&path)
        .output();
    let journal = Command::new("debugfs").args(["-R", "bmap <8> 4000"]).arg(&path).output();
    let (Ok(made), Ok(journal)) = (made, journal) else {
        assert!(std::env::var_os("CI").is_none(), "e2fsprogs is not installed");
        eprintln!("skipped: e2fsprogs is not installed");
        return None;
    };
    assert!(made.status.success(), "{made:?}");
    let journal = String::from_utf8(journal.stdout).unwrap().trim().parse().unwrap();
    let bytes = fs::read(&path).unwrap();
    let fs = Filesystem::open(Arc::new(MemoryDevice::new(bytes.clone()))).unwrap();
    let (groups, size) = (fs.geometry().groups, usize::from(fs.geometry().inode_size));
    let (first, last) = (fs.group(0).unwrap(), fs.group(groups - 1).unwrap());
    let victim = fs.walk(b"/victim").unwrap().number;
    let forbidden = vec![
        ("descriptors", 2),
        ("reserved descriptor blocks", 5),
        ("a backup of the superblock", fs.geometry().group_start(1)),
        ("a backup of the descriptors", fs.geometry().group_start(3) + 1),
        ("a block bitmap", first.block_bitmap),
        ("another group's block bitmap", last.block_bitmap),
        ("an inode bitmap", last.inode_bitmap),
        ("an inode table", first.inode_table),
        ("another group's inode table", last.inode_table + 20),
        ("the journal", journal),
    ];
    let inode = first.inode_table as usize * BLOCK + (victim as usize - 1) * size;
    Some(Prepared { bytes, inode, forbidden })
}

/// Offsets of the map, and of the attribute block's number, in an inode.
const MAP: usize = 40;
const XATTRS: usize = 104;

fn extent_root(depth: u16, entry: [u8; 12]) -> Vec<u8> {
    let header = [0xf30a_u16, 1, 4, depth, 0, 0].map(u16::to_le_bytes).concat();
    [header, entry.to_vec()].concat()
}

/// Builds a map with one extent.
fn extent(block: u64, length: u16) -> Vec<u8> {
    let mut entry = [0; 12];
    entry[4..6].copy_from_slice(&length.to_le_bytes());
    entry[8..].copy_from_slice(&(block as u32).to_le_bytes());
    extent_root(0, entry)
}

fn child(block: u64) -> Vec<u8> {
    let mut entry = [0; 12];
    entry[4..8].copy_from_slice(&(block as u32).to_le_bytes());
    extent_root(1, entry)
}

fn numbers(place: usize, block: u64) -> Vec<u8> {
    let mut map = vec![0; 60];
    map[place * 4..place * 4 + 4].copy_from_slice(&(block as u32).to_le_bytes());
    map
}

/// Checks that no operation on the file touches `block`.
fn refused(what: &str, bytes: Vec<u8>, block: u64, at: u64) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let before = device.bytes()[block as usize * BLOCK..][..BLOCK].to_vec();
    let corrupt = |result: Result<(), Error>, how: &str| {
        assert!(matches!(result, Err(Error::Corrupt(_))), "{what}: {how}: {result:?}");
    };
    let fs = Filesystem::open(device.clone()).unwrap();
    let read = |fs: &Filesystem| fs.read(&fs.walk(b"/victim")?, at, &mut [0; 100]).map(drop);
    corrupt(read(&fs), "read on a read-only file system");
    drop(fs);
    let fs = Filesystem::open_writable(device.clone()).unwrap();
    corrupt(read(&fs), "read");
    let number = fs.walk(b"/victim").unwrap().number;
    corrupt(fs.write(number, at, &[0xee; 100]).map(drop), "write");
    corrupt(fs.fallocate(number, Fallocate::Punch, at, 1024), "punch");
    assert!(fs.fallocate(number, Fallocate::Zero { keep_size: true }, at, 1024).is_err(), "{what}: zero");
    corrupt(fs.truncate(number, 0), "truncate");
    let file = fs.unlink(ROOT, b"victim").unwrap();
    corrupt(fs.evict_inode(file.number).map(drop), "reap");
    fs.close().ok();
    let after = device.bytes()[block as usize * BLOCK..][..BLOCK].to_vec();
    let count = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    // Removing the name and the inode may be recorded in these blocks.
    assert!(
        count <= 128 && after.iter().filter(|&&byte| byte == 0xee).count() < 50,
        "{what}: {count} bytes overwritten"
    );
}

#[test]
fn extents() {
    for groups in ["flex_bg", "^flex_bg"] {
        let features = format!("^metadata_csum,^uninit_bg,^orphan_file,{groups}");
        let Some(prepared) = prepare(&["-O", &features]) else { return };
        for &(what, block) in &prepared.forbidden {
            // The second extent starts before the block and reaches into it.
            let leads = [extent(block, 1), extent(block - 1, 3), extent(block, 0x8001), child(block)];
            for (n, map) in leads.into_iter().enumerate() {
                let mut bytes = prepared.bytes.clone();
                bytes[prepared.inode + MAP..][..map.len()].copy_from_slice(&map);
                refused(&format!("{what}, {groups}, map {n}"), bytes, block, 0);
            }
        }
    }
}

#[test]
fn block_maps() {
    let Some(prepared) = prepare(&["-t", "ext3"]) else { return };
    for &(what, block) in &prepared.forbidden {
        for (place, at) in [(0, 0), (12, 12), (13, 12 + 256), (14, 12 + 256 + 65536)] {
            let mut bytes = prepared.bytes.clone();
            bytes[prepared.inode + MAP..][..60].copy_from_slice(&numbers(place, block));
            bytes[prepared.inode + 4..][..4].copy_from_slice(&(80_000_u32 << 10).to_le_bytes());
            refused(&format!("{what}, slot {place}"), bytes, block, at << 10);
        }
    }
}

#[test]
fn attributes() {
    let Some(prepared) = prepare(&["-O", "^metadata_csum,^uninit_bg,^orphan_file"]) else { return };
    for &(what, block) in &prepared.forbidden {
        let mut bytes = prepared.bytes.clone();
        bytes[prepared.inode + XATTRS..][..4].copy_from_slice(&(block as u32).to_le_bytes());
        let fs = Filesystem::open_writable(Arc::new(MemoryDevice::new(bytes))).unwrap();
        let victim = fs.walk(b"/victim").unwrap();
        let error = fs.xattr(&victim, b"user.x").unwrap_err();
        assert!(error.to_string().contains("metadata of the file system"), "{what}: {error}");
    }
}

#[test]
fn groups_that_claim_the_same_block() {
    let Some(prepared) = prepare(&["-O", "^metadata_csum,^uninit_bg,^orphan_file,^64bit"]) else { return };
    let mut bytes = prepared.bytes;
    // Make the second group's inode table that of the first.
    let table = bytes[2 * BLOCK + 8..][..4].to_vec();
    bytes[2 * BLOCK + 32 + 8..][..4].copy_from_slice(&table);
    let before = bytes.clone();
    let device = Arc::new(MemoryDevice::new(bytes));
    assert!(Filesystem::open(device.clone()).is_ok());
    let refused = Filesystem::open_writable(device.clone()).err().unwrap();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
    assert!(device.bytes() == before);
}
