//! Suites that others wrote: pjdfstest for the rules, fsx for the data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use shunt_tests::{Lower, Plan, Stage, binary, requirement, run_for, stage};

/// Names in `pjdfstest.exclude`.
///
/// # Panics
/// When a line gives no reason.
fn excluded() -> Vec<String> {
    include_str!("../pjdfstest.exclude")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| match line.split_once(char::is_whitespace) {
            Some((name, reason)) if !reason.trim().is_empty() => name.to_owned(),
            _ => panic!("no reason given: {line}"),
        })
        .collect()
}

fn pjdfstest(plan: Plan) {
    let tool = binary::tool("pjdfstest");
    requirement!(tool.is_some(), "no pjdfstest (run tests/setup)");
    let tool = tool.unwrap();
    stage::perform(plan.patience(180), |s| {
        fs::set_permissions(s.src(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(cases(s, &tool, &[], false) >= 380, "the suite did not really run");
        // Remounting read-only is for a mount of our own; in a native run it would be the machine's. It has a run of its
        // own, because in a full one the suite itself keeps a removed file open, and no file system can be remounted so.
        if s.mounted() {
            assert!(cases(s, &tool, &["erofs"], true) >= 13);
        }
    });
}

/// Runs the cases that match; gives how many passed.
fn cases(s: &Stage, tool: &Path, patterns: &[&str], remount: bool) -> u32 {
    // A directory of another file system, for the cases about EXDEV.
    let elsewhere = if s.on() == Lower::Tmpfs { "/var/tmp" } else { "/dev/shm" };
    let failures = if s.mounted() { excluded() } else { Vec::new() };
    let config = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         stat_st_birthtime = {{}}\n\
         [settings]\nnaptime = 0.02\nallow_remount = {remount}\nexpected_failures = {failures:?}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    let file = s.aside().join("pjdfstest.toml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(tool);
    command.arg("-c").arg(file).arg("-p").arg(s.mnt()).args(["-s", elsewhere, "--"]).args(patterns);
    let ran = run_for(120, &mut command);
    let said: Vec<_> = ran.out.lines().collect();
    let summary = said.iter().rev().find(|l| l.contains("passed")).copied().unwrap_or("no summary");
    // A case that is not fine is followed by an indented line that says why.
    let bad: Vec<_> =
        said.windows(2).filter(|w| w[1].starts_with('\t') && !w[0].ends_with("skipped")).collect();
    assert!(ran.success() && summary.contains("Summary: 0 failed"), "{summary}\n{bad:#?}\n{}", ran.err);
    println!("{summary}");
    summary.split(", ").find_map(|p| p.strip_suffix(" passed")?.parse().ok()).unwrap_or(0)
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
    stage::perform(plan.patience(120), |s| shunt_tests::fsx::run(s.mnt(), s.aside(), operations, &[]));
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
