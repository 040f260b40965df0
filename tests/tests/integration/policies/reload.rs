//! Reload of a policy: a changed file takes effect once it is complete, and only if no other user can have changed it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use shunt_test_support::cmd::within;
use shunt_test_support::{User, run};
use shunt_tests::Fixture;
use shunt_tests::binary::command;
use shunt_tests::geotagged_jpeg::has_secret;
use tempfile::TempDir;

use super::{GUEST, OWNER, RULES, fixture};

/// A mount with `RULES`, which blank the picture for the guest.
struct Mounted {
    place: TempDir,
    log: PathBuf,
    fixture: Fixture,
    _aside: TempDir,
}

impl Mounted {
    fn new() -> Option<Self> {
        let aside = tempfile::tempdir().unwrap();
        let log = aside.path().join("log");
        let (place, fixture) =
            fixture(RULES, &["--log-file", log.to_str().unwrap(), "--cache", "exclusive"])?;
        let mounted = Self { place, log, fixture, _aside: aside };
        assert!(mounted.shows(OWNER) && !mounted.shows(GUEST));
        Some(mounted)
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("policy.toml")
    }

    fn shows(&self, user: u32) -> bool {
        User::new(user).run(|| has_secret(&fs::read(self.fixture.path("a.jpg")).unwrap()))
    }

    fn logged(&self, what: &str) -> usize {
        fs::read_to_string(&self.log).unwrap_or_default().matches(what).count()
    }

    /// Asserts that after `change` the rules stay in force over several checks of the file, and one log line gives the reason.
    fn stays_after(&self, change: impl FnOnce(), why: &str) {
        // Counted first, because SIGHUP takes effect at once.
        let before = self.logged(why);
        change();
        assert!(within(Duration::from_secs(5), || self.logged(why) == before + 1), "no line: {why}");
        std::thread::sleep(Duration::from_millis(2200));
        assert_eq!(self.logged(why), before + 1, "told once: {why}");
        assert!(self.shows(OWNER) && !self.shows(GUEST), "{why}");
    }

    /// Replaces the file atomically, as careful editors do.
    fn replace(&self, text: &str) {
        let new = self.place.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the first rule alone, the one about files that only the owner may read.
fn first_rule() -> &'static str {
    &RULES[..RULES.match_indices("[[rule]]").nth(1).unwrap().0]
}

#[test]
fn a_file_without_rules_is_refused() {
    let Some(m) = Mounted::new() else { return };
    m.stays_after(|| fs::write(m.file(), "").unwrap(), "the policy has no rule");
    m.replace("# nothing yet\n");
    // Each reason is logged once, whichever file causes it.
    std::thread::sleep(Duration::from_millis(2200));
    assert!(!m.shows(GUEST));
    let demand = || kill_process(Pid::from_raw(m.fixture.pid() as i32).unwrap(), Signal::HUP).unwrap();
    m.stays_after(demand, "the policy has no rule");
    m.replace("default = \"allow\"\n");
    assert!(within(Duration::from_secs(5), || m.shows(GUEST)), "no rules, and said so");
}

#[test]
fn a_file_that_is_being_written_is_waited_for() {
    let Some(m) = Mounted::new() else { return };
    let mut writer = OpenOptions::new().write(true).open(m.file()).unwrap();
    let shorten = || {
        writer.set_len(0).unwrap();
        (&writer).write_all(first_rule().as_bytes()).unwrap();
    };
    m.stays_after(shorten, "is open for writing");
    writer.write_all("\n[[rule]]\npath = \"/nowhere\"\naction = \"deny\"\n".as_bytes()).unwrap();
    drop(writer);
    assert!(within(Duration::from_secs(5), || m.shows(GUEST)), "complete");
    assert_eq!(m.logged("WARN"), 2, "one for the writer, one for rules that are gone");
    assert_eq!(m.logged("2 rules in force, 5 before"), 1);
}

#[test]
fn a_file_that_others_can_change_is_refused() {
    let Some(m) = Mounted::new() else { return };
    let other = first_rule();
    let writable = || {
        fs::write(m.file(), other).unwrap();
        chmod(&m.file(), 0o666);
    };
    m.stays_after(writable, "others can write the policy");
    chmod(&m.file(), 0o644);
    m.replace(RULES);
    let replaceable = || {
        chmod(m.place.path(), 0o777);
        m.replace(other);
    };
    m.stays_after(replaceable, "others can replace the policy");
    m.replace(RULES);
    chmod(m.place.path(), 0o700);
    let given_away = || std::os::unix::fs::chown(m.file(), Some(GUEST), None).unwrap();
    m.stays_after(given_away, "the policy belongs to user 2001");
    m.replace(other);
    assert!(within(Duration::from_secs(5), || m.shows(GUEST)), "of root, and only root's to write");
}

#[test]
fn no_mount_begins_with_such_a_file() {
    let place = tempfile::tempdir().unwrap();
    let (file, source, mnt) =
        (place.path().join("policy.toml"), place.path().join("s"), place.path().join("m"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&mnt).unwrap();
    let refused = || {
        let paths = [&file, &source, &mnt].map(|path| path.to_str().unwrap().to_owned());
        run(&mut command(&["mirror", "--policy", &paths[0], &paths[1], &paths[2]])).fails()
    };
    fs::write(&file, "").unwrap();
    assert!(refused().contains("the policy has no rule"));
    fs::write(&file, RULES).unwrap();
    chmod(&file, 0o664);
    assert!(refused().contains("others can write the policy"));
    fs::remove_file(&file).unwrap();
    fs::write(&file, "default = \"deny\"").unwrap();
    assert!(refused().contains("line 1, column 11: `default` can only be \"allow\""));
}
