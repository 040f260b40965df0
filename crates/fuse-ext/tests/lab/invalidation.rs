//! Tests that the next call sees a change, whether daemon or program answers it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use super::common::*;

fn one_file() -> Mount {
    let small = CountingFs::new();
    small.add(1, "file0", 0o100_644);
    Mount::asking(small)
}

#[test]
fn each_change_is_seen_at_once() {
    if !module_is_here() {
        return;
    }
    let mount = one_file();
    let path = mount.path("file0");
    for round in 0..50u32 {
        let mode = 0o600 + round % 8;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);

        let length = 5 + u64::from(round);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"x").unwrap();
        drop(file);
        assert_eq!(fs::metadata(&path).unwrap().len(), length);

        let value = format!("value {round}");
        rustix::fs::setxattr(&path, "user.x", value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
        assert_eq!(getxattr(&path, "user.x").unwrap(), value.as_bytes());
        assert_eq!(getxattr(&path, "user.x").unwrap(), value.as_bytes());
    }
}

#[test]
fn names_come_and_go() {
    if !module_is_here() {
        return;
    }
    let mount = one_file();
    let (path, new, other) = (mount.path("file0"), mount.path("new"), mount.path("other"));
    let links = |path: &std::path::Path| fs::metadata(path).map(|found| found.nlink()).unwrap_or(0);
    for _ in 0..50 {
        assert_eq!((links(&path), links(&new), links(&other)), (1, 0, 0));
        fs::hard_link(&path, &new).unwrap();
        assert_eq!((links(&path), links(&new), links(&other)), (2, 2, 0));
        assert_eq!((links(&path), links(&new), links(&other)), (2, 2, 0));
        fs::rename(&new, &other).unwrap();
        assert_eq!((links(&path), links(&new), links(&other)), (2, 0, 2));
        fs::remove_file(&other).unwrap();
        assert_eq!((links(&path), links(&new), links(&other)), (1, 0, 0));
    }
    mount.assert_no_violations();
}

/// Readers refill the tables all the time; one writer counts up. No reader may see an outdated count.
#[test]
fn a_refill_never_overwrites_a_newer_change() {
    if !module_is_here() {
        return;
    }
    let mount = one_file();
    let path = mount.path("file0");
    let done = AtomicBool::new(false);
    let latest = std::sync::atomic::AtomicU64::new(4);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let at_least = latest.load(Ordering::SeqCst);
                    let seen = fs::metadata(&path).unwrap().len();
                    assert!(seen >= at_least, "{seen} after {at_least}");
                }
            });
        }
        for length in 5..1000 {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(length).unwrap();
            latest.store(length, Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
    });
}
