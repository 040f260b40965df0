//! `shunt upgrade` to suitable and unsuitable programs.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{Ran, copy_program, needs_mount, pace, run_for};
use shunt_tests::{Fixture, Plan, binary, fixture, mounts};

fn plan() -> Plan {
    Plan::tmpfs().args(&["--transport", "dev"])
}

/// Returns an unsuitable program, next to a suitable `shunt`.
fn unsuitable(s: &Fixture, name: &str) -> PathBuf {
    let fit = s.aside().join("shunt");
    if !fit.exists() {
        symlink(binary::shunt(), fit).unwrap();
    }
    let path = s.aside().join(name);
    copy_program(env!("CARGO_BIN_EXE_unsuitable_successor"), &path);
    path
}

fn upgrade(s: &Fixture, to: &Path) -> Ran {
    run_for(40, binary::command(&["upgrade", "--json", "--binary"]).arg(to).arg(s.mnt()))
}

fn code(ran: &Ran) -> Option<i32> {
    ran.status.and_then(|status| status.code())
}

/// Checks that an open file keeps working, and lookups succeed.
struct Open(File);

impl Open {
    fn new(s: &Fixture) -> Self {
        Self(File::create(s.path("open")).unwrap())
    }

    fn works(&mut self, s: &Fixture) {
        self.0.write_all(b"x").expect("write to what is open");
        let length = self.0.metadata().expect("fstat").len();
        assert_eq!(fs::metadata(s.path("open")).expect("stat").len(), length);
    }
}

#[test]
fn another_file_of_the_program_goes_on() {
    needs_mount!();
    fixture::perform(plan(), |s| {
        let mut open = Open::new(s);
        let copy = s.aside().join("copy");
        copy_program(binary::shunt(), &copy);
        for number in 1..=3 {
            let before = s.server().unwrap();
            let report: Value = serde_json::from_str(&upgrade(s, &copy).ok()).unwrap();
            assert_eq!(report["takeovers"], number);
            assert_eq!(report["old_pid"], before);
            assert_eq!(report["pid"], s.server().unwrap());
            assert!(report["pause_ms"].as_f64().unwrap() > 0.0);
            assert_eq!(s.stat()["takeover"]["cause"], "upgrade");
            let runs = fs::read_link(format!("/proc/{}/exe", report["pid"])).unwrap();
            assert_eq!(runs, copy, "what runs is the new program");
            open.works(s);
        }
        // After a kill, the successor runs the same program.
        let pid = s.server().unwrap();
        // A program that has run for less than ten seconds is on trial: one crash is tolerated.
        mounts::signal(pid, rustix::process::Signal::KILL);
        assert!(within(Duration::from_secs(10), || s.server().is_some_and(|now| now != pid)));
        open.works(s);
        let now = s.server().unwrap();
        assert_eq!(fs::read_link(format!("/proc/{now}/exe")).unwrap(), copy);
        let output = run_for(20, binary::command(&["upgrade"]).arg(s.mnt())).ok();
        assert!(output.contains("pause") && output.contains("is served by version"), "{output}");
        open.works(s);
    });
}

#[test]
fn unsuitable_successor_changes_nothing() {
    needs_mount!();
    fixture::perform(plan(), |s| {
        let mut open = Open::new(s);
        let before = s.server();
        let text = s.aside().join("text");
        fs::write(&text, "no program").unwrap();
        let garbage = s.aside().join("garbage");
        fs::write(&garbage, [7; 5000]).unwrap();
        fs::set_permissions(&garbage, fs::Permissions::from_mode(0o755)).unwrap();
        let inside = s.path("inside");
        copy_program(binary::shunt(), &inside);
        for (program, word) in [
            (s.aside().join("nowhere"), "no such file"),
            (s.aside().to_owned(), "not a file"),
            (text, "permission denied"),
            (garbage, "exec format"),
            ("/bin/true".into(), "not a shunt binary"),
            ("/bin/cat".into(), "does not accept the options"),
            (inside, "in the mount itself"),
            (unsuitable(s, "other"), "version 4294967295 of takeover"),
            (unsuitable(s, "chatty"), "not a shunt binary"),
            (unsuitable(s, "mute"), "printed nothing"),
        ] {
            let ran = upgrade(s, &program);
            assert_eq!(code(&ran), Some(1), "{}: {}", program.display(), ran.err);
            one_line(&ran.err, word);
            assert_eq!(s.server(), before, "{}", program.display());
            open.works(s);
        }
        assert_eq!(s.stat()["takeovers"], 0);
    });
}

#[test]
fn a_program_that_does_not_get_to_serve_is_left_for_the_old_one() {
    needs_mount!();
    for name in ["fails", "hangs"] {
        fixture::perform(plan(), |s| {
            let mut open = Open::new(s);
            let old = fs::read_link(format!("/proc/{}/exe", s.server().unwrap())).unwrap();
            let start = Instant::now();
            let ran = upgrade(s, &unsuitable(s, name));
            assert_eq!(code(&ran), Some(1), "{}", ran.err);
            one_line(&ran.err, "did not take over");
            assert!(
                name == "hangs" || start.elapsed() < shunt_test_support::pace::limit(Duration::from_secs(2))
            );
            let stat = s.stat();
            assert_eq!(
                (&stat["takeovers"], &stat["takeover"]["cause"]),
                (&2.into(), &"failed upgrade".into())
            );
            assert_eq!(fs::read_link(format!("/proc/{}/exe", s.server().unwrap())).unwrap(), old);
            open.works(s);
        });
    }
}

#[test]
fn a_program_that_ends_soon_is_left_for_the_old_one() {
    needs_mount!();
    fixture::perform(plan(), |s| {
        let mut open = Open::new(s);
        // A slow command sees the old program again already.
        let ran = upgrade(s, &unsuitable(s, "short-lived"));
        let is_late = || ran.err.contains("did not take over") && pace::programs_start_slowly();
        assert!(ran.success() || is_late(), "{ran:?}");
        let stat = || run_for(20, binary::command(&["stat", "--json"]).arg(s.mnt())).out;
        assert!(within(Duration::from_secs(10), || {
            open.works(s);
            stat().contains("failed upgrade")
        }));
        let serves = s.server();
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(s.server(), serves, "the old program stays");
        open.works(s);
    });
}

#[test]
fn where_nothing_can_take_over_it_is_said_before() {
    needs_mount!();
    let transport = if shunt_test_support::rings::over_rings() { "uring" } else { "dev" };
    let cases = [(["--takeover", "off"], "--takeover off"), (["--transport", transport], "io_uring")];
    for (args, word) in cases.into_iter().filter(|(args, _)| args[1] != "dev") {
        fixture::perform(Plan::tmpfs().args(&args), |s| {
            let pid = s.server();
            let ran = upgrade(s, &binary::shunt());
            assert_eq!(code(&ran), Some(1));
            one_line(&ran.err, word);
            assert_eq!(s.server(), pid);
            assert!(s.stat()["no_takeover"].as_str().unwrap().contains(word));
        });
    }
    let ran = run_for(20, &mut binary::command(&["upgrade", "/proc"]));
    assert_eq!(code(&ran), Some(3));
    one_line(&ran.err, "/proc");
}

/// After an upgrade, a foreground mount continues in the background.
#[test]
fn a_mount_in_the_foreground() {
    needs_mount!();
    fixture::perform(plan().unmounted(), |s| {
        let mut child = crate::takeover::edge_cases::in_the_foreground(s);
        let mut open = Open::new(s);
        let report: Value = serde_json::from_str(&upgrade(s, &binary::shunt()).ok()).unwrap();
        assert_eq!(report["old_pid"], child.id());
        assert!(child.wait().unwrap().success(), "it ends well");
        open.works(s);
        mounts::signal(s.server().unwrap(), rustix::process::Signal::KILL);
        open.works(s);
        drop(open);
        s.umount().ok();
        assert!(s.ends_within(Duration::from_secs(5)));
    });
}
