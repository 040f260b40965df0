//! Tests on real mounts. They need root and `/dev/fuse`.

mod errors;
mod methods;
mod unmounting;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::UnmountFlags;

use super::{MountInfo, MountPoint, info};

/// Reports whether mounts can be made here. If not, prints the reason; in CI that is a failure.
pub(crate) fn can_mount() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "not root"
    } else if !Path::new("/dev/fuse").exists() {
        "no /dev/fuse"
    } else {
        return true;
    };
    skip(why);
    false
}

/// Prints why a test is skipped; in CI that is a failure.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
    eprintln!("skipped: {why}");
}

/// A directory to mount on, `mnt` in a temporary one. Removes every mount there when dropped.
pub(crate) struct TestMountDir {
    dir: tempfile::TempDir,
}

impl TestMountDir {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        TestMountDir { dir }
    }

    /// Returns the directory around the mount point.
    pub(crate) fn outer(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Returns the topmost line of the mount table for the mount point.
    pub(crate) fn line(&self) -> Option<MountInfo> {
        line_of(&self.path())
    }
}

impl Drop for TestMountDir {
    fn drop(&mut self) {
        let prefix = self.dir.path();
        for line in info::read().unwrap_or_default().iter().rev() {
            if line.mountpoint.starts_with(prefix) {
                let _ =
                    rustix::mount::unmount(&line.mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            }
        }
    }
}

pub(crate) fn line_of(path: &Path) -> Option<MountInfo> {
    info::read().unwrap().into_iter().rev().find(|line| line.mountpoint == path)
}

/// Reads INIT and answers it with 7.45 and no features.
pub(crate) fn answer_init(device: impl AsFd) {
    let mut request = vec![0; 1 << 16];
    let len = rustix::io::read(&device, &mut request).unwrap();
    assert!(len >= 40, "a whole header");
    assert_eq!(request[4..8], 26_u32.to_le_bytes(), "INIT");
    let mut reply = vec![0; 16 + 64];
    reply[0..4].copy_from_slice(&80_u32.to_le_bytes());
    reply[8..16].copy_from_slice(&request[8..16]);
    reply[16..20].copy_from_slice(&7_u32.to_le_bytes());
    reply[20..24].copy_from_slice(&45_u32.to_le_bytes());
    // max_write
    reply[36..40].copy_from_slice(&4096_u32.to_le_bytes());
    assert_eq!(rustix::io::write(&device, &reply), Ok(80));
}

/// Leaves a dead mount: answers INIT, then closes the device.
pub(crate) fn kill(device: OwnedFd) {
    answer_init(&device);
}

/// Makes a command that runs one test function of this program as another process, with `SHUNT_TEST_ROLE` set.
pub(crate) fn role(test: &str, role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    as_role(&mut command, test, role);
    command
}

pub(crate) fn as_role(command: &mut Command, test: &str, role: &str) {
    // Test names do not include the crate's name.
    let test = test.split_once("::").map_or(test, |(_, rest)| rest);
    command.args(["--exact", test, "--nocapture", "--test-threads=1", "-q"]).env("SHUNT_TEST_ROLE", role);
}

/// Returns the role of this process, `None` in the test run itself.
pub(crate) fn my_role() -> Option<String> {
    std::env::var("SHUNT_TEST_ROLE").ok()
}

/// Reports whether a mount is found at its path and is this one.
fn found(mount: &MountPoint) -> bool {
    MountPoint::find(mount.path()).is_ok_and(|found| found == *mount)
}
