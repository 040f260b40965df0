//! Files written through a mapping after their close.

use std::fs::{self, File};
use std::path::Path;

use shunt_test_support::needs_mount;
use shunt_tests::Volume;
use shunt_tests::polling::{read, soon};
use shunt_tests::sys::Shared;

const LENGTH: usize = 8192;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn text(byte: u8) -> String {
    String::from_utf8(vec![byte; LENGTH]).unwrap()
}

/// Like the output of linkers.
#[test]
fn mapped_writes_reach_other_nodes() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    let (here, there) = (ant.at().join("file"), bee.at().join("file"));
    let file = open(&here);
    file.set_len(LENGTH as u64).unwrap();
    let mut mapping = Shared::new(&file, LENGTH).unwrap();
    drop(file);
    soon(|| ant.status()["pending"] == 0 || there.exists());
    // The release has arrived by now, and all of the file may be pushed.
    std::thread::sleep(std::time::Duration::from_secs(2));
    mapping.fill(b'a');
    assert_eq!(read(&here), text(b'a'));
    drop(mapping);
    soon(|| read(&there) == text(b'a'));

    // A file that the store already has, with an open reader.
    let reader = File::open(&here).unwrap();
    let file = open(&here);
    let mut mapping = Shared::new(&file, LENGTH).unwrap();
    drop(file);
    std::thread::sleep(std::time::Duration::from_secs(2));
    mapping.fill(b'b');
    // It is pushed while it is mapped, if the file system of the cache updates the mtime.
    if rustix::fs::statfs(volume.aside()).unwrap().f_type != TMPFS {
        mapping.sync().unwrap();
        soon(|| read(&there) == text(b'b'));
    }
    mapping.fill(b'c');
    drop(mapping);
    soon(|| read(&there) == text(b'c'));
    drop(reader);
    soon(|| ant.status()["pending"] == 0);
}

const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// The mapped file is not treated as identical to the stored one, and is not evicted.
#[test]
fn mapped_file_is_not_evicted() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&["--cache-mode", "on-demand"]);
    let path = mount.at().join("file");
    fs::write(&path, text(b'a')).unwrap();
    soon(|| mount.status()["pending"] == 0);
    let file = open(&path);
    let mut mapping = Shared::new(&file, LENGTH).unwrap();
    drop(file);
    std::thread::sleep(std::time::Duration::from_secs(2));
    mapping.fill(b'b');
    drop(mapping);
    soon(|| mount.status()["pending"] == 0 && mount.status()["cached_bytes"] == 0);
    assert_eq!(read(&path), text(b'b'));
}
