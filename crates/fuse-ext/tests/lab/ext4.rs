//! Tests with an ext4 image whose requests are answered in the kernel.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::common::{getxattr, module_is_here};
use super::mirror_cli::{TestMirror, as_user, eventually, listxattr, set};

const CACHED_OPTIONS: [&str; 2] = ["--extension", "builtin"];
const UNCACHED_OPTIONS: [&str; 3] = ["--extension", "builtin", "--no-kernel-cache"];

fn length(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.len())
}

#[test]
fn repeated_requests_do_not_reach_the_daemon() {
    if !module_is_here() {
        return;
    }
    let mount = TestMirror::ext4(&UNCACHED_OPTIONS);
    fs::create_dir(mount.path("dir")).unwrap();
    let (file, link) = (mount.path("dir/file"), mount.path("dir/link"));
    fs::write(&file, "four").unwrap();
    set(&file, "user.x", "value");
    std::os::unix::fs::symlink("file", &link).unwrap();
    let look = || {
        assert_eq!(length(&file), Some(4));
        assert_eq!(length(&mount.path("dir/absent")), None);
        assert_eq!(getxattr(&file, "user.x").unwrap(), b"value");
        assert!(getxattr(&file, "user.y").is_err());
        assert_eq!(listxattr(&file), ["user.x"]);
        as_user(1000, || assert_eq!(listxattr(&file), ["user.x"]));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
    };
    let all = ["lookup", "getattr", "getxattr", "listxattr", "readlink"];
    assert!(eventually(|| {
        look();
        mount.counts(&all, look).0 == 0
    }));
    let (asked, answered) = mount.counts(&all, || (0..100).for_each(|_| look()));
    println!("ext4: {asked} requests to the daemon, {answered} answers in the kernel");
    assert!(asked == 0 && answered >= 700, "{asked} {answered}");
}

#[test]
fn a_listing_fills_the_tables() {
    if !module_is_here() {
        return;
    }
    let mount = TestMirror::ext4(&UNCACHED_OPTIONS);
    let names: Vec<String> = (0..200).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|name| fs::write(mount.path(name), name).unwrap());
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), names.len() + 1);
    let (asked, answered) = mount.counts(&["lookup", "getattr"], || {
        for name in &names {
            assert_eq!(length(&mount.path(name)), Some(name.len() as u64));
        }
    });
    println!(
        "ext4, 200 names after a listing: {asked} requests to the daemon, {answered} answers in the kernel"
    );
    assert!(asked <= 20 && answered >= 180, "{asked} {answered}");
}

#[test]
fn changes_through_the_mount_are_seen_at_once() {
    if !module_is_here() {
        return;
    }
    for arguments in [&CACHED_OPTIONS[..], &UNCACHED_OPTIONS] {
        let mount = TestMirror::ext4(arguments);
        let (file, other) = (mount.path("file"), mount.path("other"));
        fs::write(&file, "").unwrap();
        for round in 1..30u64 {
            let mut open = File::options().append(true).open(&file).unwrap();
            assert_eq!(length(&file), Some(round - 1));
            open.write_all(b"x").unwrap();
            assert_eq!(length(&file), Some(round));
            drop(open);
            assert_eq!(length(&file), Some(round));
            assert_eq!(fs::read(&file).unwrap().len() as u64, round);
            let mode = 0o600 + (round % 8) as u32;
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, mode);
            let value = format!("{round}");
            set(&file, "user.x", &value);
            assert_eq!(getxattr(&file, "user.x").unwrap(), value.as_bytes());
            assert_eq!(listxattr(&file), ["user.x"]);
            rustix::fs::removexattr(&file, "user.x").unwrap();
            assert!(getxattr(&file, "user.x").is_err() && listxattr(&file).is_empty());
            assert_eq!(length(&other), None);
            fs::hard_link(&file, &other).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
            fs::remove_file(&other).unwrap();
            assert_eq!((length(&other), fs::metadata(&file).unwrap().nlink()), (None, 1));
            fs::rename(&file, &other).unwrap();
            assert_eq!((length(&file), length(&other)), (None, Some(round)));
            std::os::unix::fs::symlink(format!("to{round}"), &file).unwrap();
            assert_eq!(fs::read_link(&file).unwrap(), Path::new(&format!("to{round}")));
            fs::rename(&other, &file).unwrap();
            assert_eq!((length(&file), length(&other)), (Some(round), None));
        }
        // The inode number is reused.
        for round in 0..20 {
            fs::remove_file(&file).unwrap();
            fs::write(&file, vec![b'y'; round]).unwrap();
            assert_eq!(length(&file), Some(round as u64));
            assert!(listxattr(&file).is_empty());
            set(&file, "user.y", "");
        }
    }
}

#[test]
fn a_write_takes_capabilities() {
    if !module_is_here() {
        return;
    }
    let mount = TestMirror::ext4(&CACHED_OPTIONS);
    let file = mount.path("program");
    // CAP_NET_RAW, permitted.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for _ in 0..10 {
        fs::write(&file, "program").unwrap();
        rustix::fs::setxattr(&file, "security.capability", &capability, rustix::fs::XattrFlags::empty())
            .unwrap();
        for _ in 0..3 {
            assert_eq!(getxattr(&file, "security.capability").unwrap().len(), 20);
            assert_eq!(listxattr(&file), ["security.capability"]);
        }
        File::options().write(true).open(&file).unwrap().write_all(b"virus").unwrap();
        assert!(getxattr(&file, "security.capability").is_err() && listxattr(&file).is_empty());
    }
}
