//! `kill -9` of a daemon under load, repeatedly: synced data is present, no file shows another file's data, and e2fsck finds
//! nothing to repair after journal recovery.
//!
//! `EXT4_KILLS` sets the number of kills; the default is 20.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shunt_test_support::{cmd::within, needs_mount};
use shunt_tests::{Image, mounts};

const WRITERS: usize = 3;

/// A writer's view of its directory.
#[derive(Default)]
struct WriterView {
    /// Length of each synced file, and whether the last operation on it was acknowledged.
    files: BTreeMap<u64, (usize, bool)>,
    next: u64,
}

/// Returns a byte of a file's pattern. Each file has its own, without zeros.
fn pattern(writer: usize, file: u64, at: usize) -> u8 {
    let whose = (file * 3 + writer as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = whose ^ (at as u64 / 512).wrapping_mul(0x85eb_ca6b);
    1 + (mixed >> 29) as u8 % 255
}

fn content(writer: usize, file: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| pattern(writer, file, at)).collect()
}

/// Works until the daemon has exited.
fn work(directory: &Path, writer: usize, known: &mut WriterView) -> io::Result<()> {
    let path = |file: u64| directory.join(format!("{file}"));
    let sync_directory = || File::open(directory)?.sync_all();
    loop {
        let number = known.next;
        known.next += 1;
        let length = (number as usize * 7919) % 90_000 + 1;
        // Created under another name: the rename must be atomic as well.
        let new = directory.join("new");
        let file = File::create(&new)?;
        file.write_all_at(&content(writer, number, length), 0)?;
        file.sync_all()?;
        known.files.insert(number, (length, false));
        fs::rename(&new, path(number))?;
        sync_directory()?;
        known.files.insert(number, (length, true));
        if number.is_multiple_of(3) {
            // Not synced: it may exist in part or as a whole.
            let more = directory.join(format!("loose{}", number % 7));
            fs::write(more, content(writer, number % 7, length))?;
        }
        if let Some((&old, _)) = known.files.iter().next().filter(|_| known.files.len() > 12) {
            known.files.insert(old, (0, false));
            fs::remove_file(path(old))?;
            sync_directory()?;
            known.files.remove(&old);
        } else if let Some((&old, &(length, true))) =
            known.files.iter().next().filter(|_| number.is_multiple_of(5))
        {
            known.files.insert(old, (length, false));
            let file = File::options().write(true).open(path(old))?;
            file.set_len(length as u64 / 2)?;
            file.sync_data()?;
            known.files.insert(old, (length / 2, true));
        }
    }
}

/// Checks the directory, and drops files in doubt.
fn check(directory: &Path, writer: usize, known: &mut WriterView) {
    for (&file, &(length, sure)) in &known.files {
        if sure {
            let there =
                fs::read(directory.join(format!("{file}"))).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(
                there == content(writer, file, length),
                "file {file} of writer {writer}, {} bytes",
                there.len()
            );
        }
    }
    for entry in fs::read_dir(directory).unwrap() {
        let (path, name) =
            entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap())).unwrap();
        let number = name.trim_start_matches("loose").parse().unwrap_or(known.next - 1);
        let bytes = fs::read(&path).unwrap();
        let foreign = (0..bytes.len()).find(|&at| bytes[at] != 0 && bytes[at] != pattern(writer, number, at));
        assert_eq!(foreign, None, "{} has another file's data", path.display());
        if !known.files.get(&number).is_some_and(|&(_, sure)| sure) {
            fs::remove_file(path).unwrap();
        }
    }
    known.files.retain(|_, &mut (_, sure)| sure);
    // Makes removals durable: a removed file must not reappear after its number was reused.
    File::open(directory).unwrap().sync_all().unwrap();
}

fn survives(mkfs: &[&str], kills: u64) {
    let image = Image::make(mkfs, 64).unwrap();
    let mut known: Vec<WriterView> = (0..WRITERS).map(|_| WriterView::default()).collect();
    // Each fifth round ends with an unmount, so that e2fsck can check the image.
    for round in 0..kills + kills.div_ceil(4) {
        let mount = image.by_shunt(&["--takeover", "off"]);
        let directory = |writer: usize| -> PathBuf { mount.at().join(format!("writer{writer}")) };
        for (writer, known) in known.iter_mut().enumerate() {
            if round == 0 {
                fs::create_dir(directory(writer)).unwrap();
                File::open(mount.at()).unwrap().sync_all().unwrap();
            }
            check(&directory(writer), writer, known);
        }
        if round % 5 == 4 {
            mount.umount().ok();
            drop(mount);
            image.check();
            continue;
        }
        let daemon = mount.pid();
        std::thread::scope(|scope| {
            for (writer, known) in known.iter_mut().enumerate() {
                let directory = directory(writer);
                scope.spawn(move || work(&directory, writer, known).expect_err("it ends with the daemon"));
            }
            std::thread::sleep(Duration::from_millis(40 + round * 37 % 160));
            assert!(mounts::signal(daemon, rustix::process::Signal::KILL));
        });
        // The guardian removes the mount.
        assert!(within(Duration::from_secs(10), || mounts::count(mount.at()) == 0));
        drop(mount);
    }
    let synced: u64 = known.iter().map(|known| known.next).sum();
    println!("{kills} kills, {synced} files");
    assert!(synced > kills, "{synced} files, {kills} kills");
}

#[test]
fn under_load_nothing_synced_is_lost() {
    needs_mount!();
    let kills = std::env::var("EXT4_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    survives(&["-b", "1024", "-J", "size=1", "-O", "orphan_file"], kills);
}
