//! Third-party test suites: pjdfstest for semantics, fsx for data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use shunt_test_support::{requirement, tools};
use shunt_tests::pjdfstest::{ALL_CASES, Pjdfstest};
use shunt_tests::{Lower, Plan, fixture};

/// Returns the names in `pjdfstest.exclude`.
///
/// # Panics
/// If a line gives no reason.
fn excluded() -> Vec<String> {
    include_str!("../../pjdfstest.exclude")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| match line.split_once(char::is_whitespace) {
            Some((name, reason)) if !reason.trim().is_empty() => name.to_owned(),
            _ => panic!("no reason given: {line}"),
        })
        .collect()
}

fn pjdfstest(plan: Plan) {
    let tool = tools::tool("pjdfstest");
    requirement!(tool.is_some(), "no pjdfstest (run tests/setup)");
    let tool = tool.unwrap();
    fixture::perform(plan.patience(180), |s| {
        fs::set_permissions(s.src(), fs::Permissions::from_mode(0o777)).unwrap();
        let failures = if s.mounted() { excluded() } else { Vec::new() };
        let suite = |remount| Pjdfstest {
            tool: &tool,
            aside: s.aside(),
            elsewhere: if s.on() == Lower::Tmpfs { "/var/tmp" } else { "/dev/shm" },
            expected_failures: &failures,
            remount,
        };
        assert!(suite(false).run(s.mnt(), &[]) >= ALL_CASES, "the suite did not really run");
        // Remounting read-only requires a mount of the test's own; in a native run it would affect the machine. It runs
        // separately, because in a full run the suite itself keeps a removed file open, which prevents the remount of any file
        // system.
        if s.mounted() {
            assert!(suite(true).run(s.mnt(), &["erofs"]) >= 13);
        }
    });
}

#[test]
fn pjdfstest_on_tmpfs() {
    pjdfstest(Plan::tmpfs());
}

#[test]
fn pjdfstest_on_ext4() {
    pjdfstest(Plan::ext4());
}

#[test]
fn pjdfstest_without_caches() {
    pjdfstest(Plan::daemon().args(&["--cache", "none"]));
}

fn fsx(plan: Plan, operations: u32) {
    fixture::perform(plan.patience(120), |s| shunt_tests::fsx::run(s.mnt(), s.aside(), operations, &[]));
}

#[test]
fn fsx_on_tmpfs() {
    fsx(Plan::tmpfs(), 20_000);
}

#[test]
fn fsx_on_ext4() {
    fsx(Plan::ext4(), 3000);
}

#[test]
fn fsx_through_the_daemon() {
    fsx(Plan::daemon(), 10_000);
}

#[test]
fn fsx_through_the_daemon_without_caches() {
    fsx(Plan::daemon().args(&["--cache", "none"]), 5000);
}
