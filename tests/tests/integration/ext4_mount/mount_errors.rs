//! Images that cannot be mounted: one line gives the reason, with an exit code.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::{Ran, one_line, within};
use shunt_test_support::{Loop, needs_mount, needs_tools, patiently, requirement, run, run_for};
use shunt_tests::{Image, mounts};

/// Asserts that a mount fails with this exit code and with these words in its one line, and leaves nothing behind.
#[track_caller]
fn refused(image: &Image, code: i32, words: &[&str]) {
    let ran = run_for(20, &mut image.mount_command(&[]));
    assert_eq!(ran.status.and_then(|status| status.code()), Some(code), "{ran:?}");
    for word in words {
        one_line(&ran.err, word);
    }
    assert!(ran.err.contains(image.path().to_str().unwrap()), "{}", ran.err);
    assert_eq!(mounts::count(&image.aside().join("ours")), 0);
}

/// Signatures of other formats, and the name reported for each.
const OTHERS: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "xfs"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (0, b"hsqs", "squashfs"),
    (3, b"NTFS    ", "ntfs"),
    (0x36, b"FAT16   ", "fat"),
    (0x8001, b"CD001", "iso 9660"),
    (0, b"LUKS\xba\xbe", "cryptsetup"),
    (0x218, b"LVM2 001", "logical volumes"),
    (0, b"QFI\xfb", "qemu-img convert"),
    (0, &[0x1f, 0x8b, 8], "gzip"),
    (0, &[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (100, b"whatever", "an unknown format"),
];

#[test]
fn of_other_kinds() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    for (at, magic, word) in OTHERS {
        let mut content = vec![0; 1 << 20];
        content[*at..at + magic.len()].copy_from_slice(magic);
        fs::write(image.path(), content).unwrap();
        refused(&image, 1, &[word, "not an ext2, ext3 or ext4"]);
    }
    // A file system made by the real tool.
    let xfs = run_for(
        60,
        Command::new("mkfs.xfs").args(["-q", "-f", "-d", "size=300m,file,name="]).arg(image.path()),
    );
    if xfs.success() {
        refused(&image, 1, &["xfs"]);
    }
}

#[test]
fn truncated() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    File::options().write(true).open(image.path()).unwrap().set_len(9 << 20).unwrap();
    refused(&image, 1, &["truncated"]);
}

#[test]
fn with_a_feature_that_nobody_knows() {
    needs_mount!();
    let image = Image::make(&["-O", "^metadata_csum"], 16).unwrap();
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let mut features = [0; 4];
    const INCOMPAT: u64 = 1024 + 0x60;
    file.read_exact_at(&mut features, INCOMPAT).unwrap();
    features[3] |= 0x40;
    file.write_all_at(&features, INCOMPAT).unwrap();
    refused(&image, 1, &["0x40000000"]);
}

/// As with the kernel: an image whose root directory is unusable is refused, read-only too, and not mounted without a root.
#[test]
fn with_a_damaged_root() {
    needs_mount!();
    needs_tools!("debugfs");
    for (mkfs, damage) in [
        (&[][..], "sif <2> mode 0100644"),
        (&[], "sif <2> mode 0"),
        (&[], "clri <2>"),
        // The descriptor of the root's block group.
        (&["-O", "^metadata_csum"], "set_bg 0 inode_table 99999999"),
        (&["-O", "^metadata_csum"], "set_bg 0 inode_table 0"),
        (&[], "set_bg 0 checksum 0"),
    ] {
        let image = Image::make(mkfs, 16).unwrap();
        let path = image.path();
        run(Command::new("debugfs").args(["-w", "-R", damage]).arg(&path)).ok();
        let by_kernel = image.by_kernel("ro").is_ok();
        for option in ["ro", "rw"] {
            let ran = run_for(20, &mut image.mount_command(&["-o", option]));
            let has_root =
                fs::read_dir(image.aside().join("ours")).is_ok_and(|mut entries| entries.next().is_some());
            if ran.success() {
                image.by_shunt_already();
            }
            assert_eq!(ran.success(), has_root, "{damage}, {option}: {ran:?}");
            assert!(!ran.success() || by_kernel, "{damage}, {option}: the kernel refuses it");
        }
    }
}

/// In use by another mount of shunt: the file, and a loop device attached to it.
#[test]
fn in_use() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    let first = image.by_shunt(&[]);
    let second = image.aside().join("second");
    fs::create_dir(&second).unwrap();
    let again = |source: &std::ffi::OsStr| -> Ran {
        run_for(20, shunt_tests::binary::command(&["ext4", "--daemon"]).arg(source).arg(&second))
    };
    let ran = again(image.path().as_os_str());
    assert_eq!(ran.status.and_then(|status| status.code()), Some(4), "{ran:?}");
    one_line(&ran.err, &format!("process {} (", first.pid()));
    drop(first);

    let Some(device) = Loop::over(&image.path()) else {
        return shunt_test_support::skip::skip("no loop device");
    };
    let at = image.aside().join("device");
    fs::create_dir(&at).unwrap();
    let mount = shunt_tests::binary::command(&["ext4", "--daemon", device.path()]).arg(&at).output();
    let ran = again(device.path().as_ref());
    let kernel = run(Command::new("mount").args(["-t", "ext4", device.path()]).arg(&second));
    patiently(|| run_for(20, shunt_tests::binary::command(&["umount"]).arg(&at))).ok();
    assert!(mount.unwrap().status.success());
    assert_eq!(ran.status.and_then(|status| status.code()), Some(4), "{ran:?}");
    one_line(&ran.err, "in use");
    // The kernel detects that this file system is mounted already, or refuses it.
    assert!(!kernel.success(), "{kernel:?}");
}

/// A read-only medium whose journal needs recovery: the recovery happens in memory.
#[test]
fn none_where_the_medium_cannot_be_written() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    needs_tools!("losetup");
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&["--takeover", "off"]);
    fs::write(mount.at().join("file"), b"synced").unwrap();
    File::open(mount.at().join("file")).unwrap().sync_all().unwrap();
    mounts::signal(mount.pid(), Signal::KILL);
    assert!(within(Duration::from_secs(10), || mounts::count(mount.at()) == 0));
    drop(mount);
    let before = fs::read(image.path()).unwrap();
    let device = shunt_test_support::loops::set_up(
        Command::new("losetup").args(["-r", "-f", "--show"]).arg(image.path()),
    )
    .ok();
    let (device, at) = (device.trim(), image.aside().join("device"));
    fs::create_dir(&at).unwrap();
    let mounted = run_for(20, shunt_tests::binary::command(&["ext4", "--daemon", device]).arg(&at));
    let content = fs::read(at.join("file"));
    let write = fs::write(at.join("file"), b"changed").map_err(|error| error.raw_os_error());
    patiently(|| run_for(20, shunt_tests::binary::command(&["umount"]).arg(&at)));
    run(Command::new("losetup").args(["-d", device]));
    mounted.ok();
    assert_eq!((content.unwrap().as_slice(), write), (b"synced".as_slice(), Err(Some(30))));
    assert!(fs::read(image.path()).unwrap() == before);
}

/// Objects that are no images are refused without waiting and without reading from them.
#[test]
fn pipes_devices_and_directories() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    let pipe = image.aside().join("pipe");
    run(Command::new("mkfifo").arg(&pipe)).ok();
    for place in [pipe.as_path(), image.aside(), std::path::Path::new("/dev/zero")] {
        for words in [&["info"][..], &["ls"], &["cat", "/file"], &["extract", "/"]] {
            let mut command = shunt_tests::binary::command(&["ext4", words[0]]);
            let ran = run_for(5, command.arg(place).args(&words[1..]).current_dir(image.aside()));
            assert_eq!(ran.status.and_then(|status| status.code()), Some(1), "{ran:?}");
            one_line(&ran.err, "give a regular file or a block device");
        }
    }
    let image = Image::of(pipe);
    refused(&image, 1, &["give a regular file or a block device"]);
}
