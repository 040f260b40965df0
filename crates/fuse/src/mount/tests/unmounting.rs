//! Tests that unmounting removes the intended mount and no other.

use rustix::fs::{Mode, OFlags, open};

use super::super::*;
use super::{TestMountDir, answer_init, can_mount, found, kill};
use crate::{Attributes, Config, Expiry, FileHandle, FileSystem, FileType, NodeId, Profile, Request};

fn new_mount(mount_dir: &TestMountDir) -> Mounted {
    mount(&mount_dir.path(), &MountOptions::new()).unwrap()
}

#[test]
fn a_covered_mount_is_refused() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let below = new_mount(&mount_dir);
    answer_init(&below.device);
    // Attached without looking at the mount point, which no process serves here.
    rustix::mount::mount("none", mount_dir.path(), "tmpfs", rustix::mount::MountFlags::empty(), None)
        .unwrap();
    for how in [Unmount::Normal, Unmount::Lazy, Unmount::Force] {
        assert!(matches!(below.mount.unmount(how), Err(MountError::Covered(_))));
    }
    assert!(below.mount.is_mounted());
    assert_eq!(mount_dir.line().unwrap().fstype, "tmpfs");
    assert!(matches!(MountPoint::find(&mount_dir.path()), Err(MountError::NotFuse { .. })));

    rustix::mount::unmount(mount_dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    below.mount.unmount(Unmount::Normal).unwrap();
}

#[test]
fn the_next_mount_at_the_same_path_is_another() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let first = new_mount(&mount_dir);
    first.mount.unmount(Unmount::Normal).unwrap();
    drop(first.device);
    let second = new_mount(&mount_dir);
    assert_ne!(first.mount.id(), second.mount.id());
    assert!(matches!(first.mount.unmount(Unmount::Lazy), Err(MountError::NotMounted(_))));
    assert!(second.mount.is_mounted() && found(&second.mount) && !found(&first.mount));
}

#[test]
fn a_dead_mount_is_found_and_removed() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    kill(new_mount(&mount_dir).device);
    assert_eq!(std::fs::metadata(mount_dir.path()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    let link = mount_dir.outer().join("link");
    std::os::unix::fs::symlink("mnt", &link).unwrap();
    let mount = MountPoint::find(&link).unwrap();
    assert_eq!(mount.path(), mount_dir.path().canonicalize().unwrap());
    mount.unmount(Unmount::Normal).unwrap();
    assert!(mount_dir.line().is_none());
}

#[test]
fn a_hung_mount_is_found_without_a_request() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mounted = new_mount(&mount_dir);
    answer_init(&mounted.device);
    assert!(found(&mounted.mount));
    assert_eq!(mounted.mount.waiting().unwrap(), 0);
}

#[test]
fn busy_lazy_and_force() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mounted = new_mount(&mount_dir);
    let user = open(mount_dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let error = mounted.mount.unmount(Unmount::Normal).unwrap_err();
    assert!(matches!(error, MountError::Busy(_)) && error.to_string().contains("fuser -vm"));
    assert!(matches!(mounted.mount.unmount(Unmount::Force), Err(MountError::Busy(_))));
    // Force has aborted the connection all the same.
    assert_eq!(rustix::io::read(&mounted.device, &mut [0; 1 << 14]), Err(rustix::io::Errno::NODEV));
    mounted.mount.unmount(Unmount::Lazy).unwrap();
    assert!(!mounted.mount.is_mounted() && mount_dir.line().is_none());
    drop(user);
}

#[test]
fn a_rename_above_the_mount_point_leads_to_no_other_mount() {
    if !can_mount() {
        return;
    }
    let outer = TestMountDir::new();
    let dir = outer.outer().join("dir");
    std::fs::create_dir_all(dir.join("mnt")).unwrap();
    let mounted = mount(&dir.join("mnt"), &MountOptions::new()).unwrap();
    std::fs::rename(&dir, outer.outer().join("moved")).unwrap();
    std::fs::create_dir_all(dir.join("mnt")).unwrap();
    let other = mount(&dir.join("mnt"), &MountOptions::new()).unwrap();
    assert!(matches!(mounted.mount.unmount(Unmount::Normal), Err(MountError::Covered(_))));
    assert!(other.mount.is_mounted());
}

#[test]
fn abort_ends_waiting_requests() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mounted = new_mount(&mount_dir);
    answer_init(&mounted.device);
    let path = mount_dir.path();
    let user = std::thread::spawn(move || std::fs::metadata(path).unwrap_err().raw_os_error());
    while mounted.mount.waiting().unwrap() == 0 {
        std::thread::yield_now();
    }
    mounted.mount.abort().unwrap();
    assert!(matches!(user.join().unwrap(), Some(libc::ECONNABORTED | libc::ENOTCONN)));
}

/// A file system whose root is not a directory, as in a damaged image.
struct WrongRoot;

impl FileSystem for WrongRoot {
    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), crate::Errno> {
        let mode = FileType::Regular.mode() | 0o644;
        Ok((Attributes { ino: node.0, mode, nlink: 1, ..Attributes::default() }, Expiry::NEVER_CACHED))
    }
}

/// The kernel fails all access to such a root with EIO, including the end of a mount point's path.
#[test]
fn a_mount_whose_root_was_given_up_is_found_and_removed() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mounted =
        crate::mount(WrongRoot, Config::new(Profile::Passthrough), &mount_dir.path(), &MountOptions::new())
            .unwrap();
    assert_eq!(std::fs::read_dir(mount_dir.path()).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(std::fs::metadata(mount_dir.path()).unwrap_err().raw_os_error(), Some(libc::EIO));
    let mount = MountPoint::find(&mount_dir.path()).unwrap();
    assert!(mount.is_mounted() && found(&mount));
    mount.unmount(Unmount::Normal).unwrap();
    assert!(mount_dir.line().is_none());
    mounted.wait().unwrap();
}

/// A user who can change a directory above the mount point cannot redirect the unmount to another mount.
#[test]
fn a_numbered_mount_is_not_looked_for_behind_links() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let outer = mount_dir.outer().canonicalize().unwrap();
    for dir in ["a/mnt", "b/mnt"] {
        std::fs::create_dir_all(outer.join(dir)).unwrap();
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", outer.join(dir), "tmpfs", none, None).unwrap();
    }
    let number = |dir: &str| super::line_of(&outer.join(dir)).unwrap().id;
    let (a, b) = (number("a/mnt"), number("b/mnt"));
    // Another mount is at that path.
    assert_eq!(unmount_numbered(a, &outer.join("b/mnt")), Err(rustix::io::Errno::INVAL));
    std::fs::rename(outer.join("a"), outer.join("moved")).unwrap();
    std::os::unix::fs::symlink("b", outer.join("a")).unwrap();
    assert_eq!(unmount_numbered(b, &outer.join("a/mnt")), Err(rustix::io::Errno::LOOP));
    unmount_numbered(b, &outer.join("b/mnt")).unwrap();
    unmount_numbered(a, &outer.join("moved/mnt")).unwrap();
    assert!(
        super::line_of(&outer.join("b/mnt")).is_none() && super::line_of(&outer.join("moved/mnt")).is_none()
    );
}
