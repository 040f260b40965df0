//! Suites that others wrote, on an image: pjdfstest for the rules, fsx for the data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
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

/// Every operation that fsx knows.
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

fn data(mkfs: &[&str], without: &str) {
    needs_mount!();
    let tool = binary::tool("fsx");
    requirement!(tool.is_some(), "no fsx (run tests/setup)");
    let image = Image::make(mkfs, 64).unwrap();
    let mount = image.by_shunt(&[]);
    let config = image.aside().join("fsx.toml");
    let text: String = FSX
        .lines()
        .filter(|line| without.is_empty() || !line.starts_with(without))
        .fold(String::new(), |text, line| text + line + "\n");
    fs::write(&config, text).unwrap();
    for seed in 1..=3 {
        let file = mount.at().join(format!("file{seed}"));
        let mut command = Command::new(tool.as_deref().unwrap_or(Path::new("fsx")));
        command.args(["-S", &seed.to_string(), "-N", "4000", "-f"]).arg(&config);
        run_for(120, command.arg("-P").arg(image.aside()).arg(file)).ok();
    }
    drop(mount);
    image.check();
}

#[test]
fn fsx() {
    data(&[], "");
}

#[test]
fn fsx_with_small_blocks() {
    data(&["-b", "1024"], "");
}

#[test]
fn fsx_with_block_maps() {
    data(&["-t", "ext3", "-b", "1024"], "posix_fallocate");
}
