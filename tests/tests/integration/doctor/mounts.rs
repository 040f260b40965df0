//! Dead mounts, daemons that do not reply, and sockets of dead daemons.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, run, run_for};
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::{binary, mounts, unprivileged};

use super::report::Report;

/// Runs a remedy as a user would: the first command of it.
fn apply(fix: &str, doctor: &Command) {
    let program = binary::shunt();
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-euc", fix]);
    for (name, value) in doctor.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    run_for(30, shell.env("PATH", path)).ok();
}

/// Kills the daemon of a mount and its guardian, and asserts that the mount is found dead and can be removed.
fn find_dead(mnt: &Path, pid: u32, doctor: &dyn Fn() -> Command) {
    let path = mnt.to_str().unwrap();
    Report::of(&mut doctor()).has("mounts.daemon", "ok", &format!("{path}: the daemon replies"));
    mounts::end(pid);
    assert!(within(Duration::from_secs(10), || !mounts::alive(pid)));
    let report = Report::of(&mut doctor());
    let fix = report.has("mounts.dead", "error", &format!("{path}: the mount is dead"));
    assert_eq!(report.code, 1);
    apply(fix, &doctor());
    assert_eq!(mounts::count(mnt), 0);
    assert!(Report::of(&mut doctor()).find("mounts.dead", path).is_none());
}

/// Stops the daemon of a mount, and asserts that this is found and can be fixed.
fn find_stopped(mnt: &Path, pid: u32, doctor: &dyn Fn() -> Command) {
    let path = mnt.to_str().unwrap();
    mounts::stop(pid);
    let report = Report::of(&mut doctor());
    let fix = report.find("mounts.daemon", path).and_then(|finding| finding["fix"].as_str());
    let fix = fix.map(str::to_owned);
    mounts::signal(pid, Signal::CONT);
    report.has("mounts.daemon", "error", &format!("{path}: the daemon does not reply"));
    assert_eq!(report.code, 1);
    let fix = fix.unwrap();
    let (command, otherwise) = fix.split_once(" if it is stopped; else ").expect("two remedies");
    assert_eq!(command, format!("kill -CONT {pid}"));
    assert!(otherwise.starts_with("shunt umount --force "), "{fix}");
    Report::of(&mut doctor()).has("mounts.daemon", "ok", path);
}

#[test]
fn dead_and_stopped_daemons_are_found() {
    needs_mount!();
    perform(Plan::tmpfs(), |mirror| {
        let doctor = || binary::command(&["doctor", "--json"]);
        find_stopped(mirror.mnt(), mirror.pid(), &doctor);
        find_dead(mirror.mnt(), mirror.pid(), &doctor);
    });
}

#[test]
fn dead_and_stopped_daemons_are_found_by_their_users() {
    needs_mount!();
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        run_for(20, shunt(&["mirror", "--daemon"]).arg(s.src()).arg(s.mnt())).ok();
        let doctor = || shunt(&["doctor", "--json"]);
        let pid = s.server().expect("a daemon");
        find_stopped(s.mnt(), pid, &doctor);
        find_dead(s.mnt(), pid, &doctor);
    });
}

#[test]
fn stale_sockets_are_found_and_kept() {
    needs_mount!();
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        let dir = s.aside().join("shunt");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let socket = dir.join("0:99999-7.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let report = Report::of(&mut shunt(&["doctor", "--json"]));
        let fix = report.has("mounts.stale_socket", "warning", socket.to_str().unwrap());
        assert!(socket.exists());
        apply(fix, &shunt(&[]));
        assert!(!socket.exists());
        let report = Report::of(&mut shunt(&["doctor", "--json"]));
        assert!(report.find("mounts.stale_socket", socket.to_str().unwrap()).is_none());
    });
}

/// The cache directory is below a mount that waits for another one: its daemon has read the request and cannot answer it, so a
/// process that waits for it cannot even be killed.
#[test]
fn a_cache_on_a_mount_that_does_not_answer_delays_nobody() {
    needs_mount!();
    perform(Plan::daemon().args(&["--cache", "none"]), |lower| {
        let mnt = lower.aside().join("upper");
        std::fs::create_dir(&mnt).unwrap();
        let mut mount = binary::command(&["mirror", "--daemon", "--cache", "none"]);
        run_for(20, mount.arg(lower.mnt()).arg(&mnt)).ok();
        mounts::stop(lower.pid());
        let mut doctor = binary::command(&["doctor", "--json"]);
        let ran = run_for(20, doctor.env("XDG_CACHE_HOME", mnt.join("cache")));
        mounts::signal(lower.pid(), Signal::CONT);
        let umount = shunt_test_support::patiently(|| run(binary::command(&["umount"]).arg(&mnt)));
        assert!(ran.status.is_some(), "it did not end: {ran:?}");
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let cause = "cache/shunt/volumes: its file system does not answer";
        assert!(findings.iter().any(|f| f["message"].as_str().unwrap().contains(cause)), "{report:#}");
        umount.ok();
    });
}
