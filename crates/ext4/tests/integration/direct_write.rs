//! Files whose content is written directly to the device: allocated blocks read as zeros until they are converted, and no block
//! is lost.
//!
//! Needs mkfs.ext4 and e2fsck. In CI (`CI=true`) their absence is a failure.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use shunt_ext4::{Error, Extent, FileDevice, Filesystem, NewInode, NewInodeKind, ROOT, ReservedAccess, Time};

use crate::common::Image;

const BLOCK: u64 = 4096;

fn image(mib: u64) -> Option<Image> {
    match Image::make(&["-b", "4096"], mib) {
        Ok(image) => Some(image),
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}

fn device(image: &Image) -> File {
    OpenOptions::new().read(true).write(true).open(image.path()).unwrap()
}

fn open(image: &Image) -> Filesystem {
    Filesystem::open_writable(Arc::new(FileDevice::new(device(image), false).unwrap())).unwrap()
}

fn create(fs: &Filesystem, name: &[u8]) -> u32 {
    fs.create(ROOT, name, NewInodeKind::Regular, &NewInode::default()).unwrap().number
}

fn read(fs: &Filesystem, number: u32) -> Vec<u8> {
    let inode = fs.inode(number).unwrap();
    let mut content = vec![1; inode.size as usize];
    fs.read(&inode, 0, &mut content).unwrap();
    content
}

/// Writes directly to the device where the extents are, like the kernel.
fn write(device: &File, extents: &[Extent], byte: u8) {
    for extent in extents {
        device.write_all_at(&vec![byte; extent.length as usize], extent.device).unwrap();
    }
}

#[test]
fn unwritten_blocks_read_as_zeros_until_converted() {
    let Some(image) = image(32) else { return };
    let fs = open(&image);
    let number = create(&fs, b"file");
    let mut given = Vec::new();
    fs.allocate_unwritten(number, 0..10 * BLOCK, 0, ReservedAccess::Reserved, &mut given).unwrap();
    assert_eq!(given.iter().map(|extent| extent.length).sum::<u64>(), 10 * BLOCK);
    assert!(given.iter().all(|extent| !extent.written));
    write(&device(&image), &given, 7);
    let changed = Time { seconds: 1_700_000_000, nanoseconds: 5 };
    // Every other block, so that no two are adjacent.
    let ranges: Vec<_> = (0..5).map(|n| 2 * n * BLOCK..(2 * n + 1) * BLOCK).collect();
    fs.convert_unwritten(number, &ranges, 9 * BLOCK + 100, Some(changed)).unwrap();
    let expected: Vec<u8> =
        (0..9 * BLOCK + 100).map(|at| if (at / BLOCK).is_multiple_of(2) { 7 } else { 0 }).collect();
    assert!(read(&fs, number) == expected);
    assert_eq!(fs.inode(number).unwrap().mtime, changed);
    // Convert again, including ranges that are converted already.
    fs.convert_unwritten(number, std::slice::from_ref(&(0..10 * BLOCK)), 0, None).unwrap();
    assert!(read(&fs, number).iter().all(|byte| *byte == 7));
    given.clear();
    fs.allocate_unwritten(number, 0..10 * BLOCK, 0, ReservedAccess::Reserved, &mut given).unwrap();
    assert_eq!(given, [], "blocks that are allocated already");
    assert!(matches!(
        fs.convert_unwritten(number, std::slice::from_ref(&(20 * BLOCK..21 * BLOCK)), 0, None),
        Err(Error::Invalid)
    ));
    fs.finish().unwrap();
    drop(fs);
    image.check();
}

#[test]
fn preallocated_blocks_are_freed() {
    let Some(image) = image(32) else { return };
    let fs = open(&image);
    let number = create(&fs, b"file");
    fs.sync().unwrap();
    let free = fs.usage().unwrap().free;
    let mut given = Vec::new();
    fs.allocate_unwritten(number, 0..1, 256 * BLOCK, ReservedAccess::Reserved, &mut given).unwrap();
    assert_eq!(given.iter().map(|extent| extent.length).sum::<u64>(), 257 * BLOCK);
    fs.convert_unwritten(number, std::slice::from_ref(&(0..BLOCK)), 1, None).unwrap();
    fs.free_range(number, BLOCK..1 << 40, false).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.usage().unwrap().free, free - 1);
    fs.truncate_mapped(number, 0).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.usage().unwrap().free, free);
    fs.finish().unwrap();
    drop(fs);
    image.check();
}

#[test]
fn full_device_allocates_partially() {
    let Some(image) = image(16) else { return };
    let fs = open(&image);
    let number = create(&fs, b"file");
    let mut given = Vec::new();
    let error =
        fs.allocate_unwritten(number, 0..1 << 30, 0, ReservedAccess::Reserved, &mut given).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    let bytes: u64 = given.iter().map(|extent| extent.length).sum();
    assert!(bytes > 4 << 20, "{bytes}");
    // The blocks kept back for metadata suffice to convert every other block.
    let ranges: Vec<_> = (0..bytes / BLOCK / 2).map(|n| 2 * n * BLOCK..(2 * n + 1) * BLOCK).collect();
    fs.convert_unwritten(number, &ranges, bytes, None).unwrap();
    fs.finish().unwrap();
    drop(fs);
    image.check();
}
