//! Access times: `relatime`, `strictatime`, `noatime`, `nodiratime`, `lazytime`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use shunt_test_support::{needs_mount, sh};
use shunt_tests::{Image, mounts};

/// Returns seconds and nanoseconds.
fn atime(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.atime(), found.atime_nsec())
}

/// Drops a file from the page cache, so that the next read sends a request: data just written is cached.
const DROP: &str = "dd of=$f oflag=nocache conv=notrunc,fdatasync count=0 status=none";

/// Counts how often the access time changes in a number of reads, each with a new open, of a file and of a directory.
fn moves(options: &str, reads: u32) -> (u32, u32) {
    let image = Image::make(&[], 32).unwrap();
    let mount = image.by_shunt(&["-o", options]);
    // Older than the inode's ctime.
    let made = "mkdir dir; f=dir/file; echo text > $f; touch -a -d 2001-02-03 $f dir";
    sh(mount.at(), &format!("{made}; {DROP}")).ok();
    let (file, dir) = (mount.at().join("dir/file"), mount.at().join("dir"));
    let mut moved = (0, 0);
    for _ in 0..reads {
        let before = (atime(&file), atime(&dir));
        sleep(Duration::from_millis(5));
        assert_eq!(fs::read(&file).unwrap(), b"text\n");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        moved.0 += u32::from(atime(&file) > before.0);
        moved.1 += u32::from(atime(&dir) > before.1);
    }
    mount.umount().ok();
    drop(mount);
    image.check();
    moved
}

#[test]
fn options_are_told_apart() {
    needs_mount!();
    assert_eq!(moves("relatime", 3), (1, 1));
    assert_eq!(moves("strictatime", 3), (3, 3));
    assert_eq!(moves("strictatime,lazytime", 3), (3, 3));
    assert_eq!(moves("noatime", 3), (0, 0));
    assert_eq!(moves("relatime,nodiratime", 3), (1, 0));
}

/// Reports whether an access time survives a kill of the daemon after another file was synced.
fn survives(options: &str, synced: &str) -> bool {
    let image = Image::make(&[], 32).unwrap();
    let mount = image.by_shunt(&["--takeover", "off", "-o", options]);
    let file = mount.at().join("file");
    let made = "f=file; echo text > $f; touch -a -d 2001-02-03 $f; echo > other; sync -f .";
    sh(mount.at(), &format!("{made}; {DROP}")).ok();
    let before = atime(&file);
    fs::read(&file).unwrap();
    assert!(atime(&file) > before, "seen at once");
    // Another change to commit.
    fs::write(mount.at().join("other"), b"changed").unwrap();
    File::open(mount.at().join(synced)).unwrap().sync_all().unwrap();
    mounts::signal(mount.pid(), rustix::process::Signal::KILL);
    assert!(shunt_test_support::cmd::within(Duration::from_secs(10), || mounts::count(mount.at()) == 0));
    drop(mount);
    let again = image.by_shunt(&["-o", "noatime"]);
    atime(&again.at().join("file")) > before
}

#[test]
fn lazy_times_wait_for_the_inode() {
    needs_mount!();
    assert!(survives("relatime", "other"));
    assert!(!survives("relatime,lazytime", "other"));
    assert!(survives("relatime,lazytime", "file"));
}
