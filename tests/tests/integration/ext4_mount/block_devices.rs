//! Block-device mounts, and discards of freed blocks.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::loops::while_busy;
use shunt_test_support::{Loop, needs_mount, patiently, requirement, run, run_for, sh};
use shunt_tests::{Image, binary, mounts};

/// A loop device attached to an image, and its mount point.
struct Disk {
    device: Loop,
    at: PathBuf,
}

impl Disk {
    fn new(image: &Image) -> Option<Self> {
        let device = Loop::over(&image.path())?;
        let at = image.aside().join("disk");
        fs::create_dir(&at).unwrap();
        Some(Self { device, at })
    }

    #[track_caller]
    fn mount(&self, args: &[&str]) {
        let mut command = binary::command(&["ext4", "--daemon"]);
        command.args(args).arg(self.device.path()).arg(&self.at);
        while_busy(|| run_for(20, &mut command)).ok();
    }

    /// Unmounts with umount(8), and runs `e2fsck` at once.
    #[track_caller]
    fn umount_and_check(&self) {
        patiently(|| run_for(60, Command::new("umount").arg(&self.at))).ok();
        run_for(60, Command::new("e2fsck").args(["-fn", self.device.path()])).ok();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        mounts::detach(&self.at);
        within(Duration::from_secs(10), || mounts::processes_naming(&self.at).is_empty());
    }
}

/// Calls `FIBMAP`.
fn block_of(file: &File, block: i32) -> i32 {
    const FIBMAP: libc::Ioctl = 1;
    const FIGETBSZ: libc::Ioctl = 2;
    let (mut at, mut size) = (block, 0);
    // SAFETY: each call accesses the one number.
    let done = unsafe {
        libc::ioctl(file.as_raw_fd(), FIGETBSZ, &raw mut size)
            + libc::ioctl(file.as_raw_fd(), FIBMAP, &raw mut at)
    };
    assert_eq!((done, size), (0, 4096), "{}", std::io::Error::last_os_error());
    at
}

fn by_the_kernel(block_size: &str) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&["-b", block_size], 64).unwrap();
    let Some(disk) = Disk::new(&image) else { return shunt_test_support::skip::skip("no loop device") };
    disk.mount(&[]);
    let line = run(Command::new("findmnt").args(["-n", "-o", "FSTYPE,SOURCE"]).arg(&disk.at)).ok();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["fuseblk.shunt.ext4", disk.device.path()]);
    assert!(run(&mut binary::command(&["list"])).ok().contains(disk.device.path()));

    // Block numbers are those of the device: boot loaders read them.
    sh(&disk.at, "head -c 300000 /dev/urandom > file; truncate -s 2M file; sync file").ok();
    let file = File::open(disk.at.join("file")).unwrap();
    let (found, hole) = ([0, 1, 70].map(|block| block_of(&file, block)), block_of(&file, 400));
    drop(file);

    // The kernel passes syncfs(2) on: without it a kill would lose the name.
    fs::rename(disk.at.join("file"), disk.at.join("renamed")).unwrap();
    run(Command::new("sync").arg("-f").arg(&disk.at)).ok();
    mounts::processes_naming(&disk.at).into_iter().for_each(mounts::end);
    mounts::detach(&disk.at);
    assert!(within(Duration::from_secs(10), || mounts::processes_naming(&disk.at).is_empty()));
    disk.mount(&[]);
    assert_eq!(fs::metadata(disk.at.join("renamed")).unwrap().len(), 2 << 20);
    disk.umount_and_check();
    // FIBMAP uses blocks of a page; smaller ones may not be contiguous within one.
    let parts = 4096 / block_size.parse::<i32>().unwrap();
    for (block, found) in [0, 1, 70].into_iter().zip(found) {
        let bmap = format!("bmap /renamed {}", block * parts);
        let theirs = run(Command::new("debugfs").args(["-R", &bmap]).arg(image.path())).ok();
        let theirs: i32 = theirs.trim().parse().unwrap();
        assert!(found * parts == theirs || found == 0 && theirs % parts != 0, "{found}, but {theirs}");
    }
    assert_eq!(hole, 0);
}

#[test]
fn the_kernel_mounts_a_disk() {
    by_the_kernel("4096");
}

#[test]
fn the_kernel_mounts_a_disk_of_small_blocks() {
    by_the_kernel("1024");
}

/// umount(8) of a disk waits for the last commit.
#[test]
fn a_disk_is_clean_once_it_is_unmounted() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 64).unwrap();
    let Some(disk) = Disk::new(&image) else { return shunt_test_support::skip::skip("no loop device") };
    for round in 0..10 {
        disk.mount(&[]);
        let dirty = format!(
            "mkdir d{round}; head -c 2000000 /dev/urandom > d{round}/a; cp d{round}/a b; rm -f c; mv b c"
        );
        sh(&disk.at, &dirty).ok();
        disk.umount_and_check();
    }
}

fn kibibytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() / 2
}

/// Returns the allocated size of an image's file after a large file in it was removed, and before.
fn left(image: &Image, at: &Path) -> (u64, u64) {
    let (fill, keep) = (at.join("fill"), at.join("keep"));
    sh(at, "head -c 20000000 /dev/urandom > fill; head -c 3000000 /dev/urandom > keep; sync fill keep").ok();
    let (full, kept) = (kibibytes(&image.path()), fs::read(&keep).unwrap());
    fs::remove_file(&fill).unwrap();
    // Blocks are freed in the background, and discarded after the commit of that.
    within(Duration::from_secs(3), || {
        File::open(at).unwrap().sync_all().unwrap();
        kibibytes(&image.path()) + 15_000 < full
    });
    assert!(fs::read(&keep).unwrap() == kept);
    (kibibytes(&image.path()), full)
}

#[test]
fn freed_blocks_become_holes_where_that_is_wished() {
    needs_mount!();
    for (options, discards) in [("discard", true), ("discard,nodiscard", false)] {
        let image = Image::make(&[], 64).unwrap();
        let mount = image.by_shunt(&["-o", options]);
        let (left, full) = left(&image, mount.at());
        assert_eq!(left + 19_000 < full, discards, "{options}: {left} of {full} KiB are left");
        mount.umount().ok();
        drop(mount);
        image.check();
    }
}

#[test]
fn freed_blocks_are_discarded_on_disks() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&["-b", "1024"], 64).unwrap();
    let Some(disk) = Disk::new(&image) else { return shunt_test_support::skip::skip("no loop device") };
    disk.mount(&["--discard"]);
    let (left, full) = left(&image, &disk.at);
    disk.umount_and_check();
    assert!(left + 19_000 < full, "{left} of {full} KiB are left");
}
