//! Isolation: the actions of one user must not block the others.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::copy_file_range;
use shunt_test_support::cmd::within;
use shunt_test_support::{User, needs_mount, rings};
use shunt_tests::{Plan, fixture};

/// One caller opens as many files as it can.
#[test]
fn lookups_work_while_all_files_are_open() {
    needs_mount!();
    fixture::perform(Plan::tmpfs().open_files(256), |s| {
        for n in 0..400 {
            fs::write(s.lower(format!("f{n}")), b"x").unwrap();
        }
        fs::create_dir(s.lower("d")).unwrap();
        fs::write(s.lower("d/x"), b"x").unwrap();
        let (files, refused) = User::new(65_534).run(|| {
            let mut files = Vec::new();
            loop {
                match File::open(s.path(format!("f{}", files.len()))) {
                    Ok(file) => files.push(file),
                    Err(error) => return (files, error.raw_os_error()),
                }
            }
        });
        assert_eq!(refused, Some(libc::ENFILE), "after {}", files.len());
        // A user may have half of the files that the daemon opens for callers.
        assert!(files.len() >= 30, "{}", files.len());
        for n in 0..400 {
            assert_eq!(fs::metadata(s.path(format!("f{n}"))).unwrap().len(), 1);
        }
        assert!(s.path("d/x").exists());
        fs::create_dir(s.path("d/made")).unwrap();
        drop(files);
        assert!(within(Duration::from_secs(2), || fs::read(s.path("d/x")).is_ok()));
    });
}

/// Many callers wait for a lease break; no other caller has to wait.
#[test]
fn a_lease_stops_only_those_who_open_the_file() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        fs::write(s.lower("leased"), b"x").unwrap();
        fs::write(s.lower("other"), b"y").unwrap();
        let holder = File::options().read(true).write(true).open(s.lower("leased")).unwrap();
        let lease = |kind: libc::c_int| {
            // SAFETY: the call takes an open file and two numbers.
            unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, kind) }
        };
        // SAFETY: the signal that requests the lease would end this process; it is ignored.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        assert_eq!(lease(libc::F_WRLCK), 0, "{}", std::io::Error::last_os_error());
        let opened = AtomicUsize::new(0);
        // More waiters than threads. A queue of io_uring holds at most 64 pending requests, by its documentation.
        let waiters = if rings::over_rings() { 48 } else { 80 };
        std::thread::scope(|scope| {
            for _ in 0..waiters {
                scope.spawn(|| {
                    File::open(s.path("leased")).unwrap();
                    opened.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            let start = Instant::now();
            assert_eq!(fs::read(s.path("other")).unwrap(), b"y");
            let took = start.elapsed();
            let nonblocking =
                File::options().read(true).custom_flags(libc::O_NONBLOCK).open(s.path("leased")).map(drop);
            let waiting = opened.load(Ordering::Relaxed);
            assert_eq!(lease(libc::F_UNLCK), 0);
            assert!(took < shunt_test_support::pace::seconds(2), "{took:?}");
            assert_eq!(waiting, 0, "the lease binds");
            assert_eq!(nonblocking.unwrap_err().raw_os_error(), Some(libc::EWOULDBLOCK));
        });
        assert_eq!(opened.into_inner(), waiters);
    });
}

/// Each request takes a short time, independent of the operation, so its caller can be killed.
#[test]
fn a_huge_copy_comes_in_parts() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        File::create(s.lower("holes")).unwrap().set_len(1 << 30).unwrap();
        let from = File::open(s.path("holes")).unwrap();
        let to = File::create(s.path("to")).unwrap();
        let copied = copy_file_range(&from, None, &to, None, 1 << 30).unwrap();
        assert!((1..=16 << 20).contains(&copied), "{copied}");
    });
}
