//! Killed daemons: the successor applies the same rules, and open files keep theirs.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use shunt_test_support::User;
use shunt_test_support::cmd::within;
use shunt_test_support::rings::over_rings;
use shunt_tests::Fixture;
use shunt_tests::geotagged_jpeg::{SIZE, has_secret, picture};
use shunt_tests::mounts;
use shunt_tests::sys::Shared;

use super::{GUEST, OWNER, RULES, fixture, two_users_look};

/// If checks in the kernel end with the daemon, there is no successor.
const ARGS: [&str; 6] = ["--transport", "dev", "--crashes", "1000000", "--lsm", "off"];

/// Kills the daemon, and waits until a successor serves.
fn kill(s: &Fixture) {
    let pid = s.server().expect("a daemon");
    mounts::signal(pid, Signal::KILL);
    let next = || s.server().is_some_and(|now| now != pid) && fs::metadata(s.mnt()).is_ok();
    assert!(within(Duration::from_secs(20), next), "nobody took over");
}

fn looked_at_while_killed(cache: &str) {
    let args: Vec<_> = ARGS.into_iter().chain(["--cache", cache]).collect();
    let Some((_rules, s)) = fixture(RULES, &args) else { return };
    two_users_look(&s, cache, || {
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(300));
            kill(&s);
        }
    });
}

#[test]
fn no_caller_sees_what_is_anothers_while_daemons_are_killed() {
    looked_at_while_killed("exclusive");
    looked_at_while_killed("coherent");
}

/// Creates a picture of several read-ahead windows, so that some pages are requested after the kill.
fn large(s: &Fixture, name: &str) -> Vec<u8> {
    let mut bytes = picture();
    bytes.resize(4 << 20, 7);
    fs::write(s.lower(name), &bytes).unwrap();
    fs::set_permissions(s.lower(name), fs::Permissions::from_mode(0o666)).unwrap();
    bytes
}

fn pages(file: &File, length: usize) -> Vec<u8> {
    // Drops the page cache of the file, which works unless it is mapped.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn open_files_keep_their_rules() {
    let Some((rules, s)) = fixture(RULES, &ARGS) else { return };
    let bytes = large(&s, "large.jpg");
    fs::write(s.lower("gone.jpg"), picture()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let open = |user: u32, name: &str| User::new(user).run(|| File::open(s.path(name)).unwrap());
    let (blanked, whole) = (open(GUEST, "large.jpg"), open(OWNER, "large.jpg"));
    let (gone, plain) = (open(GUEST, "gone.jpg"), open(GUEST, "dropbox/file"));
    fs::remove_file(s.path("gone.jpg")).unwrap();
    let locked = open(OWNER, "locked/file");
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    let map = Shared::read_only(&blanked, bytes.len()).unwrap();
    let both =
        User::new(OWNER).run(|| File::options().read(true).write(true).open(s.path("out/b.jpg")).unwrap());
    for round in 0..3 {
        kill(&s);
        // First through descriptors alone: no name is looked up again for them.
        assert_eq!(blanked.metadata().unwrap().len(), bytes.len() as u64);
        let seen = pages(&blanked, bytes.len());
        assert!(!has_secret(&seen) && seen[SIZE..] == bytes[SIZE..], "round {round}");
        assert!(!has_secret(&(0..SIZE).map(|at| map.peek(at)).collect::<Vec<_>>()), "round {round}");
        assert!(pages(&whole, bytes.len()) == bytes, "round {round}");
        assert!(!has_secret(&pages(&gone, SIZE)), "round {round}");
        assert_eq!(pages(&plain, 4), b"text");
        both.set_permissions(fs::Permissions::from_mode(0o660 + round)).unwrap();
        both.write_all_at(b"!", 0).unwrap();
        let read_only = locked.set_permissions(fs::Permissions::from_mode(0o600)).unwrap_err();
        assert_eq!(read_only.raw_os_error(), Some(libc::EROFS), "by the rules of its name, round {round}");
        // Then by name: these are the same inodes, and their locks are held.
        let again = open(OWNER, "locked/file");
        assert_eq!(flock(&again, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        assert!(!has_secret(
            &fs::read(s.path("large.jpg")).map(|_| pages(&open(GUEST, "large.jpg"), SIZE)).unwrap()
        ));
        assert!(has_secret(&pages(&open(OWNER, "large.jpg"), SIZE)));
    }
    // Rules that change while no daemon serves apply afterwards; open files keep the rules of their open.
    let file = rules.path().join("policy.toml");
    let pid = s.server().unwrap();
    mounts::signal(pid, Signal::STOP);
    fs::write(&file, RULES.replace("uid = 2001\naction = \"redact\"", "uid = 2000\naction = \"redact\""))
        .unwrap();
    mounts::signal(pid, Signal::KILL);
    assert!(within(Duration::from_secs(20), || s.server().is_some_and(|now| now != pid)));
    let sees = |user: u32| has_secret(&pages(&open(user, "large.jpg"), SIZE));
    assert!(within(Duration::from_secs(5), || sees(GUEST) && !sees(OWNER)));
    kill(&s);
    assert!(!has_secret(&pages(&blanked, bytes.len())) && pages(&whole, bytes.len()) == bytes);
    assert!(sees(GUEST) && !sees(OWNER));
    // A policy file that is invalid by then changes nothing.
    fs::write(&file, "[[rule]]\npath = 5").unwrap();
    kill(&s);
    assert!(sees(GUEST) && !sees(OWNER));
}

#[test]
fn grafts_and_the_audit_log_go_on() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit");
    let rules = format!(
        "[[rule]]\npath = \"/graft/**\"\naction = \"graft\"\n{}",
        RULES.replace("name = \"pictures\"", "name = \"pictures\"\naudit = true")
    );
    let args: Vec<_> = ARGS.into_iter().chain(["--audit-log", log.to_str().unwrap()]).collect();
    let Some((_rules, s)) = fixture(&rules, &args) else { return };
    fs::create_dir(s.lower("graft")).unwrap();
    fs::write(s.lower("graft/file"), b"through").unwrap();
    let grafts = || s.stat()["grafts"].as_array().map_or(0, Vec::len);
    let has_graft = within(Duration::from_secs(5), || grafts() == 1);
    kill(&s);
    if has_graft {
        assert!(within(Duration::from_secs(3), || grafts() == 1), "{}", s.stat());
        assert_eq!(
            fs::rename(s.path("graft"), s.path("other")).unwrap_err().raw_os_error(),
            Some(libc::EBUSY)
        );
    }
    assert_eq!(fs::read(s.path("graft/file")).unwrap(), b"through");
    User::new(GUEST).run(|| fs::read(s.path("out/b.jpg")).unwrap());
    assert!(fs::read_to_string(&log).unwrap().contains("\"path\":\"/out/b.jpg\""));
}

#[test]
fn it_says_whether_another_daemon_would_follow() {
    if over_rings() {
        return;
    }
    let Some((_rules, s)) = fixture(RULES, &ARGS) else { return };
    assert!(s.stat()["no_takeover"].is_null(), "{}", s.stat());
}
