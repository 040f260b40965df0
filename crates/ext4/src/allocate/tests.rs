use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::device::MemoryDevice;
use crate::filesystem::Filesystem;
use crate::{NewInode, NewInodeKind, ROOT};

/// A file system of 16 groups of 256 blocks whose allocator caches at most `max_bitmaps` bitmaps; `None` without `mkfs.ext4`.
fn small(max_bitmaps: usize) -> Option<Filesystem> {
    let fs = made(4, &["-g", "256", "-N", "64", "-O", "^has_journal,^resize_inode"])?;
    fs.allocator().unwrap().bitmap_cache.lock().limit(max_bitmaps);
    Some(fs)
}

/// A file system of this size in MiB, in blocks of 1 KiB; `None` without `mkfs.ext4`.
fn made(mebibytes: u64, mkfs: &[&str]) -> Option<Filesystem> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
    match Command::new("mkfs.ext4").args(["-q", "-F", "-b", "1024"]).args(mkfs).arg(&path).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            return None;
        }
    }
    Some(Filesystem::open_writable(Arc::new(MemoryDevice::new(std::fs::read(path).unwrap()))).unwrap())
}

/// Writers in different groups take different locks.
#[test]
fn top_level_directories_spread_over_groups() {
    // Two flex groups of 16 groups each.
    let Some(fs) = made(256, &[]) else { return };
    let groups: HashSet<u32> = (0..8)
        .map(|n| {
            let name = format!("{n}");
            let made =
                fs.create(ROOT, name.as_bytes(), NewInodeKind::Directory, &NewInode::default()).unwrap();
            fs.store.geometry().locate_inode(made.number).unwrap().0
        })
        .collect();
    assert_eq!(groups.len(), 8, "{groups:?}");
}

fn in_memory(allocator: &Allocator) -> usize {
    allocator.groups.iter().filter(|group| group.locked.lock().busy.is_some()).count()
}

#[test]
fn evicted_bitmap_keeps_taken_reserved_and_pending_blocks() {
    let Some(fs) = small(2) else { return };
    let (allocator, store) = (fs.allocator().unwrap(), &*fs.store);
    let all = allocator.available.load(Ordering::Relaxed);
    let geometry = store.geometry();
    let mut taken = Vec::new();
    let mut seen = HashSet::new();
    // Every other block of each group is taken, and one is reserved in some.
    let mut reserved = Vec::new();
    for round in 0..40 {
        for group in 0..geometry.groups {
            let goal = geometry.group_start(group) + 100 + round * 3;
            let Ok(mut one) =
                allocator.reserve(store, goal, 2, (Purpose::Metadata, ReservedAccess::Reserved))
            else {
                continue;
            };
            for block in one.start..one.start + u64::from(one.count) {
                assert!(seen.insert(block), "block {block} is allocated twice");
            }
            if round == 0 && group % 8 == 0 {
                reserved.push(one);
                continue;
            }
            let mut handle = store.begin(TAKE_CREDITS).unwrap();
            taken.push((one.start, one.count));
            let count = one.count;
            one.take(&mut handle, count).unwrap();
            handle.complete();
        }
    }
    assert!(in_memory(allocator) <= 2 + reserved.len(), "{}", in_memory(allocator));
    // Freed blocks are unavailable before the commit, even if bitmaps are evicted in between.
    for &(start, count) in &taken {
        let mut handle = store.begin(TAKE_CREDITS).unwrap();
        allocator.free(&mut handle, start, count).unwrap();
        handle.complete();
    }
    while let Ok(one) = allocator.reserve(store, 0, 7, (Purpose::Metadata, ReservedAccess::Reserved)) {
        for block in one.start..one.start + u64::from(one.count) {
            assert!(seen.insert(block), "block {block} is allocated before its release was committed");
        }
        reserved.push(one);
    }
    let waiting: u32 = taken.iter().map(|(_, count)| count).sum();
    let held: u32 = reserved.iter().map(|one| one.count).sum();
    assert_eq!(i64::from(held) + i64::from(waiting), all);
    drop(reserved);
    store.sync().unwrap();
    assert!(!allocator.sweep(store).unwrap());
    assert_eq!(allocator.available.load(Ordering::Relaxed), all);
    let free =
        allocator.groups.iter().map(|group| i64::from(group.blocks.load(Ordering::Relaxed))).sum::<i64>();
    assert_eq!(free, all);
}
