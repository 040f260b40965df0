//! Daemons of images are killed, and their mounts go on.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, requirement, run_for};
use shunt_tests::image::Mount;
use shunt_tests::sys::Shared;
use shunt_tests::{Image, binary};

use super::{End, Subject, kill, withstand};

impl Subject for Mount {
    fn mnt(&self) -> &Path {
        self.at()
    }

    fn lower(&self, name: &str) -> PathBuf {
        self.at().join(name)
    }

    fn server(&self) -> Option<u32> {
        self.server()
    }
}

const OPTIONS: [&str; 4] = ["--crashes", "1000000", "--transport", "dev"];

pub fn stand(name: &str, mkfs: &[&str], kills: usize) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(mkfs, 256).unwrap();
    let mount = image.by_shunt(&OPTIONS);
    withstand(name, &mount, kills, End::Killed);
    assert_eq!(mount.stat()["no_takeover"], Value::Null);
    assert!(mount.umount().success());
    image.check();
}

/// Open files of every kind keep working, and what was answered is there, although nothing was committed.
#[test]
fn what_was_answered_is_kept() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 64).unwrap();
    // No commit by age during the test.
    let mount = image.by_shunt(&[&OPTIONS[..], &["-o", "commit=3600"]].concat());
    let at = |name: &str| mount.at().join(name);
    let free = || rustix::fs::statvfs(mount.at()).unwrap().f_bfree;
    let commits = || mount.stat()["ext4"]["commits"].as_u64().unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), "content").unwrap();
    let mut writer = File::options().read(true).write(true).create_new(true).open(at("open")).unwrap();
    writer.write_all(b"before, ").unwrap();
    let deleted = File::options().read(true).write(true).create_new(true).open(at("deleted")).unwrap();
    deleted.write_all_at(&[7; 100_000], 0).unwrap();
    fs::remove_file(at("deleted")).unwrap();
    let mapped = File::options().read(true).write(true).create_new(true).open(at("mapped")).unwrap();
    mapped.set_len(4096).unwrap();
    let mut mapping = Shared::new(&mapped, 4096).unwrap();
    drop(mapped);
    assert_eq!(commits(), 0, "the test needs changes that are not committed");
    for round in 0..3u8 {
        mapping[usize::from(round)] = b'a' + round;
        kill(&mount);
        assert_eq!(fs::read(at("d/f")).unwrap(), b"content");
        assert_eq!(fs::metadata(at("deleted")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        let mut found = vec![0; 100_000];
        deleted.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().skip(1).all(|byte| *byte == 7), "a deleted file that is open");
        assert_eq!(deleted.metadata().unwrap().nlink(), 0);
        deleted.write_all_at(&[round], 0).unwrap();
        writer.write_all(b"after ").unwrap();
        fs::rename(at("d/f"), at("d/g")).unwrap();
        fs::rename(at("d/g"), at("d/f")).unwrap();
    }
    assert_eq!(fs::read(at("open")).unwrap(), b"before, after after after ");
    assert_eq!(&fs::read(at("mapped")).unwrap()[..3], b"abc");
    let before = free();
    drop(deleted);
    assert!(within(Duration::from_secs(5), || free() > before), "the deleted file was not freed");
    drop((writer, mapping));
    assert!(mount.umount().success());
    image.check();
}

/// A sandboxed daemon is upgraded to what is installed at the path of its program, and to nothing else.
#[test]
fn upgrades_in_place() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 64).unwrap();
    let program = image.aside().join("shunt");
    let install = |new: &Path| {
        let copy = image.aside().join("new");
        fs::copy(new, &copy).unwrap();
        fs::rename(copy, &program).unwrap();
    };
    install(&binary::shunt());
    let mount = image.by_shunt_already();
    let mut command = Command::new(&program);
    command.args(["ext4", "--daemon"]).args(OPTIONS).arg(image.path()).arg(mount.at());
    run_for(20, &mut command).ok();
    let file = File::create_new(mount.at().join("file")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    let upgrade = |program: &Path| {
        run_for(60, binary::command(&["upgrade", "--json", "--binary"]).arg(program).arg(mount.at()))
    };
    let refused = upgrade(&binary::shunt()).fails();
    assert!(refused.contains("sandboxed") && refused.contains(program.to_str().unwrap()), "{refused}");
    let before = mount.server().unwrap();
    let exe = |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).unwrap().ino();
    install(&binary::shunt());
    let report: Value = serde_json::from_str(&upgrade(&program).ok()).unwrap();
    let after = mount.server().unwrap();
    assert_eq!((&report["old_pid"], &report["pid"]), (&Value::from(before), &Value::from(after)));
    assert_eq!(exe(after), fs::metadata(&program).unwrap().ino(), "the old program serves");
    assert_eq!(fs::read(mount.at().join("file")).unwrap(), b"before");
    file.write_all_at(b"beyond", 0).unwrap();
    // A program that does not serve is replaced by the last one that did.
    install(Path::new("/bin/false"));
    let failure = upgrade(&program).fails();
    assert!(failure.contains("did not take over"), "{failure}");
    assert_eq!(fs::read(mount.at().join("file")).unwrap(), b"beyond");
    drop(file);
    mount.umount().ok();
    image.check();
}
