//! Tests that each mistake gives one line with the remedy.

use super::super::*;
use super::{TestMountDir, can_mount, kill};

fn refused(path: &Path, opts: &MountOptions) -> MountError {
    let error = mount(path, opts).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.is_empty());
    error
}

#[test]
fn mount_points_that_will_not_do() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let file = mount_dir.outer().join("file");
    std::fs::write(&file, "").unwrap();
    let dir = MountOptions::new();
    let root_file = MountOptions::new().root(RootKind::File);
    assert!(matches!(refused(&mount_dir.outer().join("none"), &dir), MountError::Missing(_)));
    assert!(matches!(refused(&file, &dir), MountError::NotDirectory(_)));
    assert!(matches!(refused(&mount_dir.path(), &root_file), MountError::IsDirectory(_)));
    assert!(matches!(refused(&file.join("below"), &dir), MountError::Unreachable { .. }));
    assert!(mount_dir.line().is_none());
}

#[test]
fn a_dead_mount_is_named_as_such() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let opts = MountOptions::new();
    kill(mount(&mount_dir.path(), &opts).unwrap().device);
    let error = refused(&mount_dir.path(), &opts);
    assert!(matches!(error, MountError::Dead(_)));
    assert!(error.to_string().contains("shunt umount"), "{error}");
}

#[test]
fn options_that_cannot_be() {
    let opts = MountOptions::new;
    for (bad, part) in [
        (opts().blksize(512), "needs a block device"),
        (opts().blkdev("/dev/null").blksize(1000), "power of two"),
        (opts().subtype("a,b"), "contain a comma"),
        (opts().fsname(""), "must not be empty"),
    ] {
        let error = prepare(&bad).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn message_of_the_kernel_is_reported() {
    if !can_mount() {
        return;
    }
    let bad = MountOptions::new().blkdev("/dev/null").method(MountMethod::Fsopen);
    let error = prepare(&bad).unwrap_err().to_string();
    assert!(error.contains("/dev/null"), "{error}");
}

#[test]
fn paths_without_a_fuse_mount() {
    let mount_dir = TestMountDir::new();
    assert!(matches!(MountPoint::find(&mount_dir.path()), Err(MountError::NotMounted(_))));
    assert!(matches!(MountPoint::find(&mount_dir.outer().join("none")), Err(MountError::Missing(_))));
    assert!(matches!(MountPoint::find(Path::new("/proc")), Err(MountError::NotFuse { .. })));
}
