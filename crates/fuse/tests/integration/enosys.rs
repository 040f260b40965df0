//! Tests that the kernel caches ENOSYS to an optional operation, and does not send it again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use shunt_fuse::{Capabilities, Opcode};

use crate::common;
use crate::common::{OpenAs, Plan, run, sys};

#[test]
fn open_is_never_sent_again() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        fixture.fs.fail(&[Opcode::Open], Errno::NOSYS);
        for _ in 0..3 {
            assert_eq!(fs::read(fixture.path("x")).unwrap(), b"bytes");
        }
        assert_eq!(fixture.count(Opcode::Open), 1);
        assert_eq!(fixture.count(Opcode::Release), 0, "no RELEASE without OPEN");
        assert_eq!(fixture.handle.open_nodes(), 0);
    });
}

#[test]
fn opendir_is_never_sent_again_and_listings_are_cached() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"");
        fixture.fs.fail(&[Opcode::Opendir], Errno::NOSYS);
        let list = || fs::read_dir(fixture.root()).unwrap().count();
        assert_eq!(list(), 1);
        let (readdirs, count) = fixture.during(Opcode::Readdir, list);
        assert_eq!((readdirs, count), (0, 1));
        assert_eq!(fixture.count(Opcode::Opendir), 1);
        assert_eq!(fixture.count(Opcode::Releasedir), 0);
    });
}

#[test]
fn flush_fsync_and_getxattr_are_never_sent_again() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"");
        fixture.fs.fail(&[Opcode::Flush, Opcode::Fsync, Opcode::Getxattr, Opcode::Lseek], Errno::NOSYS);
        for _ in 0..3 {
            let file = File::options().write(true).open(fixture.path("x")).unwrap();
            file.write_all_at(b"new", 0).unwrap();
            file.sync_all().unwrap();
            let asked = rustix::fs::fgetxattr(&file, c"user.x", &mut [0_u8; 16][..]);
            assert_eq!(asked, Err(Errno::OPNOTSUPP));
        }
        for op in [Opcode::Flush, Opcode::Fsync, Opcode::Getxattr] {
            assert_eq!(fixture.count(op), 1, "{}", op.name());
        }
    });
}

#[test]
fn other_errors_are_not_remembered() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        fixture.fs.fail(&[Opcode::Open], Errno::IO);
        for _ in 0..3 {
            assert_eq!(File::open(fixture.path("x")).unwrap_err().raw_os_error(), Some(libc::EIO));
        }
        assert_eq!(fixture.count(Opcode::Open), 3);
    });
}

#[test]
fn access_without_an_answer_lets_everybody_in() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"");
        fixture.fs.fail(&[Opcode::Access], Errno::NOSYS);
        for _ in 0..3 {
            rustix::fs::access(fixture.path("x"), rustix::fs::Access::EXEC_OK).ok();
        }
        assert_eq!(fixture.count(Opcode::Access), 1);
    });
}

#[test]
fn create_without_an_answer_falls_back_to_mknod_and_open() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.fail(&[Opcode::Create], Errno::NOSYS);
        for n in 0..3 {
            fs::write(fixture.path(&format!("f{n}")), b"bytes").unwrap();
        }
        assert_eq!(fixture.count(Opcode::Create), 1);
        assert_eq!(fixture.count(Opcode::Mknod), 3);
        assert_eq!(fixture.count(Opcode::Open), 3);
    });
}

/// Locks a file, closes it, and returns how many locks the server still holds.
fn locks_left_behind(fixture: &common::Fixture, name: &str) -> usize {
    let file = File::options().read(true).write(true).open(fixture.path(name)).unwrap();
    sys::posix_lock(&file, libc::F_SETLK, libc::F_WRLCK).unwrap();
    assert_eq!(fixture.fs.locks.held(), 1);
    drop(file);
    fixture.all_released();
    fixture.fs.locks.held()
}

#[test]
fn a_lock_ends_with_the_close() {
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |fixture| {
        fixture.fs.add_file("x", b"");
        assert_eq!(locks_left_behind(fixture, "x"), 0);
    });
}

#[test]
fn enosys_to_flush_leaks_posix_locks_of_the_server() {
    // The trap: FLUSH releases the locks, and is never sent again. The unlock at close is not sent either.
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |fixture| {
        fixture.fs.add_file("x", b"");
        fixture.fs.fail(&[Opcode::Flush], Errno::NOSYS);
        drop(File::open(fixture.path("x")).unwrap());
        assert_eq!(locks_left_behind(fixture, "x"), 1);
        assert_eq!(fixture.count(Opcode::Flush), 1);
    });
}

#[test]
fn no_flush_is_ignored_where_the_server_keeps_locks() {
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |fixture| {
        let node = fixture.fs.add_file("x", b"");
        fixture.fs.set_open(node, OpenAs::NoFlush);
        assert_eq!(locks_left_behind(fixture, "x"), 0);
        assert!(fixture.count(Opcode::Flush) > 0);
    });
}

#[test]
fn no_flush_is_honoured_where_the_kernel_keeps_locks() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"");
        fixture.fs.set_open(node, OpenAs::NoFlush);
        let file = File::options().read(true).write(true).open(fixture.path("x")).unwrap();
        sys::posix_lock(&file, libc::F_SETLK, libc::F_WRLCK).unwrap();
        drop(file);
        fixture.all_released();
        assert_eq!(fixture.count(Opcode::Flush), 0);
        assert_eq!(fixture.count(Opcode::Setlk), 0);
    });
}
