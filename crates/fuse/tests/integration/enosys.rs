//! Tests that the kernel caches ENOSYS to an optional operation, and does not send it again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use shunt_fuse::{Capabilities, Opcode};

use crate::common;
use crate::common::{OpenAs, Plan, run, sys};

#[test]
fn open_is_never_sent_again() {
    run(Plan::passthrough(), |stage| {
        stage.fs.add_file("x", b"bytes");
        stage.fs.fail(&[Opcode::Open], Errno::NOSYS);
        for _ in 0..3 {
            assert_eq!(fs::read(stage.path("x")).unwrap(), b"bytes");
        }
        assert_eq!(stage.count(Opcode::Open), 1);
        assert_eq!(stage.count(Opcode::Release), 0, "no RELEASE without OPEN");
        assert_eq!(stage.handle.open_nodes(), 0);
    });
}

#[test]
fn opendir_is_never_sent_again_and_listings_are_cached() {
    run(Plan::passthrough(), |stage| {
        stage.fs.add_file("x", b"");
        stage.fs.fail(&[Opcode::Opendir], Errno::NOSYS);
        let list = || fs::read_dir(stage.root()).unwrap().count();
        assert_eq!(list(), 1);
        let (readdirs, count) = stage.during(Opcode::Readdir, list);
        assert_eq!((readdirs, count), (0, 1));
        assert_eq!(stage.count(Opcode::Opendir), 1);
        assert_eq!(stage.count(Opcode::Releasedir), 0);
    });
}

#[test]
fn flush_fsync_and_getxattr_are_never_sent_again() {
    run(Plan::passthrough(), |stage| {
        stage.fs.add_file("x", b"");
        stage.fs.fail(&[Opcode::Flush, Opcode::Fsync, Opcode::Getxattr, Opcode::Lseek], Errno::NOSYS);
        for _ in 0..3 {
            let file = File::options().write(true).open(stage.path("x")).unwrap();
            file.write_all_at(b"new", 0).unwrap();
            file.sync_all().unwrap();
            let asked = rustix::fs::fgetxattr(&file, c"user.x", &mut [0_u8; 16][..]);
            assert_eq!(asked, Err(Errno::OPNOTSUPP));
        }
        for op in [Opcode::Flush, Opcode::Fsync, Opcode::Getxattr] {
            assert_eq!(stage.count(op), 1, "{}", op.name());
        }
    });
}

#[test]
fn other_errors_are_not_remembered() {
    run(Plan::passthrough(), |stage| {
        stage.fs.add_file("x", b"bytes");
        stage.fs.fail(&[Opcode::Open], Errno::IO);
        for _ in 0..3 {
            assert_eq!(File::open(stage.path("x")).unwrap_err().raw_os_error(), Some(libc::EIO));
        }
        assert_eq!(stage.count(Opcode::Open), 3);
    });
}

#[test]
fn access_without_an_answer_lets_everybody_in() {
    run(Plan::passthrough(), |stage| {
        stage.fs.add_file("x", b"");
        stage.fs.fail(&[Opcode::Access], Errno::NOSYS);
        for _ in 0..3 {
            rustix::fs::access(stage.path("x"), rustix::fs::Access::EXEC_OK).ok();
        }
        assert_eq!(stage.count(Opcode::Access), 1);
    });
}

#[test]
fn create_without_an_answer_falls_back_to_mknod_and_open() {
    run(Plan::passthrough(), |stage| {
        stage.fs.fail(&[Opcode::Create], Errno::NOSYS);
        for n in 0..3 {
            fs::write(stage.path(&format!("f{n}")), b"bytes").unwrap();
        }
        assert_eq!(stage.count(Opcode::Create), 1);
        assert_eq!(stage.count(Opcode::Mknod), 3);
        assert_eq!(stage.count(Opcode::Open), 3);
    });
}

/// Locks a file, closes it, and returns how many locks the server still holds.
fn locks_left_behind(stage: &common::Stage, name: &str) -> usize {
    let file = File::options().read(true).write(true).open(stage.path(name)).unwrap();
    sys::posix_lock(&file, libc::F_SETLK, libc::F_WRLCK).unwrap();
    assert_eq!(stage.fs.locks.held(), 1);
    drop(file);
    stage.all_released();
    stage.fs.locks.held()
}

#[test]
fn a_lock_ends_with_the_close() {
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |stage| {
        stage.fs.add_file("x", b"");
        assert_eq!(locks_left_behind(stage, "x"), 0);
    });
}

#[test]
fn enosys_to_flush_leaks_posix_locks_of_the_server() {
    // The trap: FLUSH releases the locks, and is never sent again. The unlock at close is not sent either.
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |stage| {
        stage.fs.add_file("x", b"");
        stage.fs.fail(&[Opcode::Flush], Errno::NOSYS);
        drop(File::open(stage.path("x")).unwrap());
        assert_eq!(locks_left_behind(stage, "x"), 1);
        assert_eq!(stage.count(Opcode::Flush), 1);
    });
}

#[test]
fn no_flush_is_ignored_where_the_server_keeps_locks() {
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |stage| {
        let node = stage.fs.add_file("x", b"");
        stage.fs.set_open(node, OpenAs::NoFlush);
        assert_eq!(locks_left_behind(stage, "x"), 0);
        assert!(stage.count(Opcode::Flush) > 0);
    });
}

#[test]
fn no_flush_is_honoured_where_the_kernel_keeps_locks() {
    run(Plan::passthrough(), |stage| {
        let node = stage.fs.add_file("x", b"");
        stage.fs.set_open(node, OpenAs::NoFlush);
        let file = File::options().read(true).write(true).open(stage.path("x")).unwrap();
        sys::posix_lock(&file, libc::F_SETLK, libc::F_WRLCK).unwrap();
        drop(file);
        stage.all_released();
        assert_eq!(stage.count(Opcode::Flush), 0);
        assert_eq!(stage.count(Opcode::Setlk), 0);
    });
}
