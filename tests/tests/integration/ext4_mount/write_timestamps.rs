//! The kernel keeps the timestamps of cached writes: they stay those of the write call, and are sent once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use shunt_test_support::{needs_mount, run};
use shunt_tests::{Image, binary};

/// Longer than the resolution of the kernel's clock.
const TICKS: Duration = Duration::from_millis(30);

type Times = [(i64, i64); 2];

fn times(root: &Path) -> BTreeMap<String, Times> {
    let entries = fs::read_dir(root).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| {
            let stat = entry.metadata().unwrap();
            let times = [(stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec())];
            (entry.file_name().into_string().unwrap(), times)
        })
        .collect()
}

/// Writes in all ways, with pauses, so that a timestamp of the write-back would differ.
fn write_all(root: &Path) {
    let open = |name: &str| {
        File::options().read(true).write(true).create(true).truncate(false).open(root.join(name)).unwrap()
    };
    let files = ["made", "grown", "over", "renamed"].map(|name| (name, open(name)));
    for (name, file) in &files {
        if *name != "made" {
            file.write_all_at(&[1; 10_000], 0).unwrap();
        }
    }
    files[2].1.sync_all().unwrap();
    sleep(TICKS);
    for (name, file) in &files {
        let at = if *name == "over" { 3 } else { 9_000 };
        file.write_all_at(&[2; 5_000], at).unwrap();
        sleep(TICKS);
    }
    fs::rename(root.join("renamed"), root.join("other")).unwrap();
    sleep(TICKS);
}

#[test]
fn times_are_those_of_the_writing() {
    needs_mount!();
    let image = Image::make(&[], 64).unwrap();
    let mount = image.by_shunt(&[]);
    write_all(mount.at());
    let before = times(mount.at());
    mount.umount().ok();
    drop(mount);
    let mount = image.by_shunt(&[]);
    assert_eq!(times(mount.at()), before);
    // All times differ, so that none can be mistaken for another.
    let mut mtimes: Vec<_> = before.values().map(|[mtime, _]| *mtime).collect();
    mtimes.sort_unstable();
    mtimes.dedup();
    assert_eq!(mtimes.len(), 4);
}

/// A quarter of the kernel's clock resolution.
const QUICK: Duration = Duration::from_millis(1);

/// A file that is written right after its creation has one time, which the kernel need not send again.
#[test]
fn new_files_are_stamped_once() {
    needs_mount!();
    let image = Image::make(&[], 64).unwrap();
    let mount = image.by_shunt(&[]);
    const FILES: u64 = 200;
    let mut slow = 0;
    for at in 0..FILES {
        let start = Instant::now();
        File::create_new(mount.at().join(at.to_string())).unwrap().write_all(b"content").unwrap();
        slow += u64::from(start.elapsed() > QUICK);
    }
    let stat = run(binary::command(&["stat", "--json"]).arg(mount.at())).ok();
    let stat: Value = serde_json::from_str(&stat).unwrap();
    let count = |name: &str| stat["requests"][name]["count"].as_u64().unwrap_or(0);
    assert_eq!(count("create"), FILES);
    // Except for those that a clock tick separated.
    assert!(count("setattr") <= slow + (FILES - slow) * 3 / 4, "{slow} were slow: {stat:#}");
}
