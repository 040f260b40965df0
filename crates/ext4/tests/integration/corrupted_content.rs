//! File content changes on images with random damage: each operation terminates with a result or an error, and never panics.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use shunt_ext4::{Fallocate, Filesystem, MemoryDevice};

use crate::common::Image;

const FILES: usize = 6;

/// A small image with deep maps and holes. Checksums are off, so that changes reach the parsers.
fn image(options: &[&str]) -> Option<Vec<u8>> {
    let mut image = Image::new(&[&["-b", "1024", "-N", "64"], options].concat(), 4, false)?;
    for n in 0..FILES {
        let file = File::create(image.mnt().join(format!("{n}"))).unwrap();
        for block in 0..150 {
            file.write_all_at(&[n as u8 + 1; 1000], block * 4096).unwrap();
        }
        file.write_all_at(&[7; 50_000], 1 << 20).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 2 << 20, 50_000).ok();
    }
    image.unmount();
    Some(fs::read(image.path()).unwrap())
}

/// Performs every operation on all files; returns the number of successful ones.
fn change(bytes: Vec<u8>) -> usize {
    let Ok(fs) = Filesystem::open_writable(Arc::new(MemoryDevice::new(bytes))) else { return 0 };
    let mut good = 0;
    let mut note = |worked: bool| good += usize::from(worked);
    for n in 0..FILES {
        let Ok(inode) = fs.walk(format!("{n}").as_bytes()) else { continue };
        let number = inode.number;
        note(fs.write(number, 500, &[1; 3000]).is_ok());
        note(fs.write(number, 100_000, &[2; 60_000]).is_ok());
        note(fs.write(number, 3 << 20, &[3; 5000]).is_ok());
        note(fs.write(number, u64::MAX - 10, &[3; 5]).is_err());
        note(fs.fallocate(number, Fallocate::Punch, 8000, 30_000).is_ok());
        note(fs.fallocate(number, Fallocate::KeepSize, 200_000, 90_000).is_ok());
        note(fs.fallocate(number, Fallocate::Zero { keep_size: false }, 5000, 70_000).is_ok());
        note(fs.fallocate(number, Fallocate::Collapse, 10 << 10, 40 << 10).is_ok());
        note(fs.fallocate(number, Fallocate::Insert, 10 << 10, 40 << 10).is_ok());
        note(fs.seek_hole(number, 3000).is_ok());
        note(fs.seek_data(number, 3000).is_ok());
        if n % 2 == 0 {
            note(fs.sync().is_ok());
        }
        note(fs.truncate(number, 150_000).is_ok());
        note(fs.truncate(number, 0).is_ok());
    }
    note(fs.close().is_ok());
    good
}

fn survives(options: &[&str], least: usize) {
    let Some(original) = image(options) else { return };
    let good = change(original.clone());
    assert!(good >= least, "{good}");
    // Candidates for changes: superblock, descriptors, bitmaps, and all non-zero bytes.
    let used: Vec<usize> = (1024..original.len()).filter(|&at| original[at] != 0 || at < 8192).collect();
    let metadata = used.iter().filter(|&&at| !matches!(original[at], 1..=7)).copied().collect::<Vec<_>>();
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1), Just(0x80)];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), byte), 1..12);
    let config = ProptestConfig { cases: 100, ..ProptestConfig::default() };
    proptest!(config, |(changes in changes)| {
        let mut bytes = original.clone();
        for (place, byte) in &changes {
            bytes[metadata[place.index(metadata.len())]] = *byte;
        }
        let start = Instant::now();
        change(bytes);
        prop_assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    });
}

#[test]
fn extents() {
    survives(&["-O", "^metadata_csum,^uninit_bg,^has_journal"], FILES * 13);
}

#[test]
fn extents_with_a_journal() {
    survives(&["-O", "^metadata_csum,^uninit_bg", "-J", "size=1"], FILES * 13);
}

#[test]
fn block_maps() {
    survives(&["-t", "ext2"], FILES * 8);
}
