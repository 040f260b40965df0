//! Suites that others wrote: pjdfstest for the rules, fsx for the data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use shunt_tests::{Plan, binary, requirement, run_for, stage};

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
    stage::perform(plan.patience(180), |s| {
        // A directory of another file system, for the cases about EXDEV.
        let elsewhere =
            if s.on() == shunt_tests::Lower::Tmpfs { Path::new("/var/tmp") } else { Path::new("/dev/shm") };
        let failures: Vec<_> = if s.mounted() { excluded() } else { Vec::new() };
        // Remounting read-only is for a mount of our own; in a native run it would be the machine's.
        let config = format!(
            "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
             stat_st_birthtime = {{}}\nsecondary_fs = {elsewhere:?}\n\
             [settings]\nnaptime = 0.02\nallow_remount = {}\nexpected_failures = {failures:?}\n\
             [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n",
            s.mounted()
        );
        let file = s.aside().join("pjdfstest.toml");
        fs::write(&file, config).unwrap();
        fs::set_permissions(s.src(), fs::Permissions::from_mode(0o777)).unwrap();
        let ran = run_for(170, Command::new(tool.unwrap()).arg("-c").arg(file).arg("-p").arg(s.mnt()));
        let said: Vec<_> = ran.out.lines().collect();
        let summary = said.iter().rev().find(|l| l.contains("passed")).copied().unwrap_or("no summary");
        let bad: Vec<_> = said
            .iter()
            .enumerate()
            .filter(|(_, l)| l.contains(" FAILED") || l.contains(" failed") || l.contains("success"))
            .flat_map(|(n, _)| said[n..(n + 3).min(said.len())].iter())
            .collect();
        assert!(ran.success() && summary.contains("Summary: 0 failed"), "{summary}\n{bad:#?}\n{}", ran.err);
        let passed = summary.split(", ").find_map(|p| p.strip_suffix(" passed")?.parse().ok()).unwrap_or(0);
        assert!(passed > 370, "{summary}: the suite did not really run");
        println!("{summary}");
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

/// Every operation that fsx knows, with a reason where one is left out.
const FSX: &str = "
flen = 1048576
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
truncate = 3
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 1
punch_hole = 1
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
";

fn fsx(plan: Plan, operations: u32) {
    let tool = binary::tool("fsx");
    requirement!(tool.is_some(), "no fsx (run tests/setup)");
    stage::perform(plan.patience(120), |s| {
        let config = s.aside().join("fsx.toml");
        fs::write(&config, FSX).unwrap();
        for seed in 1..=3 {
            let mut command = Command::new(tool.as_ref().unwrap());
            command.args(["-S", &seed.to_string(), "-N", &operations.to_string(), "-f"]).arg(&config);
            command.arg("-P").arg(s.aside()).arg(s.path(format!("file{seed}")));
            run_for(60, &mut command).ok();
        }
    });
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
