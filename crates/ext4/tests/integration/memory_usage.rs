//! Memory use with a file system of 1 TiB. Needs no root. Must run in a process of its own, as it measures the process.

use std::fs::{self, File, OpenOptions};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_ext4::{Fallocate, FileDevice, Filesystem, NewInode, NewInodeKind, ROOT};

/// Returns the peak memory use of this process in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn groups_of_1_tib_fit_in_128_mib() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard"]).arg(&path).output();
    match made {
        Ok(output) if output.status.success() => {}
        other => {
            assert!(std::env::var_os("CI").is_none(), "{other:?}");
            eprintln!("skipped: {other:?}");
            return;
        }
    }
    let device =
        FileDevice::new(OpenOptions::new().read(true).write(true).open(&path).unwrap(), false).unwrap();
    let start = Instant::now();
    let fs = Filesystem::open_writable(Arc::new(device)).unwrap();
    let opened = start.elapsed();
    let before = fs.free().unwrap().0;
    let file = fs.create(ROOT, b"file", NewInodeKind::Regular, &NewInode::default()).unwrap().number;
    fs.fallocate(file, Fallocate::KeepSize, 0, 960 << 30).unwrap();
    assert!(before - fs.free().unwrap().0 >= 960 << 18);
    fs.sync().unwrap();
    fs.truncate(file, 0).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.free().unwrap().0, before);
    fs.close().unwrap();
    let peak = peak();
    println!("opened in {opened:?}, peak {peak} KiB, total {:?}", start.elapsed());
    assert!(peak <= 128 << 10, "peak memory {peak} KiB");
    assert!(opened < Duration::from_secs(2), "{opened:?}");
    let checked = Command::new("e2fsck").args(["-fn"]).arg(&path).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
