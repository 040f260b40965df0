//! Tests of connections over io_uring. The kernel replaces the operations of their queue when the rings become ready, after the
//! program was attached.

use std::fs;

use super::common::*;
use super::mirror_cli::eventually;

fn mounted() -> Option<Mount> {
    let small = CountingFs::new();
    for n in 0..20 {
        let node = small.add(1, &format!("file{n}"), 0o100_644);
        small.set_xattr(node, "user.x", b"value");
    }
    if module_is_here() { Mount::over_rings(small) } else { None }
}

fn visit(mount: &Mount) {
    for n in 0..20 {
        let path = mount.path(&format!("file{n}"));
        assert_eq!(fs::metadata(&path).unwrap().len(), 4);
        assert_eq!(getxattr(&path, "user.x").unwrap(), b"value");
        assert!(fs::metadata(mount.path("nobody")).is_err());
    }
}

/// Waits until the program answers: until then its requests reach the daemon.
fn answers(mount: &Mount) -> bool {
    eventually(|| mount.requests(|| visit(mount)) == 0)
}

#[test]
fn a_program_attached_before_the_rings_are_ready_answers() {
    let Some(mount) = mounted() else { return };
    assert!(answers(&mount));
    assert_eq!(mount.requests(|| (0..50).for_each(|_| visit(&mount))), 0);

    // A change that the daemon made is seen at once.
    fs::set_permissions(mount.path("file0"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(mount.path("file0")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_program_attached_to_ready_rings_answers() {
    let Some(mount) = mounted() else { return };
    assert!(answers(&mount));
    for _ in 0..rounds(5) {
        mount.fs.detach();
        assert!(mount.requests(|| visit(&mount)) > 0, "detached");
        mount.fs.attach(mount.mounted.as_ref().unwrap().handle());
        assert_eq!(mount.fs.refusal(), None);
        assert!(answers(&mount));
    }
}

#[test]
fn lookups_are_counted_exactly() {
    let Some(mount) = mounted() else { return };
    assert!(answers(&mount));
    let all_forgotten = || {
        // Drops unused inodes and dentries.
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        mount.fs.inner().held() == 0
    };
    (0..3).for_each(|_| visit(&mount));
    assert!(mount.fs.inner().held() > 0);
    assert!(eventually(all_forgotten));
    // Counted lookups remain after the program.
    visit(&mount);
    assert!(answers(&mount));
    mount.fs.detach();
    assert!(eventually(all_forgotten));
    mount.assert_no_violations();
}

/// The connection ends at any moment of the replacement.
#[test]
fn mounts_may_end_at_once() {
    for round in 0..rounds(6) {
        let Some(mount) = mounted() else { return };
        if round % 3 == 1 {
            visit(&mount);
        }
        if round % 3 == 2 {
            mount.fs.detach();
        }
    }
}
