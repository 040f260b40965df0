//! The cache modes: what the kernel may cache in each.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use shunt_test_support::{memory, needs_mount, run};
use shunt_tests::{Fixture, Plan, fixture};

fn tree(s: &Fixture) {
    for d in 0..20 {
        fs::create_dir(s.lower(format!("d{d}"))).unwrap();
        for f in 0..20 {
            fs::write(s.lower(format!("d{d}/f{f}")), b"x").unwrap();
        }
        symlink("f0", s.lower(format!("d{d}/l"))).unwrap();
    }
}

fn walk(s: &Fixture) -> usize {
    run(Command::new("find").arg(s.mnt()).args(["-printf", "%p %s %m %T@\n"])).ok().lines().count()
}

/// Only the mirror changes the source, so nothing is requested a second time.
///
/// The kernel makes one exception: reading a directory invalidates its access time, so the next walk requests the attributes of
/// each directory once more. From then on the listing itself comes from the cache.
#[test]
fn exclusive_asks_once() {
    needs_mount!();
    memory::keeping(|| {
        fixture::perform(Plan::tmpfs().args(&["--cache", "exclusive"]), |s| {
            tree(s);
            let read_links = || (0..20).for_each(|d| drop(fs::read_link(s.path(format!("d{d}/l"))).unwrap()));
            let count = |name: &str| s.requests(name);
            let all = || ["lookup", "getattr", "statx", "readlink", "readdir", "readdirplus"].map(count);
            assert_eq!(walk(s), 1 + 20 * 22);
            let [lookups, getattrs, ..] = all();
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(walk(s), 1 + 20 * 22);
            assert_eq!(count("lookup"), lookups, "the second walk looked names up");
            assert!(count("getattr") - getattrs <= 21, "more than one request for each directory");
            let before = all();
            assert_eq!(walk(s), 1 + 20 * 22);
            assert_eq!(
                all(),
                before,
                "(lookup, getattr, statx, readlink, readdir, readdirplus) of the third walk"
            );
            read_links();
            let links = count("readlink");
            read_links();
            assert_eq!(count("readlink"), links, "symbolic links are remembered");
        });
    });
}

/// A mapping outlives the descriptor, and the daemon is not notified of stores through it.
#[test]
fn exclusive_sees_what_a_mapping_wrote() {
    needs_mount!();
    fixture::perform(Plan::tmpfs().args(&["--cache", "exclusive"]), |s| {
        let mtime = |path: &std::path::Path| fs::metadata(path).unwrap().modified().unwrap();
        // One file created in the mount, and one that the kernel has looked up before it is opened.
        fs::write(s.lower("old"), [0; 4096]).unwrap();
        for name in ["old", "new"] {
            let path = s.path(name);
            let known = mtime(&s.path("old"));
            let file =
                fs::File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
            file.set_len(4096).unwrap();
            let mut mapping = shunt_tests::sys::Shared::new(&file, 4096).unwrap();
            drop(file);
            let before = mtime(&path).max(known);
            std::thread::sleep(Duration::from_millis(1200));
            mapping[0] = 7;
            mapping.sync().unwrap();
            std::thread::sleep(Duration::from_millis(1200));
            assert!(mtime(&path) > before, "{name}: {:?}", mtime(&path));
            assert_eq!(mtime(&path), mtime(&s.lower(name)));
        }
    });
}

/// Absent names are cached as well, and invalidated when they are created.
#[test]
fn exclusive_remembers_absence() {
    needs_mount!();
    memory::keeping(|| {
        fixture::perform(Plan::tmpfs().args(&["--cache", "exclusive"]), |s| {
            assert!(fs::metadata(s.path("none")).is_err());
            let before = s.requests("lookup");
            (0..100).for_each(|_| assert!(fs::metadata(s.path("none")).is_err()));
            assert!(s.requests("lookup") - before <= 1);
            fs::write(s.path("none"), b"x").unwrap();
            assert_eq!(fs::metadata(s.path("none")).unwrap().len(), 1);
            fs::rename(s.path("none"), s.path("other")).unwrap();
            assert!(fs::metadata(s.path("none")).is_err());
            assert!(fs::metadata(s.path("other")).is_ok());
        });
    });
}

/// A change in the source is visible after the timeout; the old state until then is no error.
#[test]
fn timeout_shows_changes_after_its_time() {
    needs_mount!();
    memory::keeping(|| {
        fixture::perform(Plan::tmpfs().args(&["--cache", "timeout=1"]), |s| {
            fs::write(s.lower("f"), b"one").unwrap();
            assert_eq!(fs::metadata(s.path("f")).unwrap().len(), 3);
            assert!(!s.path("g").exists());
            let start = Instant::now();
            fs::write(s.lower("f"), b"longer").unwrap();
            fs::write(s.lower("g"), b"").unwrap();
            let before = s.requests("getattr") + s.requests("lookup");
            (0..50).for_each(|_| drop(fs::metadata(s.path("f"))));
            if start.elapsed() < Duration::from_millis(900) {
                let asked = s.requests("getattr") + s.requests("lookup") - before;
                assert!(asked <= 2, "{asked} requests within the second");
            }
            let seen = || fs::metadata(s.path("f")).unwrap().len() == 6 && s.path("g").exists();
            assert!(shunt_test_support::cmd::within(Duration::from_millis(1900), seen));
            fs::remove_file(s.lower("f")).unwrap();
            std::thread::sleep(Duration::from_millis(1100));
            assert!(!s.path("f").exists());
        });
    });
}

/// Nothing is cached: each lookup sees the source as it is.
#[test]
fn none_shows_changes_at_once() {
    needs_mount!();
    for passthrough in ["auto", "off"] {
        fixture::perform(Plan::tmpfs().args(&["--cache", "none", "--passthrough", passthrough]), |s| {
            for n in 0..50usize {
                fs::write(s.lower("f"), vec![n as u8; n + 1]).unwrap();
                assert_eq!(fs::metadata(s.path("f")).unwrap().len(), n as u64 + 1);
                assert!(
                    fs::read(s.path("f")).unwrap() == vec![n as u8; n + 1],
                    "old contents, round {n}, {passthrough}"
                );
                fs::rename(s.lower("f"), s.lower("g")).unwrap();
                assert!(!s.path("f").exists() && s.path("g").exists());
                assert_eq!(fs::read_dir(s.mnt()).unwrap().count(), 1);
                fs::remove_file(s.lower("g")).unwrap();
                assert!(!s.path("g").exists());
                fs::create_dir(s.lower("x")).unwrap();
                assert!(s.path("x").is_dir());
                fs::remove_dir(s.lower("x")).unwrap();
                fs::write(s.lower("x"), b"").unwrap();
                assert!(s.path("x").is_file(), "a name that was a directory is a file now");
                fs::remove_file(s.lower("x")).unwrap();
            }
        });
    }
}

/// A name that later refers to another lower file must not show the old file's data, even if it is cached.
#[test]
fn a_replaced_file_is_another_file() {
    needs_mount!();
    for passthrough in ["auto", "off"] {
        fixture::perform(
            Plan::tmpfs().args(&["--cache", "timeout=0.1", "--passthrough", passthrough]),
            |s| {
                fs::write(s.lower("f"), b"old old old").unwrap();
                let held = fs::File::open(s.path("f")).unwrap();
                assert_eq!(fs::read(s.path("f")).unwrap(), b"old old old");
                fs::write(s.lower("new"), b"new").unwrap();
                fs::rename(s.lower("new"), s.lower("f")).unwrap();
                std::thread::sleep(Duration::from_millis(250));
                assert_eq!(fs::read(s.path("f")).unwrap(), b"new");
                let mut old = [0; 11];
                std::os::unix::fs::FileExt::read_exact_at(&held, &mut old, 0).unwrap();
                assert_eq!(&old, b"old old old");
            },
        );
    }
}
