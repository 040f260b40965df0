//! Files that grow alternately have long extents, and blocks of reservation windows are not lost.
//!
//! Needs mkfs.ext4 and e2fsck; for the comparison with the kernel also root and loop devices. In CI (`CI=true`) their absence is
//! a failure.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use shunt_ext4::{Error, FileDevice, Filesystem, Mapping, MemoryDevice, NewInode, NewInodeKind, ROOT};

use crate::common::Image;

/// Bytes per write.
const STEP: usize = 16 << 10;

fn image(mkfs: &[&str], mib: u64) -> Option<Image> {
    match Image::make(mkfs, mib) {
        Ok(image) => Some(image),
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}

fn open(image: &Image) -> Filesystem {
    let file = OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap()
}

/// Number of contiguous runs of a file on the device.
fn runs(fs: &Filesystem, name: &[u8]) -> usize {
    let inode = fs.walk(name).unwrap();
    let blocks = inode.size.div_ceil(fs.geometry().block_size.into()) as u32;
    let (mut at, mut runs, mut end) = (0, 0, 0);
    while at < blocks {
        let run = fs.map(&inode, at, blocks - at).unwrap();
        if let Mapping::Written(start) | Mapping::Unwritten(start) = run.mapping {
            runs += usize::from(start != end);
            end = start + u64::from(run.length);
        }
        at += run.length;
    }
    runs
}

#[test]
fn alternately_growing_files_fragment_no_more_than_in_the_kernel() {
    let Some(image) = image(&["-b", "4096"], 96) else { return };
    let rounds = 250;
    let mut theirs = image.copy().mount().unwrap();
    {
        let files = ["a", "b", "c"].map(|name| File::create(theirs.mnt().join(name)).unwrap());
        for n in 0..rounds {
            for file in &files {
                file.write_all_at(&[n as u8; STEP], (n * STEP) as u64).unwrap();
                file.sync_all().unwrap();
            }
        }
    }
    theirs.unmount();
    let theirs = theirs.open();
    let ours = open(&image);
    let numbers = ["a", "b", "c"]
        .map(|name| ours.create(ROOT, name.as_bytes(), NewInodeKind::Regular, &NewInode::default()));
    let numbers = numbers.map(|inode| inode.unwrap().number);
    for n in 0..rounds {
        for &number in &numbers {
            ours.write(number, (n * STEP) as u64, &[n as u8; STEP]).unwrap();
            ours.sync().unwrap();
        }
    }
    for name in [b"a", b"b", b"c"] {
        let (ours, theirs) = (runs(&ours, name), runs(&theirs, name));
        println!("{} runs, the kernel's {theirs}", ours);
        assert!(ours <= theirs.max(10), "{ours} runs, the kernel's {theirs}");
    }
    ours.close().unwrap();
    image.check();
}

#[test]
fn windows_are_released_when_space_runs_out() {
    let Some(image) = image(&["-b", "1024", "-J", "size=1", "-m", "0"], 8) else { return };
    let memory = Arc::new(MemoryDevice::new(std::fs::read(image.path()).unwrap()));
    let fs = Filesystem::open_writable(memory.clone()).unwrap();
    let file =
        |name: &[u8]| fs.create(ROOT, name, NewInodeKind::Regular, &NewInode::default()).unwrap().number;
    let growing: Vec<u32> = (0..8_u8).map(|n| file(&[b'a' + n])).collect();
    for n in 0..9 {
        for &number in &growing {
            fs.write(number, n * 1024, &[1; 1024]).unwrap();
        }
    }
    fs.sync().unwrap();
    // A crash leaves no trace of the windows.
    let crashed = image.copy();
    std::fs::write(crashed.path(), memory.bytes()).unwrap();
    open(&crashed).close().unwrap();
    crashed.check();
    // A file can take all blocks except those kept back for metadata.
    let all = file(b"all");
    let mut size = 0;
    let full = loop {
        match fs.write(all, size, &[2; 8192]) {
            Ok(count) => size += count as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace), "{full}");
    let (left, _) = fs.free().unwrap();
    let kept = fs.geometry().blocks / 50 + 8;
    assert!(left <= kept, "{left} blocks remain allocated, at most {kept} may");
    fs.close().unwrap();
    std::fs::write(image.path(), memory.bytes()).unwrap();
    image.check();
}
