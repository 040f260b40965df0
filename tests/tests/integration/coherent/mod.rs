//! `--cache coherent`: changes in the source are visible in the mount within 100 ms, while the kernel caches names forever.

mod concurrent_changes;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use shunt_test_support::cmd::within;
use shunt_test_support::{memory, needs_mount, needs_tools, pace, patiently, run, run_for};
use shunt_tests::{Fixture, Plan, fixture, mounts, unprivileged};

/// Four times the coherence bound, for a loaded machine. A change that becomes visible only when a timeout of one second
/// expires still fails.
const SOON: Duration = Duration::from_millis(400);

fn plan() -> Plan {
    Plan::tmpfs().args(&["--cache", "coherent"])
}

/// Watches directories instead of file systems, as a daemon without privileges must.
fn by_directory() -> Plan {
    plan().args(&["--inotify", "1000"])
}

/// Runs a body with both kinds of watches.
fn either_way(body: impl Fn(&Fixture)) {
    for plan in [plan(), by_directory()] {
        fixture::perform(plan, &body);
    }
}

/// Returns the state of a name as a program sees it.
fn state(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(m) if m.is_symlink() => format!("link to {:?} of {}", fs::read_link(path).ok(), m.uid()),
        Ok(m) if m.is_dir() => {
            // Removed in between: the next look shows that.
            let Ok(entries) = fs::read_dir(path) else { return "moving".to_owned() };
            let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            format!("{:o} {} {} {:?} {names:?}", m.mode(), m.uid(), m.nlink(), m.modified().unwrap())
        }
        Ok(m) => {
            let data = fs::read(path).map(|data| String::from_utf8_lossy(&data).into_owned());
            format!(
                "{:o} {}:{} {} {} {:?} {data:?}",
                m.mode(),
                m.uid(),
                m.gid(),
                m.nlink(),
                m.len(),
                m.modified().unwrap()
            )
        }
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Asserts that the names look the same from both sides within the time.
fn same_soon(s: &Fixture, what: &str, names: &[&str]) {
    let start = Instant::now();
    loop {
        let took = start.elapsed();
        let differing: Vec<String> = names
            .iter()
            .map(|name| (name, state(&s.lower(name)), state(&s.path(name))))
            .filter(|(_, below, above)| below != above)
            .map(|(name, below, above)| format!("{name}: {below} below, {above} above"))
            .collect();
        if differing.is_empty() {
            return;
        }
        assert!(took < pace::limit(SOON), "{what}: after {took:?}\n{}", differing.join("\n"));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes a change in the source, to names that the kernel has cached, and waits until it is visible.
fn shows(s: &Fixture, what: &str, names: &[&str], change: impl FnOnce()) {
    // Twice, so that replies come from caches.
    for _ in 0..2 {
        names.iter().for_each(|name| drop(state(&s.path(name))));
    }
    change();
    same_soon(s, what, names);
}

#[test]
fn names_come_and_go() {
    needs_mount!();
    either_way(|s| {
        let l = |name: &str| s.lower(name);
        fs::create_dir(l("d")).unwrap();
        shows(s, "create", &["f", "", "."], || fs::write(l("f"), "1").unwrap());
        shows(s, "create in a directory", &["d/f", "d"], || fs::write(l("d/f"), "1").unwrap());
        shows(s, "hard link", &["f", "g"], || fs::hard_link(l("f"), l("g")).unwrap());
        shows(s, "rename", &["g", "h", "f"], || fs::rename(l("g"), l("h")).unwrap());
        shows(s, "rename to another directory", &["h", "d/h", "d"], || fs::rename(l("h"), l("d/h")).unwrap());
        shows(s, "replace", &["d/f", "d/h", "f"], || fs::rename(l("d/h"), l("d/f")).unwrap());
        shows(s, "delete", &["d/f", "f", "d"], || fs::remove_file(l("d/f")).unwrap());
        shows(s, "symbolic link", &["s"], || symlink("one", l("s")).unwrap());
        shows(s, "another target", &["s"], || {
            fs::remove_file(l("s")).unwrap();
            symlink("two", l("s")).unwrap();
        });
        shows(s, "delete and make again", &["f"], || {
            fs::remove_file(l("f")).unwrap();
            fs::write(l("f"), "another").unwrap();
        });
        shows(s, "a directory in the place of a file", &["f", "f/x"], || {
            fs::remove_file(l("f")).unwrap();
            fs::create_dir(l("f")).unwrap();
            fs::write(l("f/x"), "x").unwrap();
        });
        shows(s, "a file in the place of a directory", &["f", "f/x"], || {
            fs::remove_dir_all(l("f")).unwrap();
            fs::write(l("f"), "x").unwrap();
        });
    });
}

/// Each file system has its own kind of file handles, by which events identify its inodes.
#[test]
fn on_each_file_system() {
    needs_mount!();
    for plan in [Plan::ext4(), Plan::xfs(), Plan::btrfs()] {
        fixture::perform(plan.args(&["--cache", "coherent"]), |s| {
            let by = s.stat()["cache"]["watch"]["by"].clone();
            assert_eq!(by, "fanotify", "{:?}", s.on());
            let l = |name: &str| s.lower(name);
            fs::create_dir(l("d")).unwrap();
            shows(s, "create", &["d/f", "d"], || fs::write(l("d/f"), "1").unwrap());
            shows(s, "rename", &["d/f", "g", "d"], || fs::rename(l("d/f"), l("g")).unwrap());
            shows(s, "chmod", &["d"], || {
                fs::set_permissions(l("d"), PermissionsExt::from_mode(0o711)).unwrap();
            });
            shows(s, "delete", &["g"], || fs::remove_file(l("g")).unwrap());
        });
    }
}

#[test]
fn whole_trees_move() {
    needs_mount!();
    either_way(|s| {
        let l = |name: &str| s.lower(name);
        fs::create_dir_all(l("a/b/c")).unwrap();
        fs::create_dir(l("z")).unwrap();
        fs::write(l("a/b/c/f"), "deep").unwrap();
        let names = ["a/b/c/f", "a/b", "z/b/c/f", "z/b", "a", "z"];
        // A file inside is open.
        let inside = fs::File::open(s.path("a/b/c")).unwrap();
        shows(s, "move", &names, || fs::rename(l("a/b"), l("z/b")).unwrap());
        shows(s, "move back", &names, || fs::rename(l("z/b"), l("a/b")).unwrap());
        assert_eq!(inside.metadata().unwrap().ino(), fs::metadata(s.path("a/b/c")).unwrap().ino());
        fs::create_dir_all(l("other/c")).unwrap();
        shows(s, "exchange", &["a/b/c/f", "a/b", "other", "other/c", "other/c/f"], || {
            let (a, b) = (l("a/b"), l("other"));
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, a, cwd, b, rustix::fs::RenameFlags::EXCHANGE).unwrap();
        });
        shows(s, "remove", &["a/b", "a"], || fs::remove_dir_all(l("a")).unwrap());
    });
}

#[test]
fn attributes_follow() {
    needs_mount!();
    either_way(|s| {
        let l = |name: &str| s.lower(name);
        fs::write(l("f"), "1234567890").unwrap();
        fs::create_dir(l("d")).unwrap();
        symlink("x", l("s")).unwrap();
        for name in ["f", "d"] {
            shows(s, "chmod", &[name], || {
                fs::set_permissions(l(name), PermissionsExt::from_mode(0o700)).unwrap()
            });
        }
        for name in ["f", "d", "s"] {
            shows(s, "chown", &[name], || std::os::unix::fs::lchown(l(name), Some(7), Some(8)).unwrap());
        }
        for name in ["f", "d"] {
            shows(s, "touch", &[name], || {
                run(Command::new("touch").args(["-m", "-d", "2001-02-03"]).arg(l(name))).ok();
            });
        }
        shows(s, "truncate", &["f"], || {
            run(Command::new("truncate").args(["-s", "3"]).arg(l("f"))).ok();
        });
        let acl = |text: &str, name| run(Command::new("setfacl").args(["-m", text]).arg(l(name))).success();
        if acl("u:99:r", "f") {
            shows(s, "ACL", &["f"], || assert!(acl("u:98:rwx", "f")));
            shows(s, "ACL of a directory", &["d"], || assert!(acl("u:98:rwx", "d")));
        }
    });
}

/// Changes of content are visible through an open file and through a new open.
fn data_follows(s: &Fixture) {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    let l = |name: &str| s.lower(name);
    fs::write(l("f"), "start").unwrap();
    let held = fs::File::open(s.path("f")).unwrap();
    let read = || {
        let mut buffer = vec![0; 64];
        let length = held.read_at(&mut buffer, 0).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    assert_eq!(read(), "start");
    let seen = |what: &str| {
        let start = Instant::now();
        let below = fs::read_to_string(l("f")).unwrap();
        while read() != below || held.metadata().unwrap().len() != below.len() as u64 {
            assert!(start.elapsed() < pace::limit(SOON), "{what}: {} below, {} above", below, read());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let mut writer = fs::File::options().append(true).open(l("f")).unwrap();
    for round in 0..20 {
        // Without a close in between.
        shows(s, "append", &["f"], || writer.write_all(b"+").unwrap());
        seen(&format!("append {round}"));
    }
    drop(writer);
    let file = fs::File::options().read(true).write(true).open(l("f")).unwrap();
    shows(s, "overwrite", &["f"], || file.write_all_at(b"S", 0).unwrap());
    seen("overwrite");
    shows(s, "truncate", &["f"], || file.set_len(3).unwrap());
    seen("truncate");
}

#[test]
fn data_that_is_passed_through_follows() {
    needs_mount!();
    either_way(data_follows);
}

#[test]
fn data_that_the_daemon_carries_follows() {
    needs_mount!();
    let plan = Plan::daemon().args(&["--cache", "coherent"]);
    fixture::perform(plan.clone(), data_follows);
    fixture::perform(plan.args(&["--inotify", "1000"]), data_follows);
}

#[test]
fn a_mapping_below_shows() {
    needs_mount!();
    either_way(|s| {
        fs::write(s.lower("f"), [b'.'; 4096]).unwrap();
        let held = fs::File::open(s.path("f")).unwrap();
        let file = fs::File::options().read(true).write(true).open(s.lower("f")).unwrap();
        let mut mapping = shunt_tests::sys::Shared::new(&file, 4096).unwrap();
        drop(file);
        std::thread::sleep(Duration::from_millis(20));
        drop(state(&s.path("f")));
        mapping[17] = b'x';
        same_soon(s, "a store", &["f"]);
        assert_eq!(held.metadata().unwrap().len(), 4096);
    });
}

/// Names are requested once, regardless of changes in other places.
#[test]
fn names_are_asked_for_once() {
    needs_mount!();
    memory::keeping(|| {
        either_way(|s| {
            fs::create_dir(s.lower("d")).unwrap();
            fs::create_dir(s.lower("aside")).unwrap();
            (0..50).for_each(|f| fs::write(s.lower(format!("d/{f}")), "x").unwrap());
            let look = || {
                (0..50).for_each(|f| assert!(fs::metadata(s.path(format!("d/{f}"))).is_ok()));
                (0..50).for_each(|f| assert!(fs::metadata(s.path(format!("d/no-{f}"))).is_err()));
            };
            look();
            // The daemon receives the events of these creations late, and then repeats for a second that the names must not be
            // cached.
            let costs_nothing = || {
                std::thread::sleep(Duration::from_millis(1300));
                let before = s.requests("lookup");
                (0..50).for_each(|f| fs::write(s.lower(format!("aside/{f}")), "x").unwrap());
                look();
                s.requests("lookup") == before
            };
            assert!(within(Duration::from_secs(10), costs_nothing), "names are asked for again and again");
        });
    });
}

/// Events caused by the mirror's own changes must not invalidate the kernel's caches.
#[test]
fn own_changes_are_no_news() {
    needs_mount!();
    memory::keeping(|| {
        fixture::perform(plan(), |s| {
            fs::create_dir(s.path("d")).unwrap();
            (0..50).for_each(|f| fs::write(s.path(format!("d/{f}")), "x").unwrap());
            (0..50).step_by(2).for_each(|f| {
                fs::rename(s.path(format!("d/{f}")), s.path(format!("d/new-{f}"))).unwrap();
            });
            std::thread::sleep(Duration::from_millis(50));
            let before = s.requests("lookup");
            (0..50).step_by(2).for_each(|f| {
                assert!(fs::metadata(s.path(format!("d/new-{f}"))).is_ok());
                assert!(fs::metadata(s.path(format!("d/{}", f + 1))).is_ok());
            });
            let asked = s.requests("lookup") - before;
            assert!(asked <= 2, "{asked} lookups of names that we made ourselves");
        });
    });
}

/// More events than the kernel queues, while the daemon does not read them.
#[test]
fn lost_events_expire_everything() {
    needs_mount!();
    either_way(|s| {
        let names = ["f", "new", "d/f", "d/new", "d", "gone"];
        fs::create_dir(s.lower("d")).unwrap();
        ["f", "d/f", "gone"].iter().for_each(|name| fs::write(s.lower(name), "1").unwrap());
        same_soon(s, "start", &names);
        fs::create_dir(s.lower("many")).unwrap();
        same_soon(s, "a directory for events", &["many/none"]);
        let by = s.stat()["cache"]["watch"]["by"].as_str().expect("a listener").to_owned();
        let queue = fs::read_to_string(format!("/proc/sys/fs/{by}/max_queued_events")).unwrap();
        let queue: u32 = queue.trim().parse().unwrap();
        mounts::stop(s.pid());
        for file in 0..=queue {
            fs::File::create(s.lower(format!("many/{file}"))).unwrap();
        }
        // No event reports these.
        ["new", "d/new"].iter().for_each(|name| fs::write(s.lower(name), "2").unwrap());
        fs::remove_file(s.lower("gone")).unwrap();
        fs::set_permissions(s.lower("d"), PermissionsExt::from_mode(0o700)).unwrap();
        mounts::signal(s.pid(), rustix::process::Signal::CONT);
        // The daemon first reads the rest of the queue.
        let noticed = || s.stat()["cache"]["watch"]["overflows"].as_u64().unwrap() > 0;
        assert!(shunt_test_support::cmd::within(pace::seconds(5), noticed));
        same_soon(s, "after an overflow", &names);
    });
}

/// Without the privilege to watch file systems the daemon watches directories, reports that, and keeps the same bound.
#[test]
fn without_privileges_directories_are_listened_to() {
    needs_mount!();
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        let l = |name: &str| s.lower(name);
        fs::create_dir(l("d")).unwrap();
        fs::write(l("f"), "1").unwrap();
        let output = run_for(20, shunt(&["mirror", "--daemon"]).arg(s.src()).arg(s.mnt())).ok();
        assert!(output.contains("cache coherent by inotify"), "{output}");
        shows(&s, "create", &["new", "d/new", ".", "d"], || {
            ["new", "d/new"].iter().for_each(|name| fs::write(l(name), "1").unwrap());
        });
        shows(&s, "write", &["f"], || fs::write(l("f"), "longer").unwrap());
        shows(&s, "rename", &["f", "d/f", "d"], || fs::rename(l("f"), l("d/f")).unwrap());
        shows(&s, "chmod", &["d"], || fs::set_permissions(l("d"), PermissionsExt::from_mode(0o711)).unwrap());
        shows(&s, "delete", &["d/f", "d"], || fs::remove_file(l("d/f")).unwrap());
        patiently(|| run_for(20, shunt(&["umount"]).arg(s.mnt()))).ok();
        assert_eq!(mounts::count(s.mnt()), 0);
    });
}

/// A change below a mount inside the source: another file system, with its own events.
#[test]
fn mounts_below_are_watched_too() {
    needs_mount!();
    let Some(mut s) = plan().unmounted().set_or_skip() else { return };
    fs::create_dir(s.lower("sub")).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "shunt-test-sub"]).arg(s.lower("sub"))).ok();
    let _sub = Unmounted(s.lower("sub"));
    s.mount();
    fs::create_dir(s.lower("sub/d")).unwrap();
    shows(&s, "create", &["sub/d/f", "sub/d"], || fs::write(s.lower("sub/d/f"), "1").unwrap());
    shows(&s, "chmod", &["sub/d"], || {
        fs::set_permissions(s.lower("sub/d"), PermissionsExt::from_mode(0o711)).unwrap();
    });
    shows(&s, "rename", &["sub/d/f", "sub/g"], || {
        fs::rename(s.lower("sub/d/f"), s.lower("sub/g")).unwrap();
    });
}

/// One directory that the source shows twice: a change through one path is visible through the other, also when the mirror made
/// it.
#[test]
fn a_directory_shown_twice() {
    needs_mount!();
    let Some(mut s) = plan().unmounted().set_or_skip() else { return };
    ["one", "two"].iter().for_each(|name| fs::create_dir(s.lower(name)).unwrap());
    run(Command::new("mount").arg("--bind").args([s.lower("one"), s.lower("two")])).ok();
    let _two = Unmounted(s.lower("two"));
    s.mount();
    let names = ["one/f", "two/f", "one", "two"];
    shows(&s, "create below", &names, || fs::write(s.lower("one/f"), "1").unwrap());
    shows(&s, "delete above", &names, || fs::remove_file(s.path("one/f")).unwrap());
    shows(&s, "create above", &names, || fs::write(s.path("two/f"), "1").unwrap());
}

/// More directories than may be watched: changes in the others become visible as with `timeout=1`, instead of never.
#[test]
fn directories_beyond_the_bound_are_not_stale() {
    needs_mount!();
    memory::keeping(|| {
        fixture::perform(plan().args(&["--inotify", "3"]), |s| {
            (0..8).for_each(|d| fs::create_dir(s.lower(format!("d{d}"))).unwrap());
            let names: Vec<String> = (0..8).map(|d| format!("d{d}/f")).collect();
            // A new entry is invalidated for a second, and once more until a second after that.
            names.iter().for_each(|name| drop(state(&s.path(name))));
            std::thread::sleep(Duration::from_millis(3000));
            names.iter().for_each(|name| drop(state(&s.path(name))));
            std::thread::sleep(Duration::from_millis(1300));
            let before = s.requests("lookup");
            names.iter().for_each(|name| drop(state(&s.path(name))));
            // The names of the directories, and those in two of them, are cached.
            assert_eq!(s.requests("lookup") - before, 6);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            shows(s, "create where it is watched", &names[..2], || {
                names[..2].iter().for_each(|name| fs::write(s.lower(name), "1").unwrap());
            });
            names.iter().for_each(|name| drop(state(&s.path(name))));
            names[2..].iter().for_each(|name| fs::write(s.lower(name), "1").unwrap());
            std::thread::sleep(Duration::from_secs(1));
            same_soon(s, "create elsewhere", &names);
            names.iter().for_each(|name| fs::remove_file(s.lower(name)).unwrap());
            std::thread::sleep(Duration::from_secs(1));
            same_soon(s, "delete", &names);
            // Removed directories free watches for others once the kernel has forgotten them; it may have forgotten any before.
            (0..7).for_each(|d| fs::remove_dir(s.lower(format!("d{d}"))).unwrap());
            let start = Instant::now();
            loop {
                (0..8).for_each(|d| drop(state(&s.path(format!("d{d}/f")))));
                std::thread::sleep(Duration::from_millis(1300));
                let before = s.requests("lookup");
                drop(state(&s.path("d7/f")));
                if s.requests("lookup") == before {
                    break;
                }
                assert!(start.elapsed() < pace::seconds(10), "no place came free");
            }
            shows(s, "create in a place that came free", &["d7/f"], || {
                fs::write(s.lower("d7/f"), "2").unwrap()
            });
        });
    });
}

/// Unmounts a mount in the source, after the mirror's.
struct Unmounted(std::path::PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}
