//! Tests with volumes whose requests are answered in the kernel, alone and with another replica.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::common::{getxattr, module_is_here, rounds};
use super::mirror_cli::{TestMirror, as_user, eventually, listxattr, set};

const CACHED_OPTIONS: [&str; 2] = ["--extension", "builtin"];
const UNCACHED_OPTIONS: [&str; 3] = ["--extension", "builtin", "--no-kernel-cache"];

fn length(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.len())
}

/// The store of a volume without nodes.
struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/scratch").unwrap();
        let meta = format!("sqlite:{}", directory.path().join("store").display());
        let made =
            Command::new("shunt").args(["volume", "create", "--meta", &meta, "test"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(directory)
    }

    fn mount(&self, node: &str, arguments: &[&str]) -> TestMirror {
        TestMirror::volume(&self.0.path().join("store"), node, arguments)
    }
}

#[test]
fn repeated_requests_do_not_reach_the_daemon() {
    if !module_is_here() {
        return;
    }
    for (arguments, all) in [
        (&UNCACHED_OPTIONS[..], &["lookup", "getattr", "getxattr", "listxattr", "readlink"][..]),
        // The kernel itself caches everything else.
        (&CACHED_OPTIONS, &["getxattr", "listxattr"]),
    ] {
        let store = Store::new();
        let mount = store.mount("ant", arguments);
        fs::create_dir(mount.path("dir")).unwrap();
        let (file, link) = (mount.path("dir/file"), mount.path("dir/link"));
        fs::write(&file, "four").unwrap();
        set(&file, "user.x", "value");
        symlink("file", &link).unwrap();
        let mut reader = None;
        let look = || {
            assert_eq!(length(&file), Some(4));
            assert_eq!(length(&mount.path("dir/absent")), None);
            assert_eq!(getxattr(&file, "user.x").unwrap(), b"value");
            assert!(getxattr(&file, "user.y").is_err());
            assert_eq!(listxattr(&file), ["user.x"]);
            as_user(1000, || assert_eq!(listxattr(&file), ["user.x"]));
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
        };
        let quiet = || {
            eventually(|| {
                look();
                mount.counts(all, look).0 == 0
            })
        };
        for open in [false, true] {
            assert!(quiet());
            let (asked, answered) = mount.counts(all, || (0..100).for_each(|_| look()));
            println!("volume: {asked} requests to the daemon, {answered} answers in the kernel");
            assert!(asked == 0 && answered >= 400, "{asked} {answered}");
            // Reads bypass the daemon, and change no access time.
            if !open {
                let file = reader.insert(File::open(&file).unwrap());
                assert_eq!(std::io::read_to_string(file).unwrap(), "four");
            }
        }
    }
}

#[test]
fn a_listing_fills_the_tables() {
    if !module_is_here() {
        return;
    }
    let store = Store::new();
    let mount = store.mount("ant", &UNCACHED_OPTIONS);
    let names: Vec<String> = (0..200).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|name| fs::write(mount.path(name), name).unwrap());
    let mut counts = (0, 0);
    // Meanwhile the changes are pushed to the store and committed: that invalidates each file once more.
    let filled = eventually(|| {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), names.len());
        counts = mount.counts(&["lookup", "getattr"], || {
            for name in &names {
                assert_eq!(length(&mount.path(name)), Some(name.len() as u64));
            }
        });
        counts.0 <= 20 && counts.1 >= 180
    });
    println!("volume, 200 names after a listing: {} requests, {} answers in the kernel", counts.0, counts.1);
    assert!(filled, "{counts:?}");
}

#[test]
fn changes_through_the_mount_are_seen_at_once() {
    if !module_is_here() {
        return;
    }
    const DAEMON: [&str; 5] = ["--extension", "builtin", "--no-kernel-cache", "--passthrough", "off"];
    for arguments in [&CACHED_OPTIONS[..], &UNCACHED_OPTIONS, &DAEMON] {
        let store = Store::new();
        let mount = store.mount("ant", arguments);
        let (file, other) = (mount.path("file"), mount.path("other"));
        fs::write(&file, "").unwrap();
        for round in 1..20u64 {
            let mut open = File::options().append(true).open(&file).unwrap();
            assert_eq!(length(&file), Some(round - 1));
            open.write_all(b"x").unwrap();
            assert_eq!(length(&file), Some(round));
            drop(open);
            assert_eq!(length(&file), Some(round));
            assert_eq!(fs::read(&file).unwrap().len() as u64, round);
            let mode = 0o600 + (round % 8) as u32;
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, mode);
            let value = format!("{round}");
            set(&file, "user.x", &value);
            assert_eq!(getxattr(&file, "user.x").unwrap(), value.as_bytes());
            assert_eq!(listxattr(&file), ["user.x"]);
            rustix::fs::removexattr(&file, "user.x").unwrap();
            assert!(getxattr(&file, "user.x").is_err() && listxattr(&file).is_empty());
            assert_eq!(length(&other), None);
            fs::hard_link(&file, &other).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
            fs::remove_file(&other).unwrap();
            assert_eq!((length(&other), fs::metadata(&file).unwrap().nlink()), (None, 1));
            fs::rename(&file, &other).unwrap();
            assert_eq!((length(&file), length(&other)), (None, Some(round)));
            symlink(format!("to{round}"), &file).unwrap();
            assert_eq!(fs::read_link(&file).unwrap(), Path::new(&format!("to{round}")));
            fs::rename(&other, &file).unwrap();
            assert_eq!((length(&file), length(&other)), (Some(round), None));
        }
    }
}

/// Two replicas; waits until changes of the first have arrived at the second.
struct Pair {
    ant: TestMirror,
    bee: TestMirror,
}

impl Pair {
    fn new(store: &Store, arguments: &[&str]) -> Self {
        Self { ant: store.mount("ant", arguments), bee: store.mount("bee", arguments) }
    }

    fn comes(&self, name: &str) {
        fs::write(self.ant.path(name), "").unwrap();
        // Listings are answered by the daemon, so no stored entry can hide it.
        let appears =
            || fs::read_dir(self.bee.path("")).unwrap().any(|entry| entry.unwrap().file_name() == name);
        assert!(eventually(appears), "{name} does not appear");
    }

    /// Returns when all changes of the first replica are applied and announced at the second. Commits are applied in order: when
    /// a second commit, made after a first one arrived, is visible, the first is complete.
    fn applied(&self, round: usize) {
        let marks = [format!("mark{round}a"), format!("mark{round}b")];
        marks.iter().for_each(|mark| self.comes(mark));
        marks.iter().for_each(|mark| fs::remove_file(self.ant.path(mark)).unwrap());
    }
}

/// Queries all the time, so that there is always something to invalidate. The observed values must not go back.
fn look_on(file: &Path, absent: &[PathBuf], done: &AtomicBool) {
    let (mut value, mut size) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        if let Ok(found) = getxattr(file, "user.round") {
            let found: u64 = String::from_utf8(found).unwrap().parse().unwrap();
            assert!(found >= value, "the attribute was {value}, and is {found}");
            value = found;
        }
        let found = length(file).unwrap();
        assert!(found >= size, "the size was {size}, and is {found}");
        size = found;
        for path in absent {
            length(path);
            fs::read_link(path).ok();
        }
        listxattr(file);
    }
}

#[test]
fn changes_of_another_replica_are_seen_once_applied() {
    if !module_is_here() {
        return;
    }
    for arguments in [&UNCACHED_OPTIONS[..], &CACHED_OPTIONS] {
        let store = Store::new();
        let pair = Pair::new(&store, arguments);
        let (ant, bee) = (&pair.ant, &pair.bee);
        fs::create_dir(ant.path("dir")).unwrap();
        for name in ["dir/file", "dir/moved-0", "dir/other"] {
            fs::write(ant.path(name), "").unwrap();
        }
        pair.applied(0);
        let rounds = rounds(8);
        let later: Vec<PathBuf> = (0..=rounds)
            .flat_map(|n| [format!("dir/moved-{n}"), format!("dir/link-{n}")])
            .map(|name| bee.path(&name))
            .collect();
        let done = AtomicBool::new(false);
        let seen = bee.path("dir/file");
        std::thread::scope(|scope| {
            scope.spawn(|| look_on(&seen, &later, &done));
            // Stops the other thread in any case.
            struct End<'a>(&'a AtomicBool);
            impl Drop for End<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _end = End(&done);
            for round in 1..=rounds {
                let file = ant.path("dir/file");
                let value = format!("{round}");
                set(&file, "user.round", &value);
                fs::write(&file, "x".repeat(round)).unwrap();
                let mode = 0o600 + (round % 8) as u32;
                fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
                let name = format!("user.n{}", round % 2);
                set(&file, &name, "");
                rustix::fs::removexattr(&file, format!("user.n{}", (round + 1) % 2)).ok();
                let moved = |n: usize| format!("dir/moved-{n}");
                fs::rename(ant.path(&moved(round - 1)), ant.path(&moved(round))).unwrap();
                symlink(&value, ant.path(&format!("dir/link-{round}"))).unwrap();
                fs::hard_link(ant.path("dir/other"), ant.path(&format!("dir/other-{round}"))).unwrap();
                pair.applied(round);
                let attributes =
                    || fs::metadata(&seen).map(|meta| (meta.len(), meta.mode() & 0o7777)).unwrap();
                let target = bee.path(&format!("dir/link-{round}"));
                let is = |what: &str, holds: &dyn Fn() -> bool| {
                    // With `UNCACHED_OPTIONS`, no query may return the old state. The kernel's own cache is invalidated a moment later.
                    let seen = if arguments == UNCACHED_OPTIONS { holds() } else { eventually(holds) };
                    assert!(seen, "round {round}: {what}");
                };
                is("attributes", &|| attributes() == (round as u64, mode));
                is("value", &|| getxattr(&seen, "user.round").is_ok_and(|found| found == value.as_bytes()));
                is("list", &|| listxattr(&seen) == [&name, "user.round"]);
                is("old name", &|| length(&bee.path(&moved(round - 1))).is_none());
                is("new name", &|| length(&bee.path(&moved(round))) == Some(0));
                is("link", &|| fs::read_link(&target).is_ok_and(|found| found == Path::new(&value)));
                is("links", &|| fs::metadata(bee.path("dir/other")).unwrap().nlink() == round as u64 + 1);
                assert_eq!(fs::read(&seen).unwrap().len(), round);
            }
        });
        let look = || {
            assert_eq!(length(&seen), Some(rounds as u64));
            assert_eq!(getxattr(&seen, "user.round").unwrap(), format!("{rounds}").as_bytes());
            assert_eq!(length(&later[0]), None);
        };
        // While others are connected, this kernel caches names briefly only: it cannot expire all of them at once.
        let Pair { ant, bee } = pair;
        drop(ant);
        let all = ["lookup", "getattr", "getxattr"];
        assert!(eventually(|| {
            look();
            // Longer than that cache time.
            std::thread::sleep(Duration::from_millis(1500));
            bee.counts(&all, look).0 == 0
        }));
        let (asked, answered) = bee.counts(&all, || (0..50).for_each(|_| look()));
        println!(
            "{rounds} rounds of remote changes, then without changes: {asked} requests, {answered} answers in the kernel"
        );
        assert!(asked == 0 && answered >= 50, "{asked} {answered}");
    }
}

#[test]
fn a_conflict_comes_and_goes_at_once() {
    if !module_is_here() {
        return;
    }
    for arguments in [&UNCACHED_OPTIONS[..], &CACHED_OPTIONS] {
        let store = Store::new();
        let pair = Pair::new(&store, arguments);
        let (ant_path, bee_path) = (pair.ant.path("file"), pair.bee.path("file"));
        let touch = |word: &str| {
            let done = Command::new("shunt").args(["volume", word]).arg(pair.bee.path("")).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        fs::write(&ant_path, "of both").unwrap();
        pair.applied(0);
        for round in 1..=rounds(3) {
            let warm = || {
                for _ in 0..3 {
                    length(&bee_path);
                    length(&bee_path.join("ant"));
                }
            };
            warm();
            touch("offline");
            fs::write(&bee_path, format!("of bee {round}")).unwrap();
            fs::write(&ant_path, format!("of ant {round}")).unwrap();
            warm();
            touch("online");
            pair.applied(round);
            assert!(eventually(|| {
                warm();
                bee_path.is_dir()
            }));
            warm();
            assert_eq!(fs::read_to_string(bee_path.join("bee")).unwrap(), format!("of bee {round}"));
            warm();
            // No query may return the directory, or nothing.
            fs::remove_file(bee_path.join(if round % 2 == 0 { "bee" } else { "ant" })).unwrap();
            let left = format!("of {} {round}", if round % 2 == 0 { "ant" } else { "bee" });
            assert_eq!(length(&bee_path), Some(left.len() as u64));
            assert_eq!(fs::read_to_string(&bee_path).unwrap(), left);
            assert!(eventually(|| fs::read_to_string(&ant_path).is_ok_and(|found| found == left)));
        }
    }
}
