//! Locks between processes: POSIX record locks, BSD locks, and their release.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use shunt_test_support::Peer;
use shunt_tests::Fixture;
use shunt_tests::sys::{Lock, lock_holder, set_lock};

shunt_tests::behaviours! { everywhere:
    record_locks_exclude, record_locks_end_with_any_close, record_locks_end_with_the_process, record_lock_waits,
    shared_record_locks, flock_excludes, flock_ends_with_the_last_close, flock_waits, a_killed_waiter_returns,
    a_deadlock_is_an_error,
}

fn rw(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn file(s: &Fixture) -> std::path::PathBuf {
    fs::write(s.path("f"), [0; 200]).unwrap();
    s.path("f")
}

fn busy(r: std::io::Result<()>) -> bool {
    matches!(r.map_err(|e| e.raw_os_error()), Err(Some(libc::EAGAIN | libc::EACCES)))
}

fn record_locks_exclude(s: &Fixture) {
    let path = file(s);
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        set_lock(&f, Lock::Exclusive, 10, 20, false).unwrap();
        link.send(1);
        link.receive();
        set_lock(&f, Lock::None, 15, 5, false).unwrap();
        link.send(2);
        link.receive();
    });
    peer.link().receive().expect("locked");
    let f = rw(&path);
    assert!(busy(set_lock(&f, Lock::Exclusive, 0, 0, false)));
    assert!(busy(set_lock(&f, Lock::Shared, 29, 1, false)));
    set_lock(&f, Lock::Exclusive, 30, 5, false).unwrap();
    set_lock(&f, Lock::Exclusive, 0, 10, false).unwrap();
    let (pid, start, len) = lock_holder(&f, 0, 0).unwrap().expect("held by the other");
    assert_eq!((start, len), (10, 20));
    assert!(pid > 0 && u32::try_from(pid) != Ok(std::process::id()));
    peer.link().send(1);
    peer.link().receive().expect("a part unlocked");
    set_lock(&f, Lock::Exclusive, 15, 5, false).unwrap();
    assert!(busy(set_lock(&f, Lock::Exclusive, 14, 1, false)));
    assert!(busy(set_lock(&f, Lock::Exclusive, 20, 1, false)));
    peer.link().send(2);
    peer.done();
}

fn shared_record_locks(s: &Fixture) {
    let path = file(s);
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        set_lock(&f, Lock::Shared, 0, 0, false).unwrap();
        link.send(1);
        link.receive();
    });
    peer.link().receive().expect("locked");
    let f = rw(&path);
    set_lock(&f, Lock::Shared, 0, 0, false).unwrap();
    assert!(busy(set_lock(&f, Lock::Exclusive, 0, 0, false)));
    peer.link().send(1);
    peer.done();
    set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
}

/// The surprising POSIX rule: closing *any* descriptor of the file releases the process's record locks on it.
fn record_locks_end_with_any_close(s: &Fixture) {
    let path = file(s);
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
        link.send(1);
        link.receive();
        drop(rw(&path));
        link.send(2);
        link.receive();
        drop(f);
    });
    peer.link().receive().expect("locked");
    let f = rw(&path);
    assert!(busy(set_lock(&f, Lock::Exclusive, 0, 0, false)));
    peer.link().send(1);
    peer.link().receive().expect("closed the other one");
    set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
    peer.link().send(2);
    peer.done();
}

fn record_locks_end_with_the_process(s: &Fixture) {
    let path = file(s);
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
        link.send(1);
        link.receive();
    });
    peer.link().receive().expect("locked");
    let f = rw(&path);
    assert!(busy(set_lock(&f, Lock::Exclusive, 0, 0, false)));
    assert!(peer.kill());
    set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
}

fn record_lock_waits(s: &Fixture) {
    let path = file(s);
    let f = rw(&path);
    set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        link.send(1);
        set_lock(&f, Lock::Exclusive, 0, 0, true).unwrap();
        link.send(2);
        link.receive();
    });
    peer.link().receive().expect("about to wait");
    assert_eq!(peer.link().receive_within(Duration::from_millis(300)), None, "it must wait");
    // A waiting lock blocks nothing else.
    assert_eq!(fs::read(s.path("f")).unwrap().len(), 200);
    set_lock(&f, Lock::None, 0, 0, false).unwrap();
    assert_eq!(peer.link().receive(), Some(2), "woken by the unlock");
    peer.link().send(1);
    peer.done();
}

fn flock_excludes(s: &Fixture) {
    let path = file(s);
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        flock(&f, FlockOperation::LockExclusive).unwrap();
        link.send(1);
        link.receive();
        flock(&f, FlockOperation::LockShared).unwrap();
        link.send(2);
        link.receive();
    });
    peer.link().receive().expect("locked");
    let f = rw(&path);
    assert_eq!(flock(&f, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    peer.link().send(1);
    peer.link().receive().expect("downgraded");
    flock(&f, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(flock(&f, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    peer.link().send(2);
    peer.done();
    flock(&f, FlockOperation::NonBlockingLockExclusive).unwrap();
    // Two opens in one process exclude each other, too; and record locks are independent of that.
    let other = rw(&path);
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    set_lock(&other, Lock::Exclusive, 0, 0, false).unwrap();
}

fn flock_ends_with_the_last_close(s: &Fixture) {
    let path = file(s);
    let f = rw(&path);
    flock(&f, FlockOperation::LockExclusive).unwrap();
    let dup = f.try_clone().unwrap();
    let other = rw(&path);
    drop(f);
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    drop(dup);
    // FUSE sends RELEASE after the close has returned, so the unlock may come a moment later.
    let freed = || flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok();
    assert!(shunt_test_support::cmd::within(Duration::from_secs(2), freed));
}

fn flock_waits(s: &Fixture) {
    let path = file(s);
    let f = rw(&path);
    flock(&f, FlockOperation::LockExclusive).unwrap();
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        link.send(1);
        flock(&f, FlockOperation::LockExclusive).unwrap();
        link.send(2);
    });
    peer.link().receive().expect("about to wait");
    assert_eq!(peer.link().receive_within(Duration::from_millis(300)), None, "it must wait");
    flock(&f, FlockOperation::Unlock).unwrap();
    assert_eq!(peer.link().receive(), Some(2));
    peer.done();
}

fn a_killed_waiter_returns(s: &Fixture) {
    let path = file(s);
    let f = rw(&path);
    set_lock(&f, Lock::Exclusive, 0, 0, false).unwrap();
    // More waiters than a server has threads.
    let mut waiters: Vec<_> = (0..24)
        .map(|_| {
            Peer::start(|link| {
                let f = rw(&path);
                link.send(1);
                let _ = set_lock(&f, Lock::Exclusive, 0, 0, true);
            })
        })
        .collect();
    waiters.iter_mut().for_each(|w| assert!(w.link().receive().is_some()));
    std::thread::sleep(Duration::from_millis(100));
    // They block no other caller: a new file is created at once.
    fs::write(s.path("meanwhile"), b"x").unwrap();
    let start = std::time::Instant::now();
    for waiter in waiters {
        assert!(waiter.kill(), "a process that waits for a lock cannot be killed");
    }
    assert!(start.elapsed() < shunt_test_support::pace::seconds(5));
    // After its release the lock is free.
    set_lock(&f, Lock::None, 0, 0, false).unwrap();
    Peer::start(|_| set_lock(&rw(&path), Lock::Exclusive, 0, 0, false).unwrap()).done();
}

fn a_deadlock_is_an_error(s: &Fixture) {
    let path = file(s);
    let f = rw(&path);
    set_lock(&f, Lock::Exclusive, 0, 1, false).unwrap();
    let mut peer = Peer::start(|link| {
        let f = rw(&path);
        set_lock(&f, Lock::Exclusive, 1, 1, false).unwrap();
        link.send(1);
        // The parent's lock closes the cycle; once it is released, this one is granted.
        set_lock(&f, Lock::Exclusive, 0, 1, true).unwrap();
    });
    peer.link().receive().expect("locked");
    std::thread::sleep(Duration::from_millis(200));
    let closed = set_lock(&f, Lock::Exclusive, 1, 1, true);
    assert_eq!(closed.unwrap_err().raw_os_error(), Some(libc::EDEADLK));
    drop(f);
    peer.done();
}
