//! Mounts with policies, from the view of callers.

mod audit_log;
mod casefold;
mod daemon_kill;
mod reload;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, pipe, splice};
use shunt_test_support::cmd::within;
use shunt_test_support::{User, pace};
use shunt_tests::Fixture;
use shunt_tests::fixture::Plan;
use shunt_tests::geotagged_jpeg::{SECRET, SIZE, has_secret, picture};
use shunt_tests::sys::{Aligned, Shared};
use tempfile::TempDir;

const OWNER: u32 = 2000;
const GUEST: u32 = 2001;

const RULES: &str = r#"
[[rule]]
path = "/private/{uid}/**"
action = "allow"

[[rule]]
path = "/private/*/**"
except = { uid = 0 }
action = "hide"

[[rule]]
name = "pictures"
path = "*.jpg"
uid = 2001
action = "redact"

[[rule]]
path = "/locked/**"
action = "read-only"

[[rule]]
path = "/dropbox"
op = "list"
uid = 2001
action = "deny"
error = "EPERM"
"#;

/// Mounts with rules. The policy file is removed with the first returned value.
fn fixture(rules: &str, args: &[&str]) -> Option<(TempDir, Fixture)> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("policy.toml");
    fs::write(&file, rules).unwrap();
    let plan = Plan::tmpfs().args(&["--policy", file.to_str().unwrap()]).args(args);
    let fixture = plan.set_or_skip()?;
    if !fixture.mounted() {
        return None;
    }
    for dir in ["private", "private/2000", "private/2001", "out", "locked", "dropbox"] {
        fs::create_dir(fixture.lower(dir)).unwrap();
        fs::set_permissions(fixture.lower(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for user in [OWNER, GUEST] {
        fs::write(fixture.lower(format!("private/{user}/note")), b"mine").unwrap();
    }
    for name in ["a.jpg", "out/b.jpg", "locked/file", "dropbox/file"] {
        fs::write(fixture.lower(name), if name.ends_with("jpg") { picture() } else { b"text".to_vec() })
            .unwrap();
        fs::set_permissions(fixture.lower(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    // A kernel that gets invalidations for the root before it has requested its mode denies access to other users for a moment.
    std::thread::sleep(Duration::from_millis(300));
    fs::metadata(fixture.mnt()).unwrap();
    Some((place, fixture))
}

/// All kinds of access to the content of a file.
const WAYS: [&str; 7] = ["read", "mmap", "sendfile", "splice", "copy_file_range", "direct", "io_uring"];

fn read_by(way: &str, path: &Path, scratch: &Path) -> io::Result<Vec<u8>> {
    if way == "direct" {
        let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let mut block = Aligned::new(SIZE);
        let length = file.read_at(&mut block, 0)?;
        return Ok(block[..length].to_vec());
    }
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    match way {
        "read" => {
            file.read_to_end(&mut bytes)?;
        }
        "mmap" => {
            let map = Shared::read_only(&file, SIZE)?;
            bytes.extend((0..SIZE).map(|at| map.peek(at)));
        }
        "sendfile" => {
            let target = File::from(memfd_create("copy", MemfdFlags::empty())?);
            while rustix::fs::sendfile(&target, &file, None, SIZE)? > 0 {}
            bytes = vec![0; SIZE];
            target.read_exact_at(&mut bytes, 0)?;
        }
        "splice" => {
            let (mut from, to) = pipe().map(|(from, to)| (File::from(from), to))?;
            loop {
                let length = splice(&file, None, &to, None, 32 << 10, SpliceFlags::empty())?;
                if length == 0 {
                    break;
                }
                let start = bytes.len();
                bytes.resize(start + length, 0);
                from.read_exact(&mut bytes[start..])?;
            }
        }
        "copy_file_range" => {
            let copy = File::options().read(true).write(true).create(true).truncate(true).open(scratch)?;
            while rustix::fs::copy_file_range(&file, None, &copy, None, SIZE)? > 0 {}
            bytes = vec![0; SIZE];
            copy.read_exact_at(&mut bytes, 0)?;
        }
        _ => {
            let mut ring = io_uring::IoUring::new(2)?;
            bytes = vec![0; SIZE];
            let fd = io_uring::types::Fd(std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()));
            let read = io_uring::opcode::Read::new(fd, bytes.as_mut_ptr(), SIZE as u32).build();
            // SAFETY: the buffer and the file outlive the request, whose completion is awaited.
            unsafe { ring.submission().push(&read) }.map_err(io::Error::other)?;
            ring.submit_and_wait(1)?;
            let result = ring.completion().next().map_or(-libc::EIO, |entry| entry.result());
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            bytes.truncate(result as usize);
        }
    }
    Ok(bytes)
}

#[derive(Default)]
struct Count {
    looks: AtomicU64,
    leaks: AtomicU64,
    wrongs: AtomicU64,
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Tries all kinds of access, as a user with a folder of their own.
fn look(s: &Fixture, me: u32, thread: usize, count: &Count) {
    let other = if me == OWNER { GUEST } else { OWNER };
    let leak = |what: &str, is: bool| {
        count.looks.fetch_add(1, Ordering::Relaxed);
        if is {
            eprintln!("LEAK to {me}: {what}");
            count.leaks.fetch_add(1, Ordering::Relaxed);
        }
    };
    let wrong = |what: &str, is: bool| {
        if is {
            eprintln!("WRONG for {me}: {what}");
            count.wrongs.fetch_add(1, Ordering::Relaxed);
        }
    };
    let theirs = s.path(format!("private/{other}"));
    let mine = s.path(format!("private/{me}"));
    leak("stat", fs::metadata(&theirs).is_ok());
    leak("stat below", fs::metadata(theirs.join("note")).is_ok());
    leak("open", File::open(theirs.join("note")).is_ok());
    let seen = names(&s.path("private"));
    leak("readdir", seen.contains(&other.to_string()));
    wrong("readdir", !seen.contains(&me.to_string()));
    wrong("open", fs::read(mine.join("note")).ok().as_deref() != Some(b"mine"));
    for way in WAYS {
        for name in ["a.jpg", "out/b.jpg"] {
            match read_by(way, &s.path(name), &s.path(format!("out/scratch-{me}-{thread}"))) {
                Ok(bytes) => {
                    leak(way, me == GUEST && has_secret(&bytes));
                    let blanked = bytes.get(56..56 + SECRET.len()) != Some(SECRET);
                    wrong(
                        way,
                        bytes.len() != SIZE
                            || (me == OWNER && blanked)
                            || bytes[SIZE - 3..] != *b"\x55\xff\xd9",
                    );
                }
                Err(error) => {
                    eprintln!("{way} {name} by {me}: {error}");
                    wrong(way, true);
                }
            }
        }
    }
}

fn two_users_against_each_other(cache: &str, seconds: u64) {
    let Some((_rules, s)) = fixture(RULES, &["--cache", cache]) else { return };
    let looks = two_users_look(&s, cache, || std::thread::sleep(Duration::from_secs(seconds)));
    assert!(looks > 50, "{looks}");
}

/// Runs the accesses of two users while something happens. Returns their number.
fn two_users_look(s: &Fixture, cache: &str, happens: impl FnOnce()) -> u64 {
    let (count, end) = (Count::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (user, thread) in [(OWNER, 0), (OWNER, 1), (GUEST, 2), (GUEST, 3)] {
            let (count, end) = (&count, &end);
            scope.spawn(move || {
                User::new(user).run(|| {
                    while !end.load(Ordering::Relaxed) {
                        look(s, user, thread, count);
                    }
                });
            });
        }
        let _ends = StopOnDrop(&end);
        happens();
    });
    let [looks, leaks, wrongs] =
        [&count.looks, &count.leaks, &count.wrongs].map(|count| count.load(Ordering::Relaxed));
    eprintln!("cache {cache}: {looks} looks, {leaks} leaks, {wrongs} wrong");
    assert_eq!((leaks, wrongs), (0, 0), "of {looks} looks");
    looks
}

/// StopOnDrop the accessing threads in any case.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn seconds() -> u64 {
    std::env::var("TIME").ok().and_then(|time| time.parse().ok()).unwrap_or(3)
}

#[test]
fn no_caller_sees_what_is_anothers_where_all_is_cached() {
    two_users_against_each_other("exclusive", seconds());
}

#[test]
fn no_caller_sees_what_is_anothers_where_others_change_the_source() {
    two_users_against_each_other("coherent", seconds());
}

#[test]
fn operations_fail_as_the_rules_say() {
    let Some((_rules, s)) = fixture(RULES, &[]) else { return };
    let errno = |result: io::Result<()>| Errno::from_io_error(&result.unwrap_err()).unwrap();
    User::new(GUEST).run(|| {
        let write = |name: &str| File::options().write(true).open(s.path(name)).map(drop);
        assert_eq!(errno(write("locked/file")), Errno::ROFS);
        assert_eq!(errno(fs::write(s.path("locked/new"), b"x")), Errno::ROFS);
        assert_eq!(errno(fs::remove_file(s.path("locked/file"))), Errno::ROFS);
        assert_eq!(errno(fs::rename(s.path("locked/file"), s.path("out/file"))), Errno::ROFS);
        assert_eq!(fs::read(s.path("locked/file")).unwrap(), b"text");
        assert_eq!(errno(fs::read_dir(s.path("dropbox")).map(drop)), Errno::PERM);
        assert_eq!(fs::read(s.path("dropbox/file")).unwrap(), b"text");
        assert_eq!(errno(write("a.jpg")), Errno::ACCESS, "blanks are not written back");
        // The result does not reveal whether the folder exists.
        for name in ["private/2000", "private/2002"] {
            assert_eq!(errno(fs::create_dir(s.path(name))), Errno::ACCESS);
        }
        assert_eq!(errno(fs::remove_file(s.path("private/2000/note"))), Errno::NOENT);
    });
    User::new(OWNER).run(|| {
        assert!(
            fs::read_dir(s.path("dropbox")).is_ok()
                && File::options().write(true).open(s.path("a.jpg")).is_ok()
        );
    });
}

#[test]
fn no_name_leads_out_of_the_rules() {
    let Some((_rules, s)) = fixture(RULES, &[]) else { return };
    chown(s.lower("out/b.jpg"), Some(GUEST), Some(GUEST)).unwrap();
    User::new(GUEST).run(|| {
        let (from, to) = (s.path("out/b.jpg"), s.path("out/b.txt"));
        let errno = |result: io::Result<()>| Errno::from_io_error(&result.unwrap_err()).unwrap();
        assert_eq!(errno(fs::rename(&from, &to)), Errno::XDEV);
        assert_eq!(errno(fs::hard_link(&from, &to)), Errno::XDEV);
        fs::rename(&from, s.path("out/c.jpg")).unwrap();
        assert!(!has_secret(&fs::read(s.path("out/c.jpg")).unwrap()));
        // A copy contains only what the caller may read.
        fs::copy(s.path("out/c.jpg"), &to).unwrap();
        assert!(!has_secret(&fs::read(&to).unwrap()));
        fs::create_dir(s.path("out/dir")).unwrap();
        assert_eq!(errno(fs::rename(s.path("out/dir"), s.path("private/2001/dir"))), Errno::XDEV);
    });
    // A user without rules may rename, and the rules of the new name apply from then on.
    User::new(OWNER).run(|| {
        fs::write(s.path("out/new.tmp"), picture()).unwrap();
        fs::rename(s.path("out/new.tmp"), s.path("out/new.jpg")).unwrap();
        assert!(has_secret(&fs::read(s.path("out/new.jpg")).unwrap()));
    });
    User::new(GUEST).run(|| assert!(!has_secret(&fs::read(s.path("out/new.jpg")).unwrap())));
}

#[test]
fn a_file_that_changes_under_its_reader_stays_redacted() {
    let Some((_rules, s)) = fixture(RULES, &[]) else { return };
    let (end, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    // A leading segment moves the secret back and forth.
    let plain = picture();
    let mut moved = plain[..2].to_vec();
    moved.extend([0xff, 0xfe, 0x10, 0]);
    moved.resize(2 + 2 + 0x1000, b'.');
    moved.extend(&plain[2..]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(2) {
                for bytes in [&moved, &plain] {
                    fs::write(s.lower("next"), bytes).unwrap();
                    fs::rename(s.lower("next"), s.lower("a.jpg")).unwrap();
                    fs::write(s.lower("out/b.jpg"), bytes).unwrap();
                    // Content just written is not shown yet; once at rest it is shown, until the next write.
                    std::thread::sleep(Duration::from_millis(80));
                }
            }
            end.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            User::new(GUEST).run(|| {
                while !end.load(Ordering::Relaxed) {
                    for name in ["a.jpg", "out/b.jpg"] {
                        let Ok(bytes) = fs::read(s.path(name)) else { continue };
                        assert!(!has_secret(&bytes), "{name}");
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        });
    });
    assert!(looks.load(Ordering::Relaxed) > 10);
}

#[test]
fn file_that_becomes_a_picture_while_open_is_redacted() {
    let Some((_rules, s)) = fixture(RULES, &[]) else { return };
    for (name, before) in [("empty.jpg", &b""[..]), ("text.jpg", b"a few words")] {
        fs::write(s.lower(name), before).unwrap();
        fs::set_permissions(s.lower(name), fs::Permissions::from_mode(0o666)).unwrap();
        let (reader, both) = User::new(GUEST).run(|| {
            let reader = File::open(s.path(name)).unwrap();
            let both = File::options().read(true).write(true).open(s.path(name)).unwrap();
            // The guest may change the file as long as it is not a picture.
            both.write_all_at(b"A few", 0).unwrap();
            assert!(fs::read(s.path(name)).unwrap().starts_with(b"A few"), "{name}");
            fs::write(s.path(name), b"all anew").unwrap();
            assert_eq!(fs::read(s.path(name)).unwrap(), b"all anew", "{name}");
            (reader, both)
        });
        fs::write(s.path(name), picture()).unwrap();
        for (way, file) in [("reader", &reader), ("both", &both)] {
            let mut bytes = vec![0; SIZE];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert!(!has_secret(&bytes) && bytes.starts_with(&picture()[..8]), "{name} {way}");
        }
        let map = Shared::read_only(&reader, SIZE).unwrap();
        let mapped: Vec<u8> = (0..SIZE).map(|at| map.peek(at)).collect();
        assert!(!has_secret(&mapped), "{name} mapped");
        let again = User::new(GUEST).run(|| File::options().write(true).open(s.path(name)).unwrap_err());
        assert_eq!(again.raw_os_error(), Some(libc::EACCES), "{name}");
        assert!(has_secret(&fs::read(s.lower(name)).unwrap()), "{name}");
    }
}

#[test]
fn file_without_writers_is_shown_at_once() {
    let Some((_rules, s)) = fixture(RULES, &[]) else { return };
    let blanked = |name: &str| {
        let began = Instant::now();
        let bytes = User::new(GUEST).run(|| fs::read(s.path(name)).unwrap());
        assert!(bytes.len() == SIZE && !has_secret(&bytes), "{name}");
        began.elapsed()
    };
    let mut quickest = Duration::MAX;
    for _ in 0..10 {
        fs::write(s.lower("a.jpg"), picture()).unwrap();
        quickest = quickest.min(blanked("a.jpg"));
    }
    assert!(quickest < pace::limit(Duration::from_millis(40)), "{quickest:?} after it was written");
    // A file that is open for writing has to be at rest.
    let writer = File::options().write(true).open(s.lower("a.jpg")).unwrap();
    writer.write_all_at(&picture(), 0).unwrap();
    let waited = blanked("a.jpg");
    assert!(waited >= Duration::from_millis(40), "{waited:?} with a writer");
    drop(writer);
    // Writers make progress during continuous reads, in the mount and in the source.
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                User::new(GUEST).run(|| {
                    while !end.load(Ordering::Relaxed) {
                        if let Ok(bytes) = fs::read(s.path("a.jpg")) {
                            assert!(!has_secret(&bytes));
                        }
                    }
                });
            });
        }
        let began = Instant::now();
        for place in [s.lower("a.jpg"), s.path("a.jpg")] {
            for _ in 0..20 {
                fs::write(&place, picture()).unwrap();
            }
        }
        let took = began.elapsed();
        end.store(true, Ordering::Relaxed);
        assert!(took < pace::seconds(10), "{took:?} for 40 writes beside readers");
    });
}

#[test]
fn rules_are_read_again() {
    let Some((rules, s)) = fixture(RULES, &["--cache", "exclusive"]) else { return };
    let sees = |user: u32| User::new(user).run(|| has_secret(&fs::read(s.path("a.jpg")).unwrap()));
    let file = rules.path().join("policy.toml");
    assert!(sees(OWNER) && !sees(GUEST));
    fs::write(&file, RULES.replace("uid = 2001\naction = \"redact\"", "uid = 2000\naction = \"redact\""))
        .unwrap();
    assert!(within(Duration::from_secs(5), || sees(GUEST) && !sees(OWNER)), "by itself");
    // An invalid policy changes nothing.
    fs::write(&file, "[[rule]]\npath = 5").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(sees(GUEST) && !sees(OWNER));
    fs::write(&file, RULES).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(s.pid() as i32).unwrap(),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    assert!(within(Duration::from_millis(900), || sees(OWNER) && !sees(GUEST)), "on SIGHUP");
    fs::write(&file, "default = \"allow\"\n").unwrap();
    assert!(within(Duration::from_secs(5), || sees(OWNER) && sees(GUEST)), "without rules, on purpose");
}

#[test]
fn decisions_are_told_where_rules_want_it() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit");
    let rules = RULES.replace("name = \"pictures\"", "name = \"pictures\"\naudit = true");
    let Some((_rules, s)) = fixture(&rules, &["--audit-log", log.to_str().unwrap()]) else { return };
    User::new(OWNER).run(|| fs::read(s.path("out/b.jpg")).unwrap());
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    User::new(GUEST).run(|| fs::read(s.path("out/b.jpg")).unwrap());
    let text = fs::read_to_string(&log).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    for (key, value) in [("rule", "pictures"), ("op", "read"), ("outcome", "redact"), ("path", "/out/b.jpg")]
    {
        assert_eq!(line[key], value, "{text}");
    }
    assert_eq!(line["uid"], GUEST);
}

#[test]
fn groups_and_programs_are_known() {
    let program = std::env::current_exe().unwrap();
    let rules = format!(
        "[[rule]]\npath = \"/out/**\"\ngroup = 3000\naction = \"deny\"\n\
         [[rule]]\npath = \"/a.jpg\"\nexcept = {{ exe = {program:?} }}\nuid = {GUEST}\naction = \"deny\"\n"
    );
    let Some((_rules, s)) = fixture(&rules, &[]) else { return };
    let open = |user: User| user.run(|| File::open(s.path("out/b.jpg")).is_ok());
    assert!(
        open(User::new(GUEST))
            && !open(User::new(GUEST).groups(&[1, 3000]))
            && !open(User::new(GUEST).gid(3000))
    );
    User::new(GUEST).run(|| {
        assert!(File::open(s.path("a.jpg")).is_ok());
        let cat = std::process::Command::new("cat").arg(s.path("a.jpg")).output().unwrap();
        assert!(!cat.status.success() && cat.stdout.is_empty());
    });
}

#[test]
fn unrestricted_files_cost_no_checks() {
    let Some((_rules, s)) = fixture(RULES, &["--cache", "exclusive"]) else { return };
    let asked = || {
        let stat = shunt_test_support::run(
            std::process::Command::new(shunt_tests::binary::shunt()).args(["stat", "--json"]).arg(s.mnt()),
        )
        .ok();
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        let of = |name: &str| stat["requests"][name]["count"].as_u64().unwrap_or(0);
        of("lookup") + of("read") + of("write") + of("getattr")
    };
    let file = s.path("out/plain");
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let work = || {
        for _ in 0..20 {
            assert_eq!(fs::read(&file).unwrap().len(), 1 << 20);
        }
    };
    work();
    let before = asked();
    work();
    let more = asked() - before;
    assert!(more <= 20, "{more} requests beyond opens and releases for 20 reads of a file without rules");
}

#[test]
fn the_command_checks_and_explains() {
    let shunt = |args: &[&str]| shunt_test_support::run(&mut shunt_tests::binary::command(args));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/policies");
    let mut checked = 0;
    for example in fs::read_dir(&dir).unwrap() {
        shunt(&["policy", "check", example.unwrap().path().to_str().unwrap()]).ok();
        checked += 1;
    }
    assert!(checked >= 3);
    let storage = dir.join("shared-storage.toml");
    let path = "/Android/data/com.example.chat/x";
    let output = shunt(&["policy", "explain", "--uid", "10101", storage.to_str().unwrap(), path]).ok();
    assert!(output.starts_with("hide, by line 14, folders of others"), "{output}");
    let place = tempfile::tempdir().unwrap();
    let wrong = place.path().join("wrong.toml");
    fs::write(&wrong, "[[rule]]\npath = \"/a\"\naction = \"alow\"\n").unwrap();
    let output = shunt(&["policy", "check", wrong.to_str().unwrap()]).fails();
    assert!(output.contains("line 3, column 10: unknown action `alow`"), "{output}");
}
