//! Rules enforced by the kernel through the `bpf` security module, as in the lab (`lab/policy`).

mod changes;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use shunt_test_support::User;
use shunt_test_support::cmd::within;
use shunt_tests::Fixture;
use shunt_tests::fixture::Plan;
use tempfile::TempDir;

const ONE: u32 = 2000;
const OTHER: u32 = 2001;

const RULES: &str = r#"
[[rule]]
path = "/private/{uid}/**"
action = "allow"

[[rule]]
path = "/private/*/**"
except = { uid = 0 }
action = "hide"

[[rule]]
path = "/locked/**"
uid = "2001-2005"
action = "read-only"

[[rule]]
path = "/dropbox"
op = "list"
uid = 2001
action = "deny"
error = "EPERM"

[[rule]]
path = "/dropbox/*"
op = "read"
gid = 2001
action = "deny"
"#;

/// Mounts with rules enforced in the kernel, or skips the test. The policy file is removed with the first returned value.
fn fixture(args: &[&str]) -> Option<(TempDir, Fixture)> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("policy.toml");
    fs::write(&file, RULES).unwrap();
    let plan = Plan::tmpfs().args(&["--cache", "exclusive", "--policy", file.to_str().unwrap()]).args(args);
    let mut fixture = plan.unmounted().set_or_skip()?;
    if !fixture.mounted() {
        return None;
    }
    for dir in ["private", "private/2000", "private/2001", "locked", "dropbox"] {
        fs::create_dir(fixture.lower(dir)).unwrap();
        fs::set_permissions(fixture.lower(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for name in ["private/2000/note", "private/2001/note", "locked/file", "dropbox/file"] {
        fs::write(fixture.lower(name), b"mine").unwrap();
        fs::set_permissions(fixture.lower(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    for user in [ONE, OTHER] {
        symlink("note", fixture.lower(format!("private/{user}/link"))).unwrap();
    }
    // The kernel creates the root inode before it knows that there are ACLs, and requests the root's ACL whenever the group's
    // bits matter.
    fs::set_permissions(fixture.src(), fs::Permissions::from_mode(0o705)).unwrap();
    fixture.mount();
    let rules = fixture.stat()["rules"].as_str().unwrap().to_owned();
    if !rules.starts_with("enforced in the kernel") {
        // A skipped test is a failure if enforcement in the kernel is required. `lab/policy` runs all of them.
        assert!(std::env::var_os("SHUNT_LSM").is_none(), "{rules}");
        shunt_test_support::skip::kernel_cannot(&rules);
        return None;
    }
    Some((place, fixture))
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

fn getxattr(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: both are terminated strings, and nothing is written.
    let got = unsafe { libc::getxattr(path.as_ptr(), c"user.none".as_ptr(), std::ptr::null_mut(), 0) };
    match io::Error::last_os_error() {
        error if got < 0 && error.raw_os_error() != Some(libc::ENODATA) => Err(error),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Count {
    looks: AtomicU64,
    leaks: AtomicU64,
    wrongs: AtomicU64,
}

/// Tries all kinds of access, as a user with a folder of their own.
fn look(s: &Fixture, me: u32, count: &Count) {
    let other = if me == ONE { OTHER } else { ONE };
    let theirs = s.path(format!("private/{other}"));
    let mine = s.path(format!("private/{me}"));
    let (note, link) = (theirs.join("note"), theirs.join("link"));
    let ways: [(&str, Option<Errno>); 14] = [
        ("stat", errno(fs::metadata(&theirs))),
        ("stat below", errno(fs::metadata(&note))),
        ("open", errno(File::open(&note))),
        ("open to write", errno(File::options().write(true).open(&note))),
        ("list", errno(fs::read_dir(&theirs))),
        ("access", accessat(CWD, &theirs, Access::EXISTS, AtFlags::EACCESS).err()),
        ("access below", accessat(CWD, &note, Access::READ_OK, AtFlags::EACCESS).err()),
        ("readlink", errno(fs::read_link(&link))),
        ("follow", errno(fs::read(&link))),
        ("xattr", errno(getxattr(&note))),
        ("chmod", errno(fs::set_permissions(&note, fs::Permissions::from_mode(0o600)))),
        ("unlink", errno(fs::remove_file(&note))),
        ("rename", errno(fs::rename(&note, mine.join("got")))),
        ("link", errno(fs::hard_link(&note, mine.join("linked")))),
    ];
    for (way, answer) in ways {
        count.looks.fetch_add(1, Ordering::Relaxed);
        if answer != Some(Errno::NOENT) {
            eprintln!("LEAK to {me}: {way}: {answer:?}");
            count.leaks.fetch_add(1, Ordering::Relaxed);
        }
    }
    let names = fs::read_dir(s.path("private")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    if names != [me.to_string()] {
        eprintln!("LEAK to {me}: {names:?}");
        count.leaks.fetch_add(1, Ordering::Relaxed);
    }
    // The result does not reveal whether the folder exists.
    let makes = [&theirs, &s.path("private/2002")].map(|dir| errno(fs::create_dir(dir)));
    let good = fs::read(mine.join("note")).ok().as_deref() == Some(b"mine")
        && fs::read(mine.join("link")).ok().as_deref() == Some(b"mine")
        && fs::metadata(&mine).is_ok()
        && makes == [Some(Errno::ACCESS); 2];
    if !good {
        eprintln!("WRONG for {me}: {makes:?}");
        count.wrongs.fetch_add(1, Ordering::Relaxed);
    }
}

fn against_each_other(s: &Fixture) {
    let seconds = std::env::var("TIME").ok().and_then(|time| time.parse().ok()).unwrap_or(3);
    let (count, end) = (Count::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for user in [ONE, OTHER, ONE, OTHER] {
            let (count, end) = (&count, &end);
            scope.spawn(move || {
                User::new(user).run(|| {
                    while !end.load(Ordering::Relaxed) {
                        look(s, user, count);
                    }
                });
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        end.store(true, Ordering::Relaxed);
    });
    let [looks, leaks, wrongs] =
        [&count.looks, &count.leaks, &count.wrongs].map(|count| count.load(Ordering::Relaxed));
    eprintln!("{looks} looks, {leaks} leaks, {wrongs} wrong");
    assert_eq!((leaks, wrongs), (0, 0), "of {looks} looks");
    assert!(looks > 100, "{looks}");
}

#[test]
fn no_caller_sees_what_is_anothers() {
    let Some((_rules, s)) = fixture(&[]) else { return };
    against_each_other(&s);
}

#[test]
fn nor_where_opens_are_not_asked_for() {
    let Some((_rules, s)) = fixture(&["--passthrough", "off"]) else { return };
    assert_eq!(s.stat()["rules"], "enforced in the kernel, including opens");
    against_each_other(&s);
}

/// Returns the number of requests by name.
fn asked(s: &Fixture) -> BTreeMap<String, u64> {
    let stat = s.stat();
    let requests = stat["requests"].as_object().unwrap().iter();
    requests.map(|(name, one)| (name.clone(), one["count"].as_u64().unwrap())).collect()
}

#[test]
fn known_inodes_cost_no_request() {
    let Some((_rules, s)) = fixture(&["--passthrough", "off"]) else { return };
    let (mine, theirs) = (s.path("private/2000/note"), s.path("private/2001/note"));
    let work = |rounds: usize| {
        for user in [ONE, OTHER] {
            User::new(user).run(|| {
                for _ in 0..rounds {
                    let seen = [&mine, &theirs].map(|path| fs::metadata(path).is_ok());
                    let open = [&mine, &theirs].map(|path| fs::read(path).is_ok());
                    assert_eq!((seen, open), ([user == ONE, user == OTHER], [user == ONE, user == OTHER]));
                }
            });
        }
    };
    work(2);
    let before = asked(&s);
    work(500);
    assert_eq!(asked(&s), before, "for 1000 looks and 1000 opens that are allowed, and as many that are not");
}

#[test]
fn operations_fail_as_the_rules_say() {
    for args in [&[][..], &["--passthrough", "off"]] {
        let Some((_rules, s)) = fixture(args) else { return };
        let write = |name: &str| errno(File::options().write(true).open(s.path(name)));
        for _ in 0..2 {
            User::new(OTHER).run(|| {
                assert_eq!(write("locked/file"), Some(Errno::ROFS));
                assert_eq!(
                    accessat(CWD, s.path("locked/file"), Access::WRITE_OK, AtFlags::EACCESS),
                    Err(Errno::ROFS)
                );
                assert_eq!(errno(fs::write(s.path("locked/new"), b"x")), Some(Errno::ROFS));
                assert_eq!(errno(fs::remove_file(s.path("locked/file"))), Some(Errno::ROFS));
                assert_eq!(fs::read(s.path("locked/file")).unwrap(), b"mine");
                assert_eq!(errno(fs::read_dir(s.path("dropbox"))), Some(Errno::PERM));
                assert_eq!(errno(File::open(s.path("dropbox/file"))), Some(Errno::ACCESS));
                fs::metadata(s.path("dropbox/file")).unwrap();
                assert_eq!(write("dropbox/file"), None);
            });
            User::new(ONE).run(|| {
                assert_eq!((write("locked/file"), errno(fs::read_dir(s.path("dropbox")))), (None, None));
                assert_eq!(errno(File::open(s.path("dropbox/file"))), None);
            });
            // The group rule matches the caller's primary group only.
            User::new(ONE).gid(2001).run(|| {
                assert_eq!(errno(File::open(s.path("dropbox/file"))), Some(Errno::ACCESS));
            });
        }
        // The rules apply to the mount, not to the source.
        User::new(OTHER).run(|| assert_eq!(fs::read(s.lower("private/2000/note")).unwrap(), b"mine"));
    }
}

#[test]
fn no_way_leads_around_by_a_descriptor() {
    let Some((_rules, s)) = fixture(&["--passthrough", "off"]) else { return };
    let open = File::open(s.path("private/2000/note")).unwrap();
    let dir = File::open(s.path("private/2000")).unwrap();
    User::new(OTHER).run(|| {
        let again = |file: &File, rest: &str| format!("/proc/self/fd/{}{rest}", file.as_raw_fd());
        assert_eq!(errno(File::open(again(&open, ""))), Some(Errno::NOENT));
        assert_eq!(errno(File::open(again(&dir, "/note"))), Some(Errno::NOENT));
        assert_eq!(errno(std::env::set_current_dir(again(&dir, ""))), Some(Errno::NOENT));
        // Open files stay accessible.
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_at(&open, &mut byte, 0).unwrap();
    });
}

#[test]
fn other_rules_hold_at_once() {
    let Some((rules, s)) = fixture(&["--passthrough", "off"]) else { return };
    let policy = rules.path().join("policy.toml");
    let note = s.path("private/2000/note");
    let sees = |user: u32| User::new(user).run(|| fs::metadata(&note).is_ok() && fs::read(&note).is_ok());
    let held = File::open(&note).unwrap();
    let again = format!("/proc/self/fd/{}", held.as_raw_fd());
    assert!(sees(ONE) && !sees(OTHER) && sees(0));
    let reload = |text: &str| {
        fs::write(&policy, text).unwrap();
        kill_process(Pid::from_raw(s.pid() as i32).unwrap(), Signal::HUP).unwrap();
    };
    reload(&RULES.replace("except = { uid = 0 }\n", "").replace("/private/{uid}/**", "/private/none/**"));
    assert!(within(Duration::from_secs(10), || !sees(ONE) && !sees(OTHER) && !sees(0)));
    // Nor through an inode that was cached under the old rules.
    assert!(File::open(&again).is_err());
    assert!(held.metadata().is_ok());
    reload("default = \"allow\"\n");
    assert!(within(Duration::from_secs(10), || sees(ONE) && sees(OTHER) && sees(0)));
    // Rules that the kernel cannot enforce are refused if there is no other enforcement.
    reload("[[rule]]\npath = \"/private/**\"\ngroup = 5\naction = \"hide\"\n");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(sees(ONE) && sees(OTHER));
    reload(RULES);
    assert!(within(Duration::from_secs(10), || sees(ONE) && !sees(OTHER)));
}

#[test]
fn names_that_move_take_the_rules_of_their_place() {
    let Some((_rules, s)) = fixture(&["--passthrough", "off"]) else { return };
    let made = s.path("private/2000/made");
    User::new(ONE).run(|| {
        fs::write(s.path("private/2000/new"), b"new").unwrap();
        fs::rename(s.path("private/2000/new"), &made).unwrap();
        fs::create_dir(s.path("private/2000/dir")).unwrap();
        fs::write(s.path("private/2000/dir/in"), b"new").unwrap();
    });
    User::new(OTHER).run(|| {
        for name in ["made", "dir", "dir/in"] {
            assert_eq!(errno(fs::metadata(s.path("private/2000").join(name))), Some(Errno::NOENT), "{name}");
        }
    });
    // Renamed by a user without rules, out of an unrestricted directory.
    fs::write(s.path("plain"), b"plain").unwrap();
    User::new(OTHER).run(|| assert_eq!(fs::read(s.path("plain")).unwrap(), b"plain"));
    fs::rename(s.path("plain"), s.path("private/2000/plain")).unwrap();
    User::new(OTHER)
        .run(|| assert_eq!(errno(fs::metadata(s.path("private/2000/plain"))), Some(Errno::NOENT)));
    User::new(ONE).run(|| assert_eq!(fs::read(s.path("private/2000/plain")).unwrap(), b"plain"));
    fs::rename(s.path("private/2000/plain"), s.path("plain")).unwrap();
    User::new(OTHER).run(|| assert_eq!(fs::read(s.path("plain")).unwrap(), b"plain"));
}
