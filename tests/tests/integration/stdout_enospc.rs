//! Standard output and standard error on a full disk: the operation takes place, and the exit status reports the failed output.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, run_for};
use shunt_tests::{binary, mounts};

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn unmount(mnt: &Path) {
    run_for(20, binary::command(&["umount"]).arg(mnt)).ok();
    assert_eq!(mounts::count(mnt), 0);
}

#[test]
fn a_mount_in_the_background_serves() {
    needs_mount!();
    let dir = tempfile::tempdir().unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    fs::write(dir.path().join("file"), b"content").unwrap();
    let mut command = binary::command(&["mirror", "--daemon"]);
    let status = command.arg(dir.path()).arg(&mnt).stdout(full()).stderr(full()).status().unwrap();
    assert!(status.success() && fs::read(mnt.join("file")).unwrap() == b"content", "{status}");
    unmount(&mnt);
}

/// The daemon logs a line for each request, which cannot be written.
#[test]
fn a_mount_in_the_foreground_serves_with_all_messages() {
    needs_mount!();
    let dir = tempfile::tempdir().unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    fs::write(dir.path().join("file"), b"content").unwrap();
    let mut command = binary::command(&["mirror", "-vvv"]);
    let mut daemon = command.arg(dir.path()).arg(&mnt).stdout(full()).stderr(full()).spawn().unwrap();
    let shown = || fs::read(mnt.join("file")).is_ok_and(|content| content == b"content");
    let served = within(Duration::from_secs(10), shown) && (0..20).all(|_| fs::read_dir(&mnt).is_ok());
    unmount(&mnt);
    assert!(daemon.wait().unwrap().success() && served);
}

#[test]
fn failed_write_to_stdout_is_a_failure() {
    for args in [&["list"][..], &["--version"], &["--help"], &["volume", "list"]] {
        let status = binary::command(args).stdout(full()).stderr(full()).status().unwrap();
        // A panic is 101, a signal has no code.
        assert!(status.code().is_some_and(|code| code < 100), "{args:?}: {status}");
    }
    let status = binary::command(&["zap"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
