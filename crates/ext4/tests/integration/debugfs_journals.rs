//! Journals written by debugfs, in formats that no kernel writes any more: recovery by the engine and by e2fsck yields identical
//! blocks. Needs no root.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::journal::layout::JournalIncompat;
use shunt_ext4::{FileDevice, Filesystem};

/// Blocks that the transactions write; nothing else uses them.
const BLOCKS: std::ops::Range<usize> = 28_000..28_020;

/// Runs a program; `None` if it cannot be run or fails.
fn run(program: &str, args: &[&str], path: &Path) -> Option<()> {
    let output = Command::new(program).args(args).arg(path).output();
    match output {
        // Exit code 1 of e2fsck: errors were corrected.
        Ok(output) if output.status.success() || program == "e2fsck" && output.status.code() == Some(1) => {
            Some(())
        }
        other => {
            assert!(std::env::var_os("CI").is_none(), "{program} {args:?}: {other:?}");
            eprintln!("skipped: {program} {args:?}: {other:?}");
            None
        }
    }
}

fn blocks(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()[BLOCKS.start * 1024..BLOCKS.end * 1024].to_vec()
}

/// Compares both recoveries; returns the features of the recovered journal.
fn agrees(features: &str, open: &str) -> Option<JournalIncompat> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let image = path("image");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run("mkfs.ext4", &["-q", "-F", "-b", "1024", "-O", features], &image)?;
    let mut commands = String::new();
    for (place, first) in [28_000, 28_002, 28_005, 28_001].into_iter().enumerate() {
        // The second block of each transaction must be escaped.
        let mut data: Vec<u8> = (0..3 * 1024).map(|at| (at * 7 + at / 256 + place) as u8).collect();
        data[1024..1028].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
        let name = path(&format!("data {place}"));
        fs::write(&name, data).unwrap();
        let list = format!("{first},{},{}", first + 1, first + 2);
        commands += &format!("jo {open}\njw -b {list} \"{}\"\njc\n", name.display());
    }
    commands += &format!("jo {open}\njw -r 28003,28006\njc\n");
    fs::write(path("commands"), commands).unwrap();
    run("debugfs", &["-w", "-f", path("commands").to_str().unwrap()], &image)?;
    let before = blocks(&image);
    let [theirs, ours] = ["theirs", "ours"].map(path);
    fs::copy(&image, &theirs).unwrap();
    fs::copy(&image, &ours).unwrap();
    run("e2fsck", &["-fy"], &theirs)?;
    let read = || Arc::new(FileDevice::new(File::open(&image).unwrap(), true).unwrap());
    let in_memory = Filesystem::open(read()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&ours).unwrap();
    let recovered = shunt_ext4::recover(Arc::new(FileDevice::new(file, false).unwrap()), None).unwrap();
    assert_eq!(recovered, in_memory.recovered());
    // In version 1, debugfs includes revocations in the checksum, unlike the kernel: e2fsck drops that transaction as well.
    let expected = if open == "-c" { 4 } else { 5 };
    assert_eq!(recovered.unwrap().transactions, expected, "{features} {open}");
    assert!(blocks(&ours) == blocks(&theirs) && blocks(&ours) != before, "{features} {open}");
    run("e2fsck", &["-fn"], &ours)?;
    // Read the journal superblock, wherever it is.
    let bytes = fs::read(&image).unwrap();
    let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let at = (0..bytes.len()).step_by(1024).find(|&at| bytes[at..].starts_with(&magic)).unwrap();
    let incompat = u32::from_be_bytes(bytes[at + 40..at + 44].try_into().unwrap());
    Some(JournalIncompat::from_bits_retain(incompat))
}

#[test]
fn recovery_of_every_format_matches_e2fsck() {
    for wide in ["64bit", "^64bit"] {
        let plain = format!("{wide},^metadata_csum");
        let Some(features) = agrees(&plain, "") else { return };
        assert!(!features.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3));
        // Checksums of version 1.
        agrees(&plain, "-c");
        let summed = format!("{wide},metadata_csum");
        for (version, feature) in [("2", JournalIncompat::CSUM_V2), ("3", JournalIncompat::CSUM_V3)] {
            let Some(features) = agrees(&summed, &format!("-c -v {version}")) else { return };
            assert!(features.contains(feature), "{features:?}");
        }
    }
}
