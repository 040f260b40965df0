//! Files that the kernel generates when they are read, as in procfs: their size is meaningless, and their full content is
//! shown.

use std::fs;
use std::path::Path;
use std::process::Command;

use shunt_test_support::{needs_mount, requirement, run, run_for};
use shunt_tests::{binary, mounts};

/// Mirrors a directory of the host, and calls `look` with the mount point.
fn mirrored(source: &str, args: &[&str], look: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    let mut command = binary::command(&["mirror", "--daemon"]);
    run_for(20, command.args(args).arg(source).arg(&mnt)).ok();
    look(&mnt);
    run_for(20, binary::command(&["umount"]).arg(&mnt)).ok();
    assert_eq!(mounts::count(&mnt), 0);
}

fn same(shown: &Path, source: &Path) {
    let (shown, source) = (fs::read(shown).unwrap(), fs::read(source).unwrap());
    assert!(!source.is_empty() && shown == source, "{shown:?} {source:?}");
}

#[test]
fn procfs_and_sysfs_have_content() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    for args in [
        &[][..],
        &["--passthrough", "off"],
        &["--cache", "exclusive", "--passthrough", "off"],
        &["--cache", "none"],
    ] {
        mirrored("/proc", args, |mnt| {
            for name in ["version", "filesystems", "sys/kernel/ostype"] {
                same(&mnt.join(name), &Path::new("/proc").join(name));
            }
            // More than one request, and a program that seeks.
            let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
            assert_eq!(lines(&mnt.join("cpuinfo")), lines(Path::new("/proc/cpuinfo")));
            let tail = run(Command::new("tail").args(["-c", "20"]).arg(mnt.join("version"))).ok();
            assert!(tail.len() <= 20 && fs::read_to_string("/proc/version").unwrap().contains(tail.trim()));
        });
        mirrored("/sys/kernel", args, |mnt| {
            same(
                &mnt.join("mm/transparent_hugepage/enabled"),
                Path::new("/sys/kernel/mm/transparent_hugepage/enabled"),
            );
        });
    }
}

/// Also a procfs mounted below a source on another file system.
#[test]
fn a_procfs_below_the_source_has_content() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    for args in [&[][..], &["--cache", "exclusive", "--passthrough", "off"]] {
        mirrored("/", args, |mnt| same(&mnt.join("proc/version"), Path::new("/proc/version")));
    }
}

/// A value is written as by a program that opens the file directly.
#[test]
fn a_value_of_procfs_is_written() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let value = Path::new("/proc/sys/fs/lease-break-time");
    let before = fs::read(value).unwrap();
    mirrored("/proc/sys/fs", &[], |mnt| {
        fs::write(mnt.join("lease-break-time"), &before).unwrap();
        assert!(fs::write(mnt.join("lease-break-time"), b"no number").is_err());
    });
    assert_eq!(fs::read(value).unwrap(), before);
}
