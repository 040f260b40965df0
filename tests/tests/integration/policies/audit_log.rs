//! Audit logs of policy decisions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use rustix::io::Errno;
use shunt_test_support::User;
use shunt_tests::geotagged_jpeg::picture;

use super::{GUEST, OWNER, RULES, fixture};

fn audited() -> String {
    RULES.replace("name = \"pictures\"", "name = \"pictures\"\naudit = true")
}

#[test]
fn the_log_of_the_process_has_the_lines_at_its_default_level() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let Some((_rules, s)) = fixture(&audited(), &["--log-file", log.to_str().unwrap()]) else { return };
    User::new(GUEST).run(|| fs::read(s.path("a.jpg")).unwrap());
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(r#""path":"/a.jpg""#), "{text}");
}

#[test]
fn operation_fails_if_audit_record_cannot_be_written() {
    // Writes to it fail with ENOSPC.
    let full = ["--audit-log", "/dev/full"];
    let Some((_rules, s)) = fixture(&audited(), &full) else { return };
    User::new(GUEST).run(|| fs::read(s.path("a.jpg")).unwrap());
    let required = [full[0], full[1], "--audit-required"];
    let Some((_rules, s)) = fixture(&audited(), &required) else { return };
    let error = User::new(GUEST).run(|| fs::read(s.path("a.jpg")).unwrap_err());
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    User::new(OWNER).run(|| fs::read(s.path("a.jpg")).unwrap());
}

#[test]
fn two_names_give_two_lines() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit");
    let Some((_rules, s)) = fixture(&audited(), &["--audit-log", log.to_str().unwrap()]) else { return };
    for name in [&b"\xfe.jpg"[..], b"\xff.jpg", b"\\xff.jpg"] {
        fs::write(s.lower(OsStr::from_bytes(name)), picture()).unwrap();
        User::new(GUEST).run(|| fs::read(s.path(OsStr::from_bytes(name))).unwrap());
    }
    let text = fs::read_to_string(&log).unwrap();
    let path = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].clone();
    let paths: Vec<_> = text.lines().map(path).collect();
    assert_eq!(paths, ["/\\xfe.jpg", "/\\xff.jpg", "/\\\\xff.jpg"]);
}

#[test]
fn deny_covers_where_a_link_leads() {
    let rules = format!("[[rule]]\npath = \"/out/link\"\nuid = {GUEST}\naction = \"deny\"\n");
    let Some((_rules, s)) = fixture(&rules, &["--cache", "exclusive"]) else { return };
    symlink("secret", s.lower("out/link")).unwrap();
    let read = |user| User::new(user).run(|| fs::read_link(s.path("out/link")));
    assert_eq!(read(OWNER).unwrap(), std::path::Path::new("secret"));
    assert_eq!(Errno::from_io_error(&read(GUEST).unwrap_err()), Some(Errno::ACCESS));
    assert_eq!(read(OWNER).unwrap(), std::path::Path::new("secret"));
}
