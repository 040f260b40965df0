//! Suites that others wrote, on an image: pjdfstest for the rules, fsx for the data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use shunt_tests::{Image, binary, needs_mount, requirement, run_for};

fn rules(mkfs: &[&str]) {
    needs_mount!();
    let tool = binary::tool("pjdfstest");
    requirement!(tool.is_some(), "no pjdfstest (run tests/setup)");
    let image = Image::make(mkfs, 256).unwrap();
    let mount = image.by_shunt(&["-o", "suid,dev"]);
    fs::set_permissions(mount.at(), fs::Permissions::from_mode(0o777)).unwrap();
    let config = image.aside().join("pjdfstest.toml");
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
                stat_st_birthtime = {}\n[settings]\nnaptime = 0.02\nallow_remount = false\nexpected_failures = []\n\
                [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(&config, text).unwrap();
    let mut command = Command::new(tool.unwrap());
    command.arg("-c").arg(config).arg("-p").arg(mount.at()).args(["-s", "/dev/shm"]);
    let ran = run_for(180, &mut command);
    let summary = ran.out.lines().rev().find(|line| line.contains("passed")).unwrap_or("no summary");
    let passed = summary.split(", ").find_map(|part| part.strip_suffix(" passed")?.parse::<u32>().ok());
    assert!(ran.success() && summary.contains("Summary: 0 failed"), "{}\n{}", ran.out, ran.err);
    assert!(passed.is_some_and(|passed| passed >= 380), "the suite did not really run: {summary}");
    drop(mount);
    image.check();
}

#[test]
fn pjdfstest() {
    rules(&[]);
}

#[test]
fn pjdfstest_with_small_blocks() {
    rules(&["-b", "1024", "-O", "orphan_file"]);
}

fn data(mkfs: &[&str], without: &[&str]) {
    needs_mount!();
    let image = Image::make(mkfs, 64).unwrap();
    let mount = image.by_shunt(&[]);
    shunt_tests::fsx::run(mount.at(), image.aside(), 4000, without);
    drop(mount);
    image.check();
}

#[test]
fn fsx() {
    data(&[], &[]);
}

#[test]
fn fsx_with_small_blocks() {
    data(&["-b", "1024"], &[]);
}

#[test]
fn fsx_with_block_maps() {
    data(&["-t", "ext3", "-b", "1024"], &["posix_fallocate"]);
}
