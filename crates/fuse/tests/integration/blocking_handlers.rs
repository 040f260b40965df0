//! Tests that handlers which wait or block delay no other request.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use shunt_fuse::{Expiry, Opcode};
use shunt_test_support::pace;

use crate::common;
use crate::common::{Behaviour, Gate, OpenAs, Plan, TestFs, eventually, run_with, timed};

const REQUESTS: usize = 20;

/// Makes files under direct I/O, with attributes that must not be cached.
fn files() -> TestFs {
    let fs = TestFs::new();
    *fs.expiry.lock() = Expiry::NEVER_CACHED;
    for n in 0..REQUESTS {
        let node = fs.add_file(&format!("f{n}"), b"bytes");
        fs.set_open(node, OpenAs::Direct);
    }
    fs.add_file("quick", b"");
    fs
}

fn read(file: &File) -> [u8; 5] {
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Returns the fastest of a few calls: the machine may be busy.
fn fastest_stat(fixture: &common::Fixture) -> Duration {
    (0..5).map(|_| timed(|| fs::metadata(fixture.path("quick")).unwrap()).0).min().unwrap()
}

#[test]
fn handlers_that_wait_take_no_thread() {
    run_with(Plan::passthrough().config(|config| config.threads(2, 2)), files(), |fixture| {
        let gate = Gate::before(&fixture.fs, Opcode::Read);
        let files: Vec<File> =
            (0..REQUESTS).map(|n| File::open(fixture.path(&format!("f{n}"))).unwrap()).collect();
        std::thread::scope(|scope| {
            let readers: Vec<_> = files.iter().map(|file| scope.spawn(|| read(file))).collect();
            eventually("all wait", || gate.arrived() == REQUESTS);
            assert_eq!(fixture.handle.waiting_requests(), REQUESTS);
            let time = fastest_stat(fixture);
            assert!(time < pace::limit(Duration::from_millis(50)), "{time:?}");
            // Over rings each queue has a thread, and one more while an entry is handed over.
            let max = if common::over_rings() { 1 + 2 * common::processors() } else { 2 };
            assert!(fixture.handle.threads() <= max, "{}", fixture.handle.threads());
            gate.open();
            for reader in readers {
                assert_eq!(&reader.join().unwrap(), b"bytes");
            }
        });
        eventually("no request waits", || fixture.handle.waiting_requests() == 0);
    });
}

#[test]
fn handlers_that_block_get_more_threads_which_leave_again() {
    run_with(Plan::passthrough().config(|config| config.threads(2, 64)), files(), |fixture| {
        let files: Vec<File> =
            (0..REQUESTS).map(|n| File::open(fixture.path(&format!("f{n}"))).unwrap()).collect();
        std::thread::scope(|scope| {
            let gate = Gate::new();
            let door = gate.door();
            fixture.fs.script(move |call| match call.op {
                Opcode::Read => Behaviour::BlockUntil(door.clone()),
                _ => Behaviour::Go,
            });
            for file in &files {
                scope.spawn(|| assert_eq!(&read(file), b"bytes"));
            }
            eventually("all block", || gate.arrived() == REQUESTS);
            eventually("one more thread for other requests", || fixture.handle.threads() > REQUESTS);
            let time = fastest_stat(fixture);
            assert!(time < pace::limit(Duration::from_millis(50)), "{time:?}");
        });
        if common::over_rings() {
            // An entry offered to the kernel cannot be taken back, and keeps its thread.
            return;
        }
        // They exit one by one, about two a second, while requests arrive.
        let max = fixture.handle.threads();
        eventually("threads leave", || {
            (0..20).for_each(|_| drop(fs::metadata(fixture.path("quick"))));
            fixture.handle.threads() + 3 <= max
        });
    });
}

#[test]
fn a_session_with_all_its_threads_blocked_goes_on_when_they_are_free() {
    run_with(Plan::passthrough().config(|config| config.threads(1, 4)), files(), |fixture| {
        fixture.fs.script(|call| match call.op {
            Opcode::Read => Behaviour::Block(Duration::from_millis(20)),
            _ => Behaviour::Go,
        });
        let files: Vec<File> =
            (0..REQUESTS).map(|n| File::open(fixture.path(&format!("f{n}"))).unwrap()).collect();
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(|| (0..5).for_each(|_| assert_eq!(&read(file), b"bytes")));
            }
        });
        // The limit applies to readers of /dev/fuse; ring entries have threads of their own, with their own limit.
        assert!(common::over_rings() || fixture.handle.threads() <= 4);
    });
}

#[test]
fn handlers_that_block_after_they_waited_delay_no_other() {
    run_with(Plan::passthrough(), files(), |fixture| {
        let gate = Gate::new();
        let door = gate.door();
        fixture.fs.script(move |call| match call.op {
            Opcode::Open => Behaviour::Wait(door.clone()),
            Opcode::Read => Behaviour::Block(Duration::from_millis(200)),
            _ => Behaviour::Go,
        });
        std::thread::scope(|scope| {
            for n in 0..REQUESTS {
                scope.spawn(move || {
                    let file = File::open(fixture.path(&format!("f{n}"))).unwrap();
                    assert_eq!(&read(&file), b"bytes");
                });
            }
            eventually("all wait", || gate.arrived() == REQUESTS);
            gate.open();
            let time = fastest_stat(fixture);
            assert!(time < pace::limit(Duration::from_millis(50)), "{time:?}");
        });
    });
}
