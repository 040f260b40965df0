//! Journals left by the kernel: recovery by the engine and by the kernel yields the same content, and recovery in memory does not
//! change the image.
//!
//! Needs root, loop devices and mkfs.ext4; in CI (`CI=true`) their absence is a failure.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use shunt_ext4::journal::{JournalSuperblock, Recovered};
use shunt_ext4::{Device, FileDevice, Filesystem};
use shunt_test_support::Loop;

use crate::common::{Image, Log, digest, populate, run, seen_by_engine, seen_by_kernel, shutdown};

fn sync(mnt: &Path) {
    run("sync", &["-f", mnt.to_str().unwrap()]).unwrap();
}

/// Blocks that start with the journal's magic number.
fn escaped(blocks: usize) -> Vec<u8> {
    let mut bytes = vec![3; blocks * 1024];
    bytes.chunks_mut(1024).for_each(|block| block[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes()));
    bytes
}

/// Creates and removes directories, whose blocks are reused by files: this causes revocations.
fn churn(mnt: &Path, round: usize) {
    let dir = mnt.join("churn");
    fs::create_dir_all(&dir).unwrap();
    for n in 0..60 {
        let own = dir.join(format!("{round} {n}"));
        fs::create_dir(&own).unwrap();
        (0..20).for_each(|n| fs::write(own.join(format!("{n}{}", "x".repeat(150))), b"x").unwrap());
    }
    sync(mnt);
    for n in (0..60).filter(|n| n % 3 > 0) {
        fs::remove_dir_all(dir.join(format!("{round} {n}"))).unwrap();
    }
    sync(mnt);
    for n in 0..40 {
        fs::write(mnt.join(format!("data {round} {n}")), escaped(40)).unwrap();
    }
    if round > 0 {
        (0..40).for_each(|n| fs::remove_file(mnt.join(format!("data {} {n}", round - 1))).unwrap());
    }
    sync(mnt);
}

fn work(mnt: &Path, rounds: usize) {
    populate(mnt, 300);
    (0..rounds).for_each(|round| churn(mnt, round));
    (0..100).for_each(|n| fs::write(mnt.join(format!("late {n}")), vec![n as u8; n * 100]).unwrap());
}

/// Compares recovery in memory and in place with that of the kernel.
fn recovers(image: &Image, external: Option<(&Path, &str)>) -> Recovered {
    let open = |path: &Path, write| -> Arc<dyn Device> {
        let file = OpenOptions::new().read(true).write(write).open(path).unwrap();
        Arc::new(FileDevice::new(file, !write).unwrap())
    };
    let before = digest(&fs::read(image.path()).unwrap());
    let journal = external.map(|(path, _)| open(path, false));
    let in_memory = Filesystem::open_with_journal(open(&image.path(), false), journal).unwrap();
    let recovered = in_memory.recovered().expect("the journal was replayed");
    let seen = seen_by_engine(&in_memory);
    assert!(before == digest(&fs::read(image.path()).unwrap()), "opening read-only changed the image");

    let ours = image.copy();
    let ours_journal = external.map(|(path, _)| {
        let copy = ours.dir.path().join("journal");
        fs::copy(path, &copy).unwrap();
        copy
    });
    let journal = ours_journal.as_deref().map(|path| open(path, true));
    assert_eq!(shunt_ext4::recover(open(&ours.path(), true), journal).unwrap(), Some(recovered));
    let after = ours.open();
    assert!(after.recovered().is_none() && !after.needs_recovery());
    assert!(seen_by_engine(&after) == seen, "recovery in memory and in place differ");
    match &ours_journal {
        None => ours.check(),
        Some(journal) => {
            let (path, journal) = (ours.path(), journal.to_str().unwrap());
            run("e2fsck", &["-fn", "-j", journal, path.to_str().unwrap()]).unwrap();
        }
    }

    let theirs = image.copy();
    let theirs = match external {
        None => theirs.mount(),
        Some((_, device)) => theirs.mount_with(&format!("journal_path={device}")),
    };
    let expected = seen_by_kernel(&theirs.unwrap().mnt());
    for (path, expected) in &expected {
        assert_eq!(seen.get(path), Some(expected), "{path:?}");
    }
    assert_eq!(seen.len(), expected.len());
    recovered
}

fn made(mkfs: &[&str], options: &str, optional: bool) -> Option<Image> {
    match Image::make(mkfs, 96).and_then(|image| image.mount_with(options)) {
        Ok(image) => Some(image),
        Err(reason) => {
            assert!(optional || std::env::var_os("CI").is_none(), "{mkfs:?}: {reason}");
            eprintln!("skipped {mkfs:?}: {reason}");
            None
        }
    }
}

fn after_a_cut(mkfs: &[&str], options: &str, rounds: usize) {
    let Some(mut image) = made(mkfs, options, false) else { return };
    work(&image.mnt(), rounds);
    shutdown(&image.mnt(), Log::Flush);
    image.unmount();
    let recovered = recovers(&image, None);
    assert!(recovered.transactions > 0 && recovered.blocks > 0, "{recovered:?}");
}

macro_rules! cuts {
    ($($name:ident: $mkfs:expr, $options:expr, $rounds:expr;)*) => {
        $(#[test] fn $name() { after_a_cut(&$mkfs, $options, $rounds); })*
    };
}

cuts! {
    defaults: ["-b", "4096"], "user_xattr", 3;
    blocks_of_1k: ["-b", "1024"], "user_xattr", 3;
    blocks_of_2k: ["-b", "2048"], "user_xattr", 2;
    numbers_of_32_bits: ["-b", "1024", "-O", "^64bit"], "user_xattr", 3;
    no_sums: ["-O", "^metadata_csum"], "user_xattr", 3;
    sums_of_version_1: ["-O", "^metadata_csum"], "journal_checksum", 3;
    sums_of_version_1_and_32_bits: ["-b", "1024", "-O", "^metadata_csum,^64bit"], "journal_checksum", 3;
    commits_that_do_not_wait: ["-b", "4096"], "journal_async_commit,data=writeback", 3;
    version_1_that_does_not_wait: ["-O", "^metadata_csum"], "journal_async_commit,data=writeback", 3;
    data_in_the_journal: ["-b", "1024"], "data=journal", 6;
    data_in_the_journal_of_ext3: ["-t", "ext3", "-b", "1024"], "data=journal", 6;
    ring_goes_round: ["-b", "1024", "-J", "size=4"], "data=journal", 16;
}

#[test]
fn numbers_of_transactions_wrap_around() {
    let Ok(image) = Image::make(&["-b", "1024", "-J", "size=32"], 96) else { return };
    let file = OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    // The journal of a new image is contiguous; its superblock is found by magic number and type.
    let bytes = fs::read(image.path()).unwrap();
    let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let at = (0..bytes.len()).step_by(1024).find(|&at| bytes[at..].starts_with(&magic)).unwrap();
    let length = u32::from_be_bytes(bytes[at + 16..at + 20].try_into().unwrap());
    let mut superblock = JournalSuperblock::parse(&bytes[at..], 1024, length).unwrap();
    superblock.sequence = u32::MAX - 4;
    file.write_all_at(&superblock.encode(), at as u64).unwrap();
    let Ok(mut image) = image.mount() else { return };
    work(&image.mnt(), 3);
    shutdown(&image.mnt(), Log::Flush);
    image.unmount();
    let recovered = recovers(&image, None);
    assert!(recovered.next < 1000 && recovered.transactions > recovered.next, "{recovered:?}");
}

#[test]
fn uncommitted_changes_are_absent() {
    let Some(mut image) = made(&[], "user_xattr", false) else { return };
    work(&image.mnt(), 1);
    sync(&image.mnt());
    fs::write(image.mnt().join("lost"), b"x").unwrap();
    shutdown(&image.mnt(), Log::Lose);
    image.unmount();
    recovers(&image, None);
    assert!(image.open().walk(b"lost").is_err());
    assert!(image.open().walk(b"late 99").is_ok());
}

#[test]
fn journal_on_a_device_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    File::create(&journal).unwrap().set_len(16 << 20).unwrap();
    let path = journal.to_str().unwrap();
    for block in ["1024", "4096"] {
        if let Err(reason) = run("mke2fs", &["-q", "-F", "-b", block, "-O", "journal_dev", path]) {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return;
        }
        let device = Loop::over(&journal).unwrap();
        let mkfs = ["-b", block, "-J", &format!("device={}", device.path())];
        let mut image = Image::make(&mkfs, 96).unwrap().mount().unwrap();
        work(&image.mnt(), 2);
        shutdown(&image.mnt(), Log::Flush);
        image.unmount();
        // Without the journal device, opening fails with a specific error.
        let file = FileDevice::new(File::open(image.path()).unwrap(), true).unwrap();
        let error = Filesystem::open(Arc::new(file)).err().unwrap();
        assert!(error.to_string().contains("was not given"), "{error}");
        let copy = dir.path().join("copy");
        fs::copy(&journal, &copy).unwrap();
        let recovered = recovers(&image, Some((&copy, device.path())));
        assert!(recovered.transactions > 0 && recovered.blocks > 0, "{recovered:?}");
    }
}

#[test]
fn blocks_that_became_data_are_not_written_over() {
    let made = Image::make(&["-b", "1024", "-J", "size=4"], 24).and_then(|image| image.mount());
    let Ok(mut image) = made else {
        assert!(std::env::var_os("CI").is_none());
        return;
    };
    let mnt = image.mnt();
    for n in 0..400 {
        fs::create_dir(mnt.join(format!("{n}"))).unwrap();
    }
    sync(&mnt);
    for n in 0..400 {
        fs::remove_dir(mnt.join(format!("{n}"))).unwrap();
    }
    sync(&mnt);
    // Fill the file system, including the blocks of the removed directories.
    let full = File::create(mnt.join("full")).unwrap();
    let mut at = 0;
    while full.write_all_at(&[9; 65536], at).is_ok() {
        at += 65536;
    }
    full.sync_all().ok();
    drop(full);
    shutdown(&mnt, Log::Flush);
    image.unmount();
    let recovered = recovers(&image, None);
    assert!(recovered.transactions >= 3, "{recovered:?}");
}
