//! Tests of interrupted callers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use shunt_fuse::{Capabilities, Opcode};
use shunt_test_support::pace;

use crate::common;
use crate::common::{Behaviour, Fixture, Plan, child, eventually, run, sys, timed};

/// A killed caller exits within this time, though its request is never answered.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);

#[test]
fn children_of_other_tests() {
    let Some((role, path)) = child::role() else { return };
    match role.as_str() {
        "read" => {
            let file = File::open(path).unwrap();
            child::report("open");
            drop(file.read_at(&mut [0; 10], 0));
        }
        "lock" => {
            let file = File::options().read(true).write(true).open(path).unwrap();
            child::report("open");
            let _ = sys::posix_lock(&file, libc::F_SETLKW, libc::F_WRLCK);
        }
        "mkdir" => {
            child::report("ready");
            drop(std::fs::create_dir(path));
        }
        "signalled" => signalled(&path),
        other => panic!("{other}"),
    }
}

/// Reads with a handler for SIGINT installed, without SA_RESTART, and reports the result.
fn signalled(path: &Path) {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing; the zeroed structure has no flags and an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut()), 0);
    }
    let file = File::open(path).unwrap();
    child::report(&rustix::thread::gettid().as_raw_nonzero().to_string());
    // `read_at` returns EINTR to its caller without a retry.
    let result = file.read_at(&mut [0; 10], 0);
    child::report(&format!("{:?}", result.map_err(|error| error.raw_os_error().unwrap())));
}

fn wait_for_handler(fixture: &Fixture, op: Opcode) {
    eventually("the request waits", || fixture.fs.log.count(op) > 0 && fixture.handle.waiting_requests() > 0);
}

#[test]
fn a_killed_reader_returns_at_once_and_its_handler_is_dropped() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"bytes");
        fixture.fs.set_open(node, common::OpenAs::Direct);
        let gate = common::Gate::before(&fixture.fs, Opcode::Read);
        let mut reader = child::start("read", &fixture.path("x"));
        assert_eq!(reader.read_line(), "open");
        wait_for_handler(fixture, Opcode::Read);
        let (time, _) = timed(|| {
            reader.signal(Signal::KILL);
            reader.wait()
        });
        assert!(time < pace::limit(EXIT_TIMEOUT), "{time:?}");
        eventually("the handler is dropped", || fixture.handle.waiting_requests() == 0);
        assert_eq!(fixture.handle.statistics().cancelled, 1);
        drop(gate);
        let mut bytes = [0; 5];
        File::open(fixture.path("x")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"bytes", "other requests are served");
    });
}

#[test]
fn a_killed_reader_of_the_page_cache_returns_at_once() {
    // Read-ahead has no caller: the kernel sends no INTERRUPT, and the pages are filled all the same.
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        let gate = common::Gate::before(&fixture.fs, Opcode::Read);
        let mut reader = child::start("read", &fixture.path("x"));
        assert_eq!(reader.read_line(), "open");
        wait_for_handler(fixture, Opcode::Read);
        let (time, _) = timed(|| {
            reader.signal(Signal::KILL);
            reader.wait()
        });
        assert!(time < pace::limit(EXIT_TIMEOUT), "{time:?}");
        gate.open();
        assert_eq!(std::fs::read(fixture.path("x")).unwrap(), b"bytes");
    });
}

#[test]
fn a_killed_waiter_for_a_lock_returns_at_once_and_leaves_no_lock() {
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |fixture| {
        fixture.fs.add_file("x", b"");
        let mine = File::options().read(true).write(true).open(fixture.path("x")).unwrap();
        sys::posix_lock(&mine, libc::F_SETLK, libc::F_WRLCK).unwrap();
        let mut waiter = child::start("lock", &fixture.path("x"));
        assert_eq!(waiter.read_line(), "open");
        wait_for_handler(fixture, Opcode::Setlkw);
        let (time, _) = timed(|| {
            waiter.signal(Signal::KILL);
            waiter.wait()
        });
        assert!(time < pace::limit(EXIT_TIMEOUT), "{time:?}");
        sys::posix_lock(&mine, libc::F_SETLK, libc::F_UNLCK).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(fixture.fs.locks.held(), 0, "a dead process takes no lock");
    });
}

#[test]
fn a_waiting_lock_is_given_when_it_is_free() {
    run(Plan::passthrough().config(|config| config.require(Capabilities::POSIX_LOCKS)), |fixture| {
        fixture.fs.add_file("x", b"");
        let mine = File::options().read(true).write(true).open(fixture.path("x")).unwrap();
        sys::posix_lock(&mine, libc::F_SETLK, libc::F_WRLCK).unwrap();
        let mut waiter = child::start("lock", &fixture.path("x"));
        assert_eq!(waiter.read_line(), "open");
        wait_for_handler(fixture, Opcode::Setlkw);
        sys::posix_lock(&mine, libc::F_SETLK, libc::F_UNLCK).unwrap();
        assert!(waiter.wait().success());
        eventually("FLUSH ended the lock", || fixture.fs.locks.held() == 0);
    });
}

#[test]
fn an_operation_that_changes_something_is_told_and_decides_by_itself() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.script(|call| match call.op {
            Opcode::Mkdir => Behaviour::UntilInterrupted,
            _ => Behaviour::Go,
        });
        let mut maker = child::start("mkdir", &fixture.path("d"));
        assert_eq!(maker.read_line(), "ready");
        wait_for_handler(fixture, Opcode::Mkdir);
        let (time, _) = timed(|| {
            maker.signal(Signal::KILL);
            maker.wait()
        });
        assert!(time < pace::limit(EXIT_TIMEOUT), "{time:?}");
        eventually("no request waits", || fixture.handle.waiting_requests() == 0);
        assert_eq!(fixture.handle.statistics().cancelled, 0, "the handler replied and was not cancelled");
        fixture.fs.no_script();
        assert!(!fixture.path("d").exists());
    });
}

#[test]
fn an_operation_that_changes_something_is_never_cancelled_behind_its_back() {
    run(Plan::passthrough(), |fixture| {
        let gate = common::Gate::before(&fixture.fs, Opcode::Mkdir);
        let mut maker = child::start("mkdir", &fixture.path("d"));
        assert_eq!(maker.read_line(), "ready");
        wait_for_handler(fixture, Opcode::Mkdir);
        maker.signal(Signal::KILL);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(fixture.handle.waiting_requests(), 1, "the handler still runs");
        gate.open();
        maker.wait();
        eventually("the directory is made", || fixture.path("d").exists());
    });
}

#[test]
fn a_signal_with_a_handler_ends_a_read_with_eintr() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"bytes");
        // Direct I/O, because waits in the page cache are not interrupted by signals that do not kill.
        fixture.fs.set_open(node, common::OpenAs::Direct);
        let _gate = common::Gate::before(&fixture.fs, Opcode::Read);
        let mut reader = child::start("signalled", &fixture.path("x"));
        let thread: i32 = reader.read_line().parse().unwrap();
        wait_for_handler(fixture, Opcode::Read);
        // SAFETY: no pointers are passed.
        let sent =
            unsafe { libc::syscall(libc::SYS_tgkill, reader.pid() as libc::c_long, thread, libc::SIGINT) };
        assert_eq!(sent, 0);
        let (time, reply) = timed(|| reader.read_line());
        assert_eq!(reply, format!("Err({})", Errno::INTR.raw_os_error()));
        assert!(time < pace::limit(EXIT_TIMEOUT), "{time:?}");
    });
}

#[test]
fn readers_killed_at_every_moment_leave_nothing_behind() {
    run(Plan::passthrough().timeout(120), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        fixture.fs.script(|call| match call.op {
            Opcode::Read => Behaviour::Block(Duration::from_millis(3)),
            _ => Behaviour::Go,
        });
        for n in 0..20 {
            let mut reader = child::start("read", &fixture.path("x"));
            assert_eq!(reader.read_line(), "open");
            std::thread::sleep(Duration::from_micros(n * 300));
            reader.signal(Signal::KILL);
            reader.wait();
        }
        eventually("nothing waits", || fixture.handle.waiting_requests() == 0);
        fixture.all_released();
        fixture.fs.no_script();
        assert_eq!(std::fs::read(fixture.path("x")).unwrap(), b"bytes");
    });
}
