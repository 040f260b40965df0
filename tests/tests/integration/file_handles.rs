//! File handles of the mount, as used by NFS servers and backup programs.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use shunt_test_support::cmd::within;
use shunt_test_support::memory::{self, Drops};
use shunt_test_support::{loops, needs_mount, run};
use shunt_tests::rng::Rng;
use shunt_tests::sys::Handle;
use shunt_tests::{Fixture, Plan, binary, fixture, mounts};

const READ: i32 = libc::O_RDONLY;
const PATH: i32 = libc::O_PATH | libc::O_NOFOLLOW;

/// Returns plans for each file system, with names and attributes cached for a second and forever.
fn plans() -> Vec<Plan> {
    let cached = |plan: Plan| plan.args(&["--cache", "exclusive"]);
    let mut plans = vec![Plan::tmpfs(), Plan::ext4(), Plan::xfs(), Plan::btrfs()];
    plans.extend([cached(Plan::tmpfs()), cached(Plan::ext4())]);
    plans
}

fn tree(dir: &Path) {
    fs::create_dir_all(dir.join("a/b/c")).unwrap();
    fs::write(dir.join("a/b/c/f"), "contents").unwrap();
    symlink("nowhere", dir.join("a/l")).unwrap();
}

/// Makes the kernel evict unused inodes, of the mirror and of the lower file system.
fn evict(turn: &Drops, s: &Fixture) {
    let known = || s.stat()["memory"]["nodes"].as_u64().unwrap();
    let (mut left, mut since) = (u64::MAX, Instant::now());
    // FORGETs arrive with a delay; open inodes get none.
    within(Duration::from_secs(2), || {
        turn.forget_names();
        let now = known();
        if now < left {
            (left, since) = (now, Instant::now());
        }
        now == 0 || since.elapsed() > Duration::from_millis(400)
    });
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

fn is_stale<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::StaleNetworkFileHandle)
}

#[test]
fn handles_outlive_what_the_kernel_remembers() {
    needs_mount!();
    let turn = memory::drop_at_will();
    for plan in plans() {
        fixture::perform(plan, |s| {
            tree(s.src());
            let root = File::open(s.mnt()).unwrap();
            let paths = ["a", "a/b", "a/b/c", "a/b/c/f", "a/l"].map(|name| s.path(name));
            let handles =
                paths.each_ref().map(|path| (Handle::of(path).unwrap(), fs::symlink_metadata(path).unwrap()));
            // Deepest first: no ancestor is cached.
            for (handle, before) in handles.iter().rev() {
                evict(&turn, s);
                let lookups = s.requests("lookup");
                let file = handle.open(&root, PATH).unwrap();
                assert!(s.requests("lookup") > lookups, "nothing was forgotten");
                let after = file.metadata().unwrap();
                assert_eq!(
                    (after.ino(), after.mode(), after.size()),
                    (before.ino(), before.mode(), before.size())
                );
            }
            evict(&turn, s);
            assert_eq!(text(handles[3].0.open(&root, READ).unwrap()), "contents");
            evict(&turn, s);
            let dir = handles[2].0.open(&root, READ | libc::O_DIRECTORY).unwrap();
            let path =
                fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir))).unwrap();
            assert_eq!(path, s.path("a/b/c"), "connected all the way up");
            // Handles identify files, not paths.
            fs::rename(s.path("a/b/c/f"), s.path("g")).unwrap();
            fs::rename(s.path("a/b"), s.path("b")).unwrap();
            assert_eq!(text(handles[3].0.open(&root, READ).unwrap()), "contents");
            evict(&turn, s);
            assert_eq!(text(handles[3].0.open(&root, READ).unwrap()), "contents");
            assert!(handles[2].0.open(&root, READ).is_ok());
            fs::hard_link(s.path("g"), s.path("h")).unwrap();
            fs::remove_file(s.path("g")).unwrap();
            evict(&turn, s);
            assert_eq!(text(handles[3].0.open(&root, READ).unwrap()), "contents", "by its other name");
            let open = File::open(s.path("h")).unwrap();
            fs::remove_file(s.path("h")).unwrap();
            assert_eq!(text(handles[3].0.open(&root, READ).unwrap()), "contents", "while it is open");
            drop(open);
            drop(dir);
            fs::remove_dir(s.path("b/c")).unwrap();
            for (name, (handle, _)) in ["c", "f"].iter().zip(&handles[2..4]) {
                let stale = || {
                    // Inodes that were open are released a moment later.
                    evict(&turn, s);
                    is_stale(handle.open(&root, READ))
                };
                assert!(within(Duration::from_secs(5), stale), "{name} is deleted");
            }
            // A new file with the same inode number is another file.
            (0..50).for_each(|i| fs::write(s.path(format!("new{i}")), "other").unwrap());
            assert!(is_stale(handles[3].0.open(&root, READ)));
        });
    }
}

/// As with the source's own handles: neither a restarted server nor its clients notice.
#[test]
fn handles_outlive_a_remount() {
    needs_mount!();
    let turn = memory::drop_at_will();
    for plan in plans() {
        let Some(mut s) = plan.set_or_skip() else { continue };
        tree(s.src());
        let names: Vec<_> = (0..1024).map(|n| format!("a/b/{n}")).collect();
        let handles: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                fs::write(s.lower(name), n.to_string()).unwrap();
                fs::hard_link(s.lower(name), s.lower(format!("a/{n}"))).unwrap();
                Handle::of(&s.path(name)).unwrap()
            })
            .collect();
        let link = Handle::of(&s.path("a/l")).unwrap();
        let dir = Handle::of(&s.path("a/b/c")).unwrap();
        fs::write(s.aside().join("outside"), "").unwrap();
        s.remount();
        // The name under which it was looked up was removed.
        (0..1024).step_by(2).for_each(|n| fs::remove_file(s.lower(format!("a/b/{n}"))).unwrap());
        turn.forget_names();
        let root = File::open(s.mnt()).unwrap();
        assert!(link.open(&root, PATH).unwrap().metadata().unwrap().is_symlink());
        assert!(dir.open(&root, READ).unwrap().metadata().unwrap().is_dir());
        for (n, handle) in handles.iter().enumerate() {
            assert_eq!(text(handle.open(&root, READ).unwrap()), n.to_string());
        }
        for round in 0..3 {
            evict(&turn, &s);
            for (n, handle) in handles.iter().enumerate() {
                let file = handle.open(&root, READ).unwrap_or_else(|e| panic!("{round}: {n}: {e}"));
                assert_eq!(text(file), n.to_string());
            }
        }
    }
}

/// Unmounts a mount in the source, after the mirror's.
struct Submount(PathBuf);

impl Drop for Submount {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}

/// Inodes of another file system below the source: evicted, and then a successor daemon takes over.
#[test]
fn handles_below_mounts_outlive_the_daemon() {
    needs_mount!();
    let turn = memory::drop_at_will();
    // A session over io_uring cannot be handed over.
    for plan in [Plan::tmpfs(), Plan::ext4()].map(|plan| plan.args(&["--transport", "dev"]).unmounted()) {
        for kind in ["tmpfs", "ext4"] {
            let Some(mut s) = plan.set_or_skip() else { continue };
            let (sub, image) = (s.lower("sub"), s.aside().join("image"));
            // Looked up before, so that the mount below is not the first.
            fs::create_dir_all(s.lower("first")).unwrap();
            fs::create_dir(&sub).unwrap();
            let mount =
                |on: &Path| run(Command::new("mount").args(["-t", "tmpfs", "shunt-test"]).arg(on)).ok();
            mount(&s.lower("first"));
            let _first = Submount(s.lower("first"));
            if kind == "tmpfs" {
                mount(&sub);
            } else {
                File::create(&image).unwrap().set_len(300 << 20).unwrap();
                run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image)).ok();
                loops::set_up(Command::new("mount").args(["-oloop", "-t", kind]).args([&image, &sub])).ok();
            }
            let _sub = Submount(sub);
            tree(&s.lower("sub"));
            fs::write(s.lower("first/f"), "first").unwrap();
            s.mount();
            let names = ["first/f", "sub/a/b/c", "sub/a/b/c/f"];
            let handles = names.map(|name| Handle::of(&s.path(name)).unwrap());
            let root = File::open(s.mnt()).unwrap();
            let same = |when: &str| {
                for (name, handle) in names.iter().zip(&handles) {
                    evict(&turn, &s);
                    let file = handle
                        .open(&root, READ)
                        .unwrap_or_else(|error| panic!("{kind}, {when}, {name}: {error}"));
                    assert_eq!(file.metadata().unwrap().ino(), fs::metadata(s.path(name)).unwrap().ino());
                }
            };
            same("forgotten");
            let held = File::open(s.path("sub/a/b/c/f")).unwrap();
            let first = s.server().expect("a daemon");
            mounts::signal(first, Signal::KILL);
            assert_eq!(text(held), "contents");
            let goes_on = || {
                s.server().is_some_and(|pid| pid != first)
                    && run(binary::command(&["stat"]).arg(s.mnt())).success()
            };
            assert!(within(Duration::from_secs(10), goes_on), "nobody went on");
            same("after a takeover");
            fs::remove_file(s.path("sub/a/b/c/f")).unwrap();
            let stale = || {
                evict(&turn, &s);
                is_stale(handles[2].open(&root, READ))
            };
            assert!(within(Duration::from_secs(5), stale), "deleted");
        }
    }
}

/// A new mount of a source has the handles of the old one.
#[test]
fn handles_outlive_the_mount() {
    needs_mount!();
    memory::keeping(|| {
        for plan in [Plan::tmpfs(), Plan::ext4(), Plan::xfs(), Plan::btrfs()] {
            let Some(mut s) = plan.set_or_skip() else { continue };
            tree(s.src());
            let handles = ["a/b/c", "a/b/c/f"].map(|name| Handle::of(&s.path(name)).unwrap());
            s.remount();
            let root = File::open(s.mnt()).unwrap();
            for handle in handles {
                assert!(handle.open(&root, READ).is_ok());
            }
        }
    });
}

/// A forged handle opens nothing outside the source.
#[test]
fn forged_handles_lead_nowhere() {
    needs_mount!();
    memory::keeping(|| {
        for plan in [Plan::tmpfs(), Plan::ext4()] {
            fixture::perform(plan, |s| {
                tree(s.src());
                let root = File::open(s.mnt()).unwrap();
                let inside: Vec<u64> = ["", "a", "a/b", "a/b/c", "a/b/c/f", "a/l"]
                    .iter()
                    .map(|name| fs::symlink_metadata(s.lower(name)).unwrap().ino())
                    .collect();
                let try_out = |node: u64, generation: u32| {
                    if let Ok(file) = Handle::forged(node, generation).open(&root, PATH) {
                        let ino = file.metadata().unwrap().ino();
                        assert!(inside.contains(&ino), "{node:#x} led to inode {ino}, which is outside");
                    }
                };
                let (known, generation) = Handle::of(&s.path("a/b/c/f")).unwrap().node();
                // Handles that differ from a known one in a bit.
                for bit in 0..64 {
                    try_out(known ^ 1 << bit, generation);
                    try_out(1 << bit, generation);
                    try_out(u64::MAX >> bit, generation);
                    try_out(known, generation ^ 1 << (bit % 32));
                }
                // Adjacent numbers belong to neighbours, also outside the source; their generations are guessed.
                for step in 0..2000u64 {
                    for node in [known.wrapping_add(step), known.wrapping_sub(step), 1 << 63 | step, step] {
                        try_out(node, generation);
                        try_out(node, 0);
                    }
                }
                // A file next to the source, with its real generation.
                let beside = tempfile::NamedTempFile::new_in(s.src().parent().unwrap()).unwrap();
                let aside = beside.path();
                let ino = fs::metadata(aside).unwrap().ino();
                let lower = Handle::of(aside).unwrap();
                for &word in lower.words() {
                    let node = 1 << 63 | u64::from(word) << 31 | ino & 0x7fff_ffff;
                    assert!(is_stale(Handle::forged(node, 0).open(&root, PATH)), "{node:#x}");
                    try_out(node, word);
                }
                let mut rng = Rng::new(0x5eed);
                for _ in 0..20_000 {
                    let mut word = || u64::from_ne_bytes(rng.bytes(8).try_into().unwrap());
                    try_out(word(), word() as u32);
                    try_out(1 << 63 | word(), 0);
                }
                assert_eq!(fs::read(s.path("a/b/c/f")).unwrap(), b"contents", "the mirror is well");
            });
        }
    });
}

/// Listed entries are not looked up again: a path through listed directories costs no LOOKUP.
#[test]
fn listed_names_cost_no_lookup() {
    needs_mount!();
    memory::keeping(|| {
        fixture::perform(Plan::ext4().args(&["--cache", "exclusive"]), |s| {
            for d in 0..10 {
                fs::create_dir_all(s.lower(format!("d{d}/e"))).unwrap();
                (0..20).for_each(|f| fs::write(s.lower(format!("d{d}/e/f{f}")), "x").unwrap());
            }
            let before = s.requests("lookup");
            let list = |path: &Path| {
                fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
            };
            for d in list(s.mnt()) {
                for e in list(&d) {
                    for f in list(&e) {
                        assert_eq!(fs::metadata(f).unwrap().len(), 1);
                    }
                }
            }
            assert_eq!(s.requests("lookup"), before);
        });
    });
}
