//! Small files that are read repeatedly: served from the mount's own page cache in exclusive mode, and never stale.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use shunt_test_support::{memory, needs_mount};
use shunt_tests::sys::Shared;
use shunt_tests::{Fixture, Plan, Rng, fixture};

fn exclusive(body: impl Fn(&Fixture)) {
    needs_mount!();
    memory::keeping(|| fixture::perform(Plan::tmpfs().args(&["--cache", "exclusive"]), &body));
}

/// Opens, stats and reads a file, as a compiler does with a header.
fn read(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    let mut content = Vec::with_capacity(file.metadata().unwrap().len() as usize);
    file.read_to_end(&mut content).unwrap();
    content
}

/// Reads often enough that the file is served from the cache.
fn warm(path: &Path) -> Vec<u8> {
    read(path);
    read(path);
    read(path)
}

#[test]
fn a_header_costs_an_open_and_a_release() {
    exclusive(|s| {
        fs::write(s.lower("h"), vec![7; 20_000]).unwrap();
        let path = s.path("h");
        assert!(warm(&path) == vec![7; 20_000]);
        let count = |name: &str| s.requests(name);
        let before = ["open", "getattr", "statx", "read"].map(count);
        (0..100).for_each(|_| assert!(read(&path) == vec![7; 20_000]));
        let after = ["open", "getattr", "statx", "read"].map(count);
        assert_eq!(after[0] - before[0], 100);
        // Attributes of a new file may be requested once more, on a slow machine only now.
        let few = (1..4).all(|kind| after[kind] - before[kind] <= 1);
        assert!(few, "(getattr, statx, read) {:?} and then {:?}", &before[1..], &after[1..]);
    });
}

#[test]
fn large_files_stay_passed_through() {
    exclusive(|s| {
        fs::write(s.lower("large"), vec![7; 1 << 20]).unwrap();
        (0..5).for_each(|_| assert_eq!(read(&s.path("large")).len(), 1 << 20));
        assert_eq!(s.requests("read"), 0);
    });
}

/// After each kind of write that bypasses the cache, the next open reads the new data.
#[test]
fn a_write_past_the_cache_is_seen() {
    exclusive(|s| {
        let path = s.path("f");
        let append = |text: &str| {
            OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        fs::write(&path, "one").unwrap();
        assert_eq!(warm(&path), b"one");
        fs::write(&path, "two").unwrap();
        assert_eq!(warm(&path), b"two");
        append("+three");
        assert_eq!(warm(&path), b"two+three");
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"T", 0).unwrap();
        assert_eq!(warm(&path), b"Two+three");
        OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap();
        assert_eq!(warm(&path), b"Two");
        append("+four");
        fs::hard_link(&path, s.path("link")).unwrap();
        assert_eq!(warm(&path), b"Two+four");
        fs::write(s.path("link"), "five").unwrap();
        assert_eq!(warm(&path), b"five");
        fs::write(s.path("new"), "six").unwrap();
        fs::rename(s.path("new"), &path).unwrap();
        assert_eq!(warm(&path), b"six");
        assert_eq!(s.requests("write"), 2, "appends go through the daemon, no other write does");
    });
}

/// While a reader stays open, later writers use the same cache.
#[test]
fn a_reader_that_stays_sees_each_write() {
    exclusive(|s| {
        let path = s.path("log");
        fs::write(&path, "0").unwrap();
        warm(&path);
        let reader = File::open(&path).unwrap();
        for round in 1..50_u8 {
            let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
            writer.write_all(&[round]).unwrap();
            let mut last = [0];
            reader.read_exact_at(&mut last, round.into()).unwrap();
            assert_eq!(last, [round]);
            assert_eq!(reader.metadata().unwrap().len(), u64::from(round) + 1);
        }
        assert_eq!(fs::read(s.lower("log")).unwrap().len(), 50);
    });
}

/// A mapping outlives its descriptor, and stores through it bypass every cache.
#[test]
fn a_mapping_that_outlives_its_open_is_seen() {
    exclusive(|s| {
        let path = s.path("mapped");
        fs::write(&path, vec![0; 4096]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut map = Shared::new(&file, 4096).unwrap();
        drop(file);
        for round in 1..20 {
            map[9] = round;
            assert_eq!(warm(&path)[9], round);
        }
    });
}

/// Programs run from the cache, and a running one cannot be written.
#[test]
fn programs_run_again_and_again() {
    exclusive(|s| {
        shunt_test_support::copy_program("/bin/true", s.path("p"));
        for _ in 0..5 {
            assert!(std::process::Command::new(s.path("p")).status().unwrap().success());
        }
        shunt_test_support::copy_program("/bin/false", s.path("p"));
        assert!(!std::process::Command::new(s.path("p")).status().unwrap().success());
    });
}

#[test]
fn an_access_time_moves_as_relatime_says() {
    exclusive(|s| {
        fs::write(s.lower("f"), "x").unwrap();
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 24 * 3600);
        File::options().write(true).open(s.lower("f")).unwrap().set_modified(past).unwrap();
        warm(&s.path("f"));
        let native = fs::metadata(s.lower("f")).unwrap();
        assert!(native.atime() > native.mtime());
        assert_eq!(fs::metadata(s.path("f")).unwrap().atime(), native.atime());
    });
}

/// Several threads read and write a few files in all ways; the owner of each file knows the expected content.
#[test]
fn no_mixture_of_readers_and_writers_reads_what_was() {
    exclusive(|s| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || owner(s, thread));
            }
            // Opens all files at random moments, so that their cache modes change during the owners' accesses.
            scope.spawn(|| {
                let mut rng = Rng::new(99);
                for _ in 0..8000 {
                    let name = format!("{}-{}", rng.below(4), rng.below(4));
                    if let Ok(mut file) = File::open(s.path(name)) {
                        file.read_to_end(&mut Vec::new()).unwrap();
                    }
                }
            });
        });
    });
}

fn owner(s: &Fixture, thread: u64) {
    let mut rng = Rng::new(thread + 1);
    let mut model: [Vec<u8>; 4] = Default::default();
    for (n, content) in model.iter().enumerate() {
        fs::write(s.path(format!("{thread}-{n}")), content).unwrap();
    }
    for step in 0..3000 {
        let n = rng.below(4);
        let path = s.path(format!("{thread}-{n}"));
        let content = &mut model[n];
        let text = rng.bytes(50);
        match rng.below(12) {
            0 => {
                fs::write(&path, &text).unwrap();
                content.clone_from(&text);
            }
            1 => {
                OpenOptions::new().append(true).open(&path).unwrap().write_all(&text).unwrap();
                content.extend(&text);
            }
            2 => {
                let len = rng.below(6000);
                OpenOptions::new().write(true).open(&path).unwrap().set_len(len as u64).unwrap();
                content.resize(len, 0);
            }
            3 if content.len() > 50 => {
                let at = rng.below(content.len() - 50);
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                file.write_all_at(&text, at as u64).unwrap();
                content[at..at + 50].copy_from_slice(&text);
            }
            4 => {
                fs::remove_file(&path).unwrap();
                fs::write(&path, &text).unwrap();
                content.clone_from(&text);
            }
            _ => assert!(read(&path) == *content, "file {thread}-{n} at step {step}"),
        }
    }
}
