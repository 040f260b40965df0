//! Grafts: directories that are bind-mounted through the mirror.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use shunt_test_support::User;
use shunt_test_support::cmd::within;
use shunt_tests::Fixture;
use shunt_tests::fixture::Plan;
use tempfile::TempDir;

const RULES: &str = r#"
[[rule]]
path = "/data/cache/**"
action = "graft"

[[rule]]
path = "/data/secret/**"
except = { uid = 0 }
action = "hide"
"#;

const TMPFS: u64 = 0x0102_1994;

/// Sets up a source with a directory to graft, mounted with rules. The policy file is removed with the first returned value.
fn fixture(args: &[&str]) -> Option<(TempDir, Fixture)> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("policy.toml");
    fs::write(&file, RULES).unwrap();
    let plan = Plan::tmpfs().args(&["--policy", file.to_str().unwrap()]).args(args).unmounted();
    let mut fixture = plan.set_or_skip()?;
    if !fixture.mounted() {
        return None;
    }
    fs::create_dir_all(fixture.lower("data/cache/deep")).unwrap();
    fs::create_dir_all(fixture.lower("data/secret")).unwrap();
    fs::write(fixture.lower("data/cache/deep/file"), b"grafted").unwrap();
    for dir in ["data", "data/cache", "data/cache/deep"] {
        fs::set_permissions(fixture.lower(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    fixture.mount();
    Some((place, fixture))
}

fn fstype(path: &Path) -> u64 {
    rustix::fs::statfs(path).unwrap().f_type as u64
}

/// Returns the id of the mount that contains a path.
fn mount_of(path: &Path) -> u64 {
    statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).unwrap().stx_mnt_id
}

fn errno(result: io::Result<()>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

/// Returns the lines of the mount table at a path or below.
fn mounts_at(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = |line: &&str| line.split(' ').nth(4).is_some_and(|place| Path::new(place).starts_with(path));
    table.lines().filter(at).map(str::to_owned).collect()
}

/// Measures the time to stat and open a file of a directory, in microseconds: the fastest of several rounds.
fn quickest(dir: &File) -> f64 {
    let round = || {
        let began = Instant::now();
        for _ in 0..2000 {
            statx(dir, "file", AtFlags::empty(), StatxFlags::BASIC_STATS).unwrap();
            drop(openat(dir, "file", OFlags::RDONLY, Mode::empty()).unwrap());
        }
        began.elapsed().as_secs_f64() * 1e6 / 2000.0
    };
    (0..9).map(|_| round()).fold(f64::MAX, f64::min)
}

#[test]
fn below_a_graft_there_is_no_fuse() {
    let Some((_rules, s)) = fixture(&[]) else { return };
    assert_eq!(fstype(&s.path("data/cache/deep")), TMPFS);
    assert_ne!(fstype(&s.path("data")), TMPFS);
    assert_eq!(s.stat()["grafts"], serde_json::json!(["/data/cache"]));
    let asked = |s: &Fixture| {
        let stat = s.stat();
        stat["requests"].as_object().unwrap().values().map(|one| one["count"].as_u64().unwrap()).sum::<u64>()
    };
    let deep = File::open(s.path("data/cache/deep")).unwrap();
    let below = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&deep)));
    let before = asked(&s);
    for n in 0..500 {
        fs::write(below.join("new"), n.to_string()).unwrap();
        assert_eq!(fs::read_to_string(below.join("new")).unwrap(), n.to_string());
    }
    assert_eq!(fs::read_dir(&below).unwrap().count(), 2);
    // The daemon checks periodically that the graft is mounted.
    let more = asked(&s) - before;
    assert!(more < 20, "{more} requests for 1000 opens below a graft");
    assert_eq!(fs::read(s.lower("data/cache/deep/new")).unwrap(), b"499");
    // The fastest of each, since other work runs concurrently.
    let source = File::open(s.lower("data/cache/deep")).unwrap();
    let (mut native, mut grafted) = (f64::MAX, f64::MAX);
    let same = within(Duration::from_secs(20), || {
        native = native.min(quickest(&source));
        grafted = grafted.min(quickest(&deep));
        grafted < native * 1.5
    });
    eprintln!("stat and open: {native:.2} us in the source, {grafted:.2} us below the graft");
    assert!(same, "{grafted} us, {native} us in the source");
}

#[test]
fn a_graft_is_as_strict_as_the_mount() {
    let Some((_rules, s)) = fixture(&["--read-only", "-o", "noexec,noatime"]) else { return };
    let file = s.path("data/cache/deep/file");
    assert_eq!(fstype(&file), TMPFS);
    assert_eq!(errno(fs::write(&file, b"x")), Errno::ROFS);
    assert_eq!(errno(fs::remove_file(&file)), Errno::ROFS);
    let program = s.lower("data/cache/deep/program");
    fs::copy("/bin/true", &program).unwrap();
    assert_eq!(errno(Command::new(s.path("data/cache/deep/program")).status().map(drop)), Errno::ACCESS);
    let lines = mounts_at(&s.path("data/cache"));
    let options: Vec<&str> = lines[0].split(' ').nth(5).unwrap().split(',').collect();
    for option in ["ro", "nosuid", "nodev", "noexec", "noatime"] {
        assert!(options.contains(&option), "{option} of {options:?}");
    }
    // Its propagation is private: no unmount elsewhere affects it, nor the other way round.
    assert!(!lines[0].contains("shared:") && !lines[0].contains("master:"), "{lines:?}");
}

#[test]
fn ids_are_shown_below_a_graft_as_above() {
    let Some((_rules, s)) = fixture(&["--uid-map", "5000:6000:10", "--gid-map", "5000:7000"]) else { return };
    chown(s.lower("data/cache/deep/file"), Some(5003), Some(5000)).unwrap();
    let file = s.path("data/cache/deep/file");
    assert_eq!(fstype(&file), TMPFS, "tmpfs maps ids since Linux 6.3");
    let seen = fs::metadata(&file).unwrap();
    assert_eq!((seen.uid(), seen.gid()), (6003, 7000));
    User::new(6003).gid(7000).run(|| {
        fs::write(&file, b"mine").unwrap();
        fs::write(s.path("data/cache/made"), b"x").unwrap();
    });
    let made = fs::metadata(s.lower("data/cache/made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (5003, 5000));
}

#[test]
fn changes_above_do_not_detach_a_graft() {
    let Some((_rules, s)) = fixture(&["--cache", "coherent"]) else { return };
    let file = s.path("data/cache/deep/file");
    let mount = mount_of(&file);
    let holds = |what: &str| {
        // The kernel gets an invalidation within 100 ms, and once more after a second.
        for pause in [0, 150, 1100] {
            std::thread::sleep(Duration::from_millis(pause));
            assert_eq!(fs::read(&file).unwrap(), b"grafted", "{what}");
            assert_eq!(mount_of(&file), mount, "{what}");
        }
    };
    fs::write(s.lower("data/beside"), b"x").unwrap();
    fs::set_permissions(s.lower("data"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(s.lower("data/beside"), s.lower("data/besides")).unwrap();
    holds("changes beside it");
    fs::rename(s.lower("data/cache"), s.lower("data/away")).unwrap();
    holds("it was renamed in the source");
    fs::create_dir(s.lower("data/cache")).unwrap();
    fs::write(s.lower("data/cache/other"), b"x").unwrap();
    assert!(names(&s.path("data")).contains(&"cache".to_owned()));
    holds("another took its name");
    fs::rename(s.lower("data"), s.lower("gone")).unwrap();
    fs::create_dir(s.lower("data")).unwrap();
    names(s.mnt());
    holds("so was the directory above");
    assert_eq!(errno(fs::rename(s.path("data"), s.path("moved"))), Errno::BUSY);
    assert_eq!(errno(fs::remove_dir(s.path("data/cache"))), Errno::BUSY);
    // Lookups that must not use the cache: of a name to be created, and after ESTALE.
    assert_eq!(errno(fs::create_dir(s.path("data/cache"))), Errno::EXIST);
    holds("asked for anew");
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn grafts_follow_the_rules() {
    let Some((rules, s)) = fixture(&["--cache", "exclusive"]) else { return };
    let policy = rules.path().join("policy.toml");
    let file = s.path("data/cache/deep/file");
    let mut open = File::open(&file).unwrap();
    let reload = |text: &str| {
        fs::write(&policy, text).unwrap();
        kill_process(Pid::from_raw(s.pid() as i32).unwrap(), Signal::HUP).unwrap();
    };
    reload(&format!("# the same\n{RULES}"));
    assert!(within(Duration::from_secs(5), || fstype(&file) == TMPFS
        && s.stat()["grafts"] != serde_json::json!([])));
    // The daemon checks the policy file again by itself.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(within(Duration::from_secs(5), || fstype(&file) == TMPFS));
    reload(&RULES.replace("graft", "read-only"));
    assert!(within(Duration::from_secs(5), || fstype(&file) != TMPFS));
    assert_eq!(errno(fs::write(&file, b"x")), Errno::ROFS);
    let mut text = String::new();
    io::Read::read_to_string(&mut open, &mut text).unwrap();
    assert_eq!(text, "grafted", "what is open stays open");
    drop(open);
    // A refused policy changes nothing.
    reload(RULES);
    assert!(within(Duration::from_secs(5), || fstype(&file) == TMPFS));
    reload(&RULES.replace("/data/secret/**", "/data"));
    std::thread::sleep(Duration::from_millis(1500));
    assert!(within(Duration::from_secs(5), || fstype(&file) == TMPFS));
}

#[test]
fn unmounting_takes_grafts_away() {
    let Some((_rules, mut s)) = fixture(&[]) else { return };
    let busy = File::open(s.path("data/cache/deep/file")).unwrap();
    let refused = s.try_umount();
    assert!(!refused.success() && refused.err.contains("busy"), "{}", refused.err);
    drop(busy);
    assert!(within(Duration::from_secs(5), || fstype(&s.path("data/cache")) == TMPFS), "it stays");
    s.umount().ok();
    assert!(s.ends_within(Duration::from_secs(5)));
    assert_eq!(mounts_at(s.mnt()), [""; 0]);
    s.mount();
    assert_eq!(fstype(&s.path("data/cache")), TMPFS);
    kill_process(Pid::from_raw(s.pid() as i32).unwrap(), Signal::TERM).unwrap();
    assert!(s.ends_within(Duration::from_secs(5)));
    assert_eq!(mounts_at(s.mnt()), [""; 0]);
}

#[test]
fn a_daemon_that_is_killed_for_good_leaves_no_graft() {
    let Some((_rules, s)) = fixture(&["--takeover", "off"]) else { return };
    let _inside = File::open(s.path("data/cache/deep/file")).unwrap();
    kill_process(Pid::from_raw(s.pid() as i32).unwrap(), Signal::KILL).unwrap();
    assert!(within(Duration::from_secs(10), || mounts_at(s.mnt()).is_empty()), "{:?}", mounts_at(s.mnt()));
}
