//! Third-party test suites, on an image.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use shunt_test_support::{needs_mount, requirement, tools};
use shunt_tests::Image;
use shunt_tests::pjdfstest::{ALL_CASES, Pjdfstest};

fn run_pjdfstest(mkfs: &[&str]) {
    needs_mount!();
    let tool = tools::tool("pjdfstest");
    requirement!(tool.is_some(), "no pjdfstest (run tests/setup)");
    let image = Image::make(mkfs, 256).unwrap();
    let mount = image.by_shunt(&["-o", "suid,dev"]);
    fs::set_permissions(mount.at(), fs::Permissions::from_mode(0o777)).unwrap();
    let suite = Pjdfstest {
        tool: &tool.unwrap(),
        aside: image.aside(),
        elsewhere: "/dev/shm",
        expected_failures: &[],
        remount: false,
    };
    assert!(suite.run(mount.at(), &[]) >= ALL_CASES, "the suite did not really run");
    drop(mount);
    image.check();
}

#[test]
fn pjdfstest() {
    run_pjdfstest(&[]);
}

#[test]
fn pjdfstest_with_small_blocks() {
    run_pjdfstest(&["-b", "1024", "-O", "orphan_file"]);
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
