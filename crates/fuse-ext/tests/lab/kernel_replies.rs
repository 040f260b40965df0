//! Tests that repeated requests are answered in the kernel.

use std::fs;

use super::common::*;

fn two_files() -> CountingFs {
    let small = CountingFs::new();
    let file = small.add(1, "file0", 0o100_644);
    small.set_xattr(file, "user.x", b"value");
    small.add(1, "link", 0o120_777);
    small
}

#[test]
fn stat_asks_the_daemon_once() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(two_files());
    let path = mount.path("file0");
    fs::metadata(&path).unwrap();
    fs::metadata(&path).unwrap();
    let asked = mount.requests(|| {
        for _ in 0..1000 {
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.len(), std::os::unix::fs::MetadataExt::ino(&found)), (4, 2));
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn absent_names_are_known_to_be_absent() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(two_files());
    let path = mount.path("nobody");
    let absent = || fs::metadata(&path).unwrap_err().kind();
    assert_eq!(absent(), std::io::ErrorKind::NotFound);
    let asked = mount.requests(|| (0..100).for_each(|_| assert_eq!(absent(), std::io::ErrorKind::NotFound)));
    assert_eq!(asked, 0);
}

#[test]
fn extended_attributes_and_their_absence() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(two_files());
    let path = mount.path("file0");
    let look = || {
        assert_eq!(getxattr(&path, "user.x").unwrap(), b"value");
        assert_eq!(getxattr(&path, "user.y").unwrap_err(), rustix::io::Errno::NODATA);
        assert_eq!(getxattr_into(&path, "user.x", 2).unwrap_err(), rustix::io::Errno::RANGE);
        assert_eq!(getxattr_into(&path, "user.x", 0).unwrap().0, 5);
    };
    look();
    look();
    assert_eq!(mount.requests(|| (0..100).for_each(|_| look())), 0);
}

#[test]
fn symbolic_links() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(two_files());
    let path = mount.path("link");
    let target = || assert_eq!(fs::read_link(&path).unwrap().to_str(), Some("file0"));
    target();
    target();
    assert_eq!(mount.requests(|| (0..100).for_each(|_| target())), 0);
}

/// The daemon gave the kernel a backing file; further opens for reading do not reach the daemon.
#[test]
fn a_known_file_is_opened_and_read_without_the_daemon() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(two_files());
    let path = mount.path("file0");
    fs::metadata(&path).unwrap();
    let node = shunt_fuse::NodeId(2);
    let lower = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    fs::write(lower.path(), b"from the backing file").unwrap();
    let passthrough = mount.mounted.as_ref().unwrap().handle().passthrough().expect("root may");
    let backing = std::thread::scope(|scope| {
        let share = || {
            shunt_fuse::drop_fsetid().unwrap();
            passthrough.share(node, std::os::fd::AsFd::as_fd(&lower)).unwrap()
        };
        scope.spawn(share).join().unwrap()
    });
    let tables = mount.fs.tables().unwrap();
    let open_and_read = || {
        use std::io::Read;
        let mut content = [0; 21];
        fs::File::open(&path).unwrap().read_exact(&mut content).unwrap();
        assert_eq!(&content, b"from the backing file");
    };
    tables.store_open(node, tables.open_version(node), &backing);
    open_and_read();
    assert_eq!(mount.requests(|| (0..100).for_each(|_| open_and_read())), 0);

    // From here on opens reach the daemon again.
    tables.opening_changed(node);
    assert!(mount.requests(|| assert_eq!(fs::read(&path).unwrap(), b"data")) >= 2);
}
