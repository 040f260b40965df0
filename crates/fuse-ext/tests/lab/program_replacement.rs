//! Tests that replace a running program, and tests with programs whose replies are invalid.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use shunt_fuse_abi::Wire;
use shunt_fuse_ext::builtin;
use shunt_fuse_ext::program::Program;

use super::common::*;

#[test]
fn no_call_notices() {
    if !module_is_here() {
        return;
    }
    let small = CountingFs::new();
    small.add(1, "file0", 0o100_644);
    let mount = Mount::asking(small);
    let path = mount.path("file0");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(fs::metadata(&path).unwrap().len(), 4);
            }
        });
        for _ in 0..rounds(10) {
            let handle = mount.mounted.as_ref().unwrap().handle();
            mount.fs.replace(builtin::PROGRAM.unwrap(), handle).unwrap();
            fs::metadata(&path).unwrap();
            fs::metadata(&path).unwrap();
            assert_eq!(mount.requests(|| drop(fs::symlink_metadata(&path))), 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    mount.assert_no_violations();
}

/// Makes a mount with a file, to which no program is attached yet.
fn one_file() -> Mount {
    let small = CountingFs::new();
    small.add(1, "file0", 0o100_644);
    let mount = Mount::asking(small);
    mount.fs.detach();
    mount
}

fn compiled(name: &str) -> Vec<u8> {
    fs::read(format!("/lab/{name}.bpf.o")).unwrap()
}

/// A reply of the program that is invalid (one of variable length never is) is discarded, and the caller sees the daemon's reply.
#[test]
fn implausible_entries_are_rejected() {
    if !module_is_here() {
        return;
    }
    let mount = one_file();
    let device = mount.mounted.as_ref().unwrap().handle().device();
    let (_program, how) = Program::attach(&compiled("wrong"), device, |maps| maps.memory("how", 1)).unwrap();
    let unanswered = mount.requests(|| drop(fs::metadata(mount.path("file0"))));
    for choice in 0..=6 {
        how.words()[0].store(choice, Ordering::SeqCst);
        for _ in 0..3 {
            assert_eq!(fs::metadata(mount.path("file0")).unwrap().len(), 4, "{choice}");
            let asked = mount.requests(|| drop(fs::metadata(mount.path("file0"))));
            assert_eq!(asked, unanswered, "{choice}");
            assert!(fs::metadata(mount.path("nobody")).is_err());
        }
    }
    how.words()[0].store(0, Ordering::SeqCst);
    assert_eq!(fs::read(mount.path("file0")).unwrap(), b"data");
    let asked = mount.requests(|| drop(getxattr(&mount.path("file0"), "user.x")));
    assert!(asked >= 2, "an operation was switched off: {asked}");
    mount.assert_no_violations();
}

/// The example: a program that refuses some users, with a map that is filled while it runs.
#[test]
fn the_example_refuses_users() {
    if !module_is_here() {
        return;
    }
    let mount = one_file();
    let device = mount.mounted.as_ref().unwrap().handle().device();
    let (program, ()) = Program::attach(&compiled("example"), device, |_| Ok(())).unwrap();
    assert_eq!(fs::read(mount.path("file0")).unwrap(), b"data");
    program.maps().update("denied", &0u32.to_ne_bytes(), &0u32.to_ne_bytes()).unwrap();
    assert_eq!(fs::read(mount.path("file0")).unwrap_err().raw_os_error(), Some(libc::EACCES));
    drop(program);
    assert_eq!(fs::read(mount.path("file0")).unwrap(), b"data");
    mount.assert_no_violations();
}

/// The tutorial: a map that the daemon fills, and that changes clear.
#[test]
fn the_tutorial_answers_until_something_changes() {
    if !module_is_here() {
        return;
    }
    let mount = one_file();
    let path = mount.path("file0");
    let file = fs::File::open(&path).unwrap();
    let device = mount.mounted.as_ref().unwrap().handle().device();
    let (program, ()) = Program::attach(&compiled("tutorial"), device, |_| Ok(())).unwrap();
    let attributes =
        shunt_fuse::Attributes { ino: 2, mode: 0o100_644, nlink: 1, size: 77, ..Default::default() };
    // `struct fuse_attr_out`: the cache time, and the attributes.
    let mut out = vec![0; 16];
    out.extend_from_slice(attributes.wire().as_bytes());
    program.maps().update("known", &2u64.to_ne_bytes(), &out).unwrap();
    let asked = mount.requests(|| (0..100).for_each(|_| assert_eq!(file.metadata().unwrap().len(), 77)));
    assert_eq!(asked, 0);
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    mount.assert_no_violations();
}
