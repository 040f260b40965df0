//! A full image stops its writers, as the kernel's own ext4 does: with ENOSPC from `write(2)`, not only from `close(2)`.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use shunt_test_support::cmd::within;
use shunt_test_support::{User, needs_mount, needs_tools, pace, requirement, run_for};
use shunt_tests::Image;
use shunt_tests::image::Mount;
use shunt_tests::sys::Shared;

const NOBODY: u32 = 65534;

fn image() -> (Image, Mount) {
    image_of(40)
}

fn image_of(mebibytes: u64) -> (Image, Mount) {
    let image = Image::make(&["-b", "4096", "-E", "root_owner=65534:65534"], mebibytes).unwrap();
    let mount = image.by_shunt(&[]);
    (image, mount)
}

/// Runs a command that writes without an end, as root and as a user without access to reserved blocks.
fn stops(line: &str) {
    stops_in(40, line);
}

fn stops_in(mebibytes: u64, line: &str) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    needs_tools!("setpriv");
    let (image, mount) = image_of(mebibytes);
    let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    for user in [&["env"][..], &as_nobody] {
        let mut command = Command::new(user[0]);
        command.args(&user[1..]).args(["sh", "-c", line]).current_dir(mount.at());
        let ran = run_for(60, &mut command);
        assert!(ran.status.is_some_and(|status| status.code() == Some(1)), "{user:?}: {ran:#?}");
        assert!(ran.err.contains("No space left"), "{user:?}: {ran:#?}");
        assert_bounded(&mount);
        clear(&mount);
    }
    drop(mount);
    image.check();
}

/// Maximum number of bytes accepted although they do not fit.
const MAX_ACCEPTED_PAST_FULL_BYTES: u64 = 4 << 20;

/// Checks that the writer of `x` was stopped soon after the last block was allocated.
fn assert_bounded(mount: &Mount) {
    let Ok(file) = File::open(mount.at().join("x")) else { return };
    // Dirty pages get blocks or fail.
    drop(file.sync_all());
    let found = file.metadata().unwrap();
    // Does not count an existing hole.
    if found.len() < 100 << 30 {
        let lost = found.len().saturating_sub(found.blocks() * 512);
        assert!(lost <= MAX_ACCEPTED_PAST_FULL_BYTES, "{lost} bytes were accepted without room");
    }
}

/// Removes everything, and waits until the space is free again.
fn clear(mount: &Mount) {
    for entry in fs::read_dir(mount.at()).unwrap().flatten() {
        if entry.file_name() != "lost+found" {
            fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path())).unwrap();
        }
    }
    let has_room = || rustix::fs::statvfs(mount.at()).is_ok_and(|seen| seen.f_bavail > 5000);
    assert!(within(pace::seconds(10), has_room), "no room after everything was removed");
    fs::write(mount.at().join("after"), b"usable").unwrap();
    File::open(mount.at().join("after")).unwrap().sync_all().unwrap();
    fs::remove_file(mount.at().join("after")).unwrap();
}

#[test]
fn stops_dd() {
    stops("exec dd if=/dev/zero of=x bs=64k");
}

/// There is ample space when the file is opened, and all of it fits into memory.
#[test]
fn stops_dd_in_a_large_image() {
    stops_in(600, "exec dd if=/dev/zero of=x bs=64k");
}

/// A writer whose descriptor also permits reads gets the error from the write, not from a read.
#[test]
fn stops_who_reads_as_well() {
    needs_tools!("python3");
    stops_in(
        300,
        "exec python3 -c \"
import os
f = open('x', 'w+b', 0)
while True:
    f.write(b'q' * 65536)
    at = f.tell()
    try:
        assert f.read(10) == b'' and f.seek(0, 2) == at and os.fstat(f.fileno()).st_size == at
    except OSError as error:
        os._exit(3)
\"",
    );
}

/// The kernel itself stops writers once a quarter of the free space is dirty, so that a late daemon accepts no more than fits.
#[test]
fn dirty_limit_follows_the_free_space() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let (image, mount) = image_of(300);
    let bdi = mount.bdi();
    let value = |file: &str| -> u64 { fs::read_to_string(bdi.join(file)).unwrap().trim().parse().unwrap() };
    let free = || {
        let seen = rustix::fs::statvfs(mount.at()).unwrap();
        seen.f_bavail * seen.f_frsize
    };
    let mut file = File::create(mount.at().join("x")).unwrap();
    // The kernel rounds the limit; the daemon leaves differences of an eighth.
    let follows = || {
        let (limit, share) = (value("max_bytes"), free() / 4);
        limit <= share + share / 4 + (1 << 20) && limit >= share / 2
    };
    assert!(follows(), "{} bytes of {} free ones", value("max_bytes"), free());
    assert_eq!(value("strict_limit"), 1);
    file.write_all(&vec![1; 150 << 20]).unwrap();
    file.sync_all().unwrap();
    assert!(within(pace::seconds(10), follows), "{} bytes of {} free ones", value("max_bytes"), free());
    drop((file, mount));
    image.check();
}

#[test]
fn stops_dd_in_a_hole() {
    stops("truncate -s 500G x && exec dd if=/dev/zero of=x bs=1M conv=notrunc");
}

#[test]
fn stops_cat() {
    stops("exec cat /dev/zero >x");
}

#[test]
fn stops_yes() {
    stops("exec yes >x");
}

#[test]
fn stops_gzip() {
    needs_tools!("gzip");
    stops("exec gzip -1 </dev/urandom >x");
}

#[test]
fn stops_appending() {
    stops("exec yes >>x");
}

#[test]
fn stops_mkdir() {
    needs_tools!("python3");
    // One process, because starting 10,000 takes minutes on a busy machine.
    stops("exec python3 -c \"import os, itertools; [os.mkdir(f'd{i}') for i in itertools.count()]\"");
}

#[test]
fn stops_python() {
    needs_tools!("python3");
    stops(
        "exec python3 -c \"
with open('x', 'wb') as f:
    while True:
        f.write(b'q' * 65536)
\"",
    );
}

/// Allocates every free block.
fn fill(at: &Path) -> File {
    let mut fill = File::create(at.join("fill")).unwrap();
    let mut length = 1 << 20;
    while length >= 4096 {
        if fill.write_all(&vec![4; length]).and_then(|()| fill.sync_data()).is_err() {
            length /= 2;
        }
    }
    fill
}

/// On a full image, writes that need no block succeed; the first write that needs one fails, while reading, seeking and stat
/// work.
#[test]
fn only_what_needs_room_is_refused() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let (image, mount) = image();
    let at = mount.at();
    fs::write(at.join("old"), vec![1; 8192]).unwrap();
    fs::write(at.join("log"), vec![1; 8192]).unwrap();
    fs::write(at.join("empty"), b"").unwrap();
    for name in ["old", "log", "empty"] {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    let fill = fill(at);
    let refused = |mut file: File| {
        let error = file.write_all(b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        assert!(file.metadata().unwrap().len() <= 8192);
    };
    let tries = || {
        for _ in 0..2 {
            refused(File::options().append(true).open(at.join("log")).unwrap());
            refused(File::options().write(true).open(at.join("empty")).unwrap());
        }
        let mut old = File::options().read(true).write(true).open(at.join("old")).unwrap();
        old.write_all_at(&[2; 8192], 0).unwrap();
        old.sync_all().unwrap();
        assert_eq!(old.seek(SeekFrom::End(0)).unwrap(), 8192);
        assert_eq!(old.read(&mut [0; 10]).unwrap(), 0);
        let mut empty = File::options().read(true).write(true).open(at.join("empty")).unwrap();
        assert_eq!(empty.read(&mut [0; 10]).unwrap(), 0);
        assert_eq!(empty.seek(SeekFrom::End(0)).unwrap(), 0);
    };
    tries();
    User::new(NOBODY).run(tries);
    // Creating a file works while there is a free inode; its first write fails.
    refused(File::create(at.join("new")).unwrap());
    // With free space, writes succeed through handles that had failed before.
    let mut log = File::options().append(true).open(at.join("log")).unwrap();
    log.write_all(b"x").unwrap_err();
    drop(fill);
    fs::remove_file(at.join("fill")).unwrap();
    assert!(within(pace::seconds(10), || log.write_all(b"x").is_ok()), "refused while there is room");
    log.sync_all().unwrap();
    assert_eq!(log.metadata().unwrap().len(), 8193);
    drop(log);
    drop(mount);
    image.check();
}

/// A failed write through a mapping is reported by msync.
#[test]
fn a_mapping_is_told() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let (image, mount) = image();
    let path = mount.at().join("mapped");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(100 << 20).unwrap();
    let mut map = Shared::new(&file, 100 << 20).unwrap();
    map.fill(1);
    assert_eq!(map.sync().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    drop((map, file));
    clear(&mount);
    drop(mount);
    image.check();
}

/// Each open handle gets a failure reported once, and without free space the next failure is reported as well.
#[test]
fn continued_writes_get_enospc_again() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let (image, mount) = image();
    let file = File::create(mount.at().join("x")).unwrap();
    let other = file_again(&mount);
    let until_refused = |file: &File| {
        for n in 0..100_000_u64 {
            if let Err(error) = file.write_all_at(&vec![3; 1 << 16], n << 16) {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                return;
            }
        }
        panic!("6 GiB were accepted by a file system of 40 MiB");
    };
    for _ in 0..3 {
        until_refused(&file);
    }
    other.write_all_at(b"x", 1 << 30).unwrap_err();
    drop((file, other));
    clear(&mount);
    drop(mount);
    image.check();
}

fn file_again(mount: &Mount) -> File {
    File::options().write(true).open(mount.at().join("x")).unwrap()
}
