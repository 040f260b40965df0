//! Journals written by the engine are recovered by the kernel and by e2fsck.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{Attributes, FileDevice, Filesystem, Time};

use crate::common::{Image, run};

fn open(path: &Path) -> Filesystem {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap()
}

fn fsck(path: &Path, how: &str) {
    let output = Command::new("e2fsck").arg(how).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

/// Sets the times of all files to a value that identifies the round.
fn touch(fs: &Filesystem, files: &[u32], round: i64) {
    for &number in files {
        let time = Some(Time { seconds: round * 1000 + i64::from(number), nanoseconds: 7 });
        let change =
            Attributes { mtime: time, permissions: Some(round as u16 & 0o777), ..Default::default() };
        fs.set_attributes(number, &change).unwrap();
    }
}

fn replayed_by_the_kernel(mkfs: &[&str]) {
    let Some(mut image) = Image::new(mkfs, 64, false) else { return };
    (0..2000).for_each(|n| fs::write(image.mnt().join(format!("{n}")), b"").unwrap());
    image.unmount();
    let fs = open(&image.path());
    let files: Vec<u32> = (0..2000).map(|n| fs.walk(format!("{n}").as_bytes()).unwrap().number).collect();
    // The log wraps around several times.
    for round in 1..=80 {
        touch(&fs, &files, round);
        fs.sync().unwrap();
    }
    // Uncommitted changes must not be visible after the crash.
    touch(&fs, &files[..10], 99);
    let crashed = image.dir.path().join("crashed");
    fs::copy(image.path(), &crashed).unwrap();
    fs.close().unwrap();
    fsck(&image.path(), "-fn");

    let checked = image.dir.path().join("checked");
    fs::copy(&crashed, &checked).unwrap();
    run("e2fsck", &["-fy", "-E", "journal_only", checked.to_str().unwrap()]).unwrap();
    fsck(&checked, "-fn");
    fs::rename(&crashed, image.path()).unwrap();
    let mut image = image.mount().unwrap();
    for (n, number) in files.iter().enumerate() {
        let stat =
            std::os::unix::fs::MetadataExt::mtime(&fs::metadata(image.mnt().join(format!("{n}"))).unwrap());
        assert_eq!(stat, 80_000 + i64::from(*number));
    }
    image.unmount();
    fsck(&image.path(), "-fn");
    assert_eq!(File::open(checked).unwrap().metadata().unwrap().len(), 64 << 20);
}

#[test]
fn defaults() {
    replayed_by_the_kernel(&["-b", "4096", "-J", "size=4"]);
}

#[test]
fn small_blocks() {
    replayed_by_the_kernel(&["-b", "1024", "-J", "size=1"]);
}

#[test]
fn without_sums() {
    replayed_by_the_kernel(&["-b", "1024", "-O", "^metadata_csum,^64bit", "-J", "size=1"]);
}

#[test]
fn ext3() {
    replayed_by_the_kernel(&["-t", "ext3", "-b", "2048", "-J", "size=2"]);
}
