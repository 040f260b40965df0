//! Writes through the mount: the kernel reads the result, and `e2fsck` finds nothing to repair right after `shunt umount`.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::process::Command;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use shunt_test_support::{needs_mount, requirement, run, run_for, sh};
use shunt_tests::{Image, mounts};

use crate::ext4_mount::{FILL, tree_snapshot};

/// Asserts that the kernel finds everything created through the mount.
fn kernel_reads(mkfs: &[&str]) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = match Image::make(mkfs, 64) {
        Ok(image) => image,
        Err(why) => return shunt_test_support::skip::skip(&why),
    };
    let mount = image.by_shunt(&["-o", "suid,dev"]);
    sh(mount.at(), FILL).ok();
    sh(mount.at(), "rm -r dir/a; rm big/*99; mv small moved; mkdir again; cp -a moved again/; rm large; chattr -i moved/13")
        .ok();
    mount.umount().ok();
    drop(mount);
    image.check();
    let ours = image.by_shunt(&["--read-only"]);
    let kernel = match image.by_kernel("ro") {
        Ok(kernel) => kernel,
        Err(why) => return shunt_test_support::skip::kernel_cannot(&why),
    };
    let (theirs, ours_seen) = (tree_snapshot::tree(kernel.at()), tree_snapshot::tree(ours.at()));
    assert!(theirs.len() > 3900);
    for (path, seen) in &theirs {
        assert!(ours_seen[path].is(seen), "{path:?}: {:#?}, but the kernel shows {seen:#?}", ours_seen[path]);
    }
}

macro_rules! variants {
    ($($name:ident: $options:expr;)*) => {
        $(#[test]
        fn $name() {
            kernel_reads(&$options);
        })*
    };
}

variants! {
    ext4: ["-b", "4096"];
    ext4_1k: ["-b", "1024", "-O", "orphan_file,metadata_csum_seed"];
    ext4_without_sums: ["-b", "2048", "-O", "^metadata_csum,^64bit,^uninit_bg"];
    ext4_without_journal: ["-b", "4096", "-O", "^has_journal"];
    ext4_small_inodes: ["-b", "4096", "-I", "128"];
    ext3: ["-t", "ext3", "-b", "4096"];
    ext2: ["-t", "ext2", "-b", "1024"];
}

/// An open file keeps its content, with or without a name; its space is freed after the last close.
#[test]
fn unlinked_file_lives_while_open() {
    needs_mount!();
    let image = Image::make(&[], 64).unwrap();
    let mount = image.by_shunt(&[]);
    let free = || rustix::fs::statvfs(mount.at()).unwrap().f_bfree;
    let before = free();
    let path = mount.at().join("file");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&vec![7; 8 << 20]).unwrap();
    file.sync_all().unwrap();
    assert!(free() < before);
    fs::remove_file(&path).unwrap();
    let mut content = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut content).unwrap();
    assert!(content == vec![7; 8 << 20]);
    drop(file);
    assert!(shunt_test_support::cmd::within(std::time::Duration::from_secs(5), || free() + 8 >= before));
    // A file that is still open when the mount ends.
    let open = File::create(mount.at().join("other")).unwrap();
    fs::remove_file(mount.at().join("other")).unwrap();
    run(Command::new("umount").arg("-l").arg(mount.at())).ok();
    drop(open);
    drop(mount);
    assert!(shunt_test_support::cmd::within(std::time::Duration::from_secs(10), || {
        mounts::processes_naming(&image.path()).is_empty()
    }));
    image.check();
}

/// After fsync(2), on any descriptor, data survives an immediate `kill -9`.
#[test]
fn synced_data_survives_a_kill() {
    needs_mount!();
    let image = Image::make(&[], 64).unwrap();
    for round in 0..4 {
        let mount = image.by_shunt(&["--takeover", "off"]);
        let dir = mount.at().join(format!("dir{round}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), vec![round as u8; 300_000]).unwrap();
        match round % 2 {
            0 => File::open(dir.join("file")).unwrap().sync_all().unwrap(),
            _ => {
                File::options().write(true).open(dir.join("file")).unwrap().sync_data().unwrap();
                File::open(&dir).unwrap().sync_all().unwrap();
            }
        }
        let renamed = dir.join("renamed");
        fs::rename(dir.join("file"), &renamed).unwrap();
        mounts::signal(mount.pid(), rustix::process::Signal::KILL);
        // The guardian removes the mount.
        assert!(shunt_test_support::cmd::within(std::time::Duration::from_secs(10), || mounts::count(
            mount.at()
        ) == 0));
        drop(mount);
        let mount = image.by_shunt(&[]);
        let there = [dir.join("file"), renamed].iter().find_map(|path| fs::read(path).ok());
        assert!(there == Some(vec![round as u8; 300_000]), "round {round}");
        mount.umount().ok();
        drop(mount);
        image.check();
    }
}

/// The kernel does not report the completion of syncfs(2) to the mount of an image file. The pages are committed soon after.
#[test]
fn syncfs_data_is_durable_soon() {
    needs_mount!();
    let image = Image::make(&[], 64).unwrap();
    let mount = image.by_shunt(&["--takeover", "off"]);
    for round in 0..3_u8 {
        let mut file = File::create(mount.at().join(round.to_string())).unwrap();
        file.write_all(&[round; 100_000]).unwrap();
        rustix::fs::syncfs(&file).unwrap();
        // Much less than the commit interval.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    mounts::signal(mount.pid(), rustix::process::Signal::KILL);
    assert!(shunt_test_support::cmd::within(std::time::Duration::from_secs(10), || mounts::count(
        mount.at()
    ) == 0));
    drop(mount);
    let mount = image.by_shunt(&[]);
    for round in 0..3_u8 {
        assert!(fs::read(mount.at().join(round.to_string())).unwrap() == [round; 100_000], "round {round}");
    }
    drop(mount);
    image.check();
}

#[test]
fn names_move_in_all_ways() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&["-o", "dev"]);
    let path = |name: &str| mount.at().join(name);
    let text = |name: &str| fs::read_to_string(path(name)).unwrap();
    fs::write(path("a"), "a").unwrap();
    fs::write(path("b"), "b").unwrap();
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, path(from), CWD, path(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((text("a"), text("b")), ("b".into(), "a".into()));
    rename("a", "c", RenameFlags::WHITEOUT).unwrap();
    assert_eq!(text("c"), "b");
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(
        &fs::symlink_metadata(path("a")).unwrap().file_type()
    ));
    drop(mount);
    image.check();
}

/// Immutable files cannot be changed, and append-only ones can only be appended to.
#[test]
fn marks_are_obeyed() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&[]);
    let script = r#"
        echo one > log; echo fixed > fixed; chattr +a log; chattr +i fixed
        echo two >> log
        refused() { if sh -c "$1" 2>/dev/null; then echo "not refused: $1"; exit 1; fi }
        refused 'echo three > log'; refused 'rm -f log'; refused 'mv log gol'; refused 'truncate -s 0 log'
        refused 'echo x >> fixed'; refused 'rm -f fixed'; refused 'ln fixed other'; refused 'chmod 600 fixed'
        [ "$(cat log)" = "$(printf 'one\ntwo')" ]; [ $(cat fixed) = fixed ]
        chattr -a log; chattr -i fixed; rm log fixed"#;
    sh(mount.at(), script).ok();
    drop(mount);
    image.check();
}

/// A full image returns ENOSPC, and removals free space again. The write-back cache learns of the failure late, but before
/// `close`.
#[test]
fn space_ends_and_comes_back() {
    needs_mount!();
    let image = Image::make(&["-m", "0"], 16).unwrap();
    let mount = image.by_shunt(&[]);
    for round in 0..3 {
        let filled = run_for(
            60,
            Command::new("dd")
                .args(["if=/dev/zero", "bs=64k", "count=400", "status=none"])
                .arg(format!("of={}", mount.at().join("fill").display()))
                .arg("conv=fsync"),
        );
        assert!(filled.fails().contains("No space left"), "round {round}");
        fs::remove_file(mount.at().join("fill")).unwrap();
    }
    fs::write(mount.at().join("small"), vec![1; 1 << 20]).unwrap();
    drop(mount);
    image.check();
}
