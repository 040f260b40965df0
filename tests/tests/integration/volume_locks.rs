//! `--locks cluster`: locks that hold on all connected nodes.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, sh};
use shunt_tests::Volume;
use shunt_tests::volume::Mount;

const PATIENCE: Duration = Duration::from_secs(30);

const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;
const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const UNLOCK: FlockOperation = FlockOperation::Unlock;

fn two(volume: &Volume) -> (Mount, Mount) {
    let mounts = ["ant", "bee"].map(|node| volume.mount_as_with(node, &["--locks", "cluster"]));
    let met = |mount: &Mount| mount.status()["connected"] == true && mount.status()["peers"] == 1;
    assert!(within(PATIENCE, || mounts.iter().all(met)), "they do not meet");
    let [ant, bee] = mounts;
    fs::write(ant.at().join("lock"), "").unwrap();
    assert!(within(PATIENCE, || bee.at().join("lock").exists()), "the file does not come");
    (ant, bee)
}

fn open(mount: &Mount) -> File {
    File::options().read(true).write(true).open(mount.at().join("lock")).unwrap()
}

fn waits(lock: &Path) -> Command {
    let mut waits = Command::new("flock");
    waits.arg(lock).args(["echo", "mine"]).stdout(Stdio::null());
    waits
}

#[test]
fn two_machines_exclude_each_other() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = two(&volume);
    let locks: [fn(&File, FlockOperation) -> rustix::io::Result<()>; 2] =
        [|file, how| flock(file, how), |file, how| fcntl_lock(file, how)];
    for lock in locks {
        let (one, other) = (open(&ant), open(&bee));
        // The release of a closed file arrives a moment later.
        assert!(within(PATIENCE, || lock(&one, EXCLUSIVE).is_ok()));
        assert_eq!(lock(&other, EXCLUSIVE), Err(Errno::AGAIN));
        assert_eq!(lock(&other, SHARED), Err(Errno::AGAIN));
        lock(&one, UNLOCK).unwrap();
        let mine = |kind| within(PATIENCE, || lock(&other, kind).is_ok());
        assert!(mine(SHARED));
        lock(&one, SHARED).unwrap();
        assert_eq!(lock(&one, EXCLUSIVE), Err(Errno::AGAIN));
        // The lock ends with its file.
        drop(one);
        assert!(mine(EXCLUSIVE));
    }
    // Two opens on one node exclude each other, too.
    let (one, other) = (open(&ant), open(&ant));
    assert!(within(PATIENCE, || flock(&one, EXCLUSIVE).is_ok()));
    assert_eq!(flock(&other, SHARED), Err(Errno::AGAIN));
}

#[test]
fn waiting_locker_gets_the_lock_and_sees_changes() {
    needs_mount!();
    needs_tools!("flock");
    let volume = Volume::new();
    let (ant, bee) = two(&volume);
    fs::write(ant.at().join("count"), "0\n").unwrap();
    let line = "for i in $(seq 20); do flock lock sh -c 'n=$(cat count); echo $((n + 1)) > count'; done";
    std::thread::scope(|scope| {
        for mount in [&ant, &bee] {
            scope.spawn(move || sh(mount.at(), line).ok());
        }
    });
    let counted = || fs::read_to_string(bee.at().join("count")).unwrap();
    assert_eq!(counted(), "40\n");
}

#[test]
fn waiting_locker_can_be_interrupted() {
    needs_mount!();
    needs_tools!("flock");
    let volume = Volume::new();
    let (ant, bee) = two(&volume);
    let held = open(&ant);
    flock(&held, EXCLUSIVE).unwrap();
    let mut waiter = waits(&bee.at().join("lock")).spawn().unwrap();
    assert!(!within(Duration::from_millis(500), || waiter.try_wait().unwrap().is_some()), "it does not wait");
    let start = Instant::now();
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    assert!(start.elapsed() < shunt_test_support::pace::limit(Duration::from_secs(5)));
    let mut waiter = waits(&bee.at().join("lock")).spawn().unwrap();
    drop(held);
    assert!(within(PATIENCE, || waiter.try_wait().unwrap().is_some_and(|status| status.success())));
    let again = open(&ant);
    assert!(within(PATIENCE, || flock(&again, EXCLUSIVE).is_ok()));
}

/// Another program holds the lease table and does not finish.
#[test]
fn nonblocking_lock_does_not_wait_for_the_store() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, _bee) = two(&volume);
    let leases = volume.aside().join("shunt/volumes/test/meta.db-leases");
    assert!(leases.exists(), "{leases:?}");
    let board = rusqlite::Connection::open(&leases).unwrap();
    board.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (file, begun) = (open(&ant), Instant::now());
    assert_eq!(flock(&file, EXCLUSIVE), Err(Errno::NOLCK));
    assert!(begun.elapsed() < shunt_test_support::pace::seconds(8), "{:?}", begun.elapsed());
    board.execute_batch("ROLLBACK").unwrap();
    assert!(within(PATIENCE, || flock(&file, EXCLUSIVE).is_ok()));
}

#[test]
fn locks_end_with_the_machine_that_has_them() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = two(&volume);
    let held = open(&ant);
    flock(&held, EXCLUSIVE).unwrap();
    let other = open(&bee);
    assert_eq!(flock(&other, EXCLUSIVE), Err(Errno::AGAIN));
    ant.kill();
    assert!(within(PATIENCE, || flock(&other, EXCLUSIVE).is_ok()));
    drop(held);
}

#[test]
fn off_the_network_there_are_no_locks() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = two(&volume);
    let (held, none) = (open(&ant), open(&ant));
    flock(&held, SHARED).unwrap();
    ant.set_online(false);
    let other = open(&bee);
    assert!(within(PATIENCE, || flock(&other, EXCLUSIVE).is_ok()), "it was given up");
    // This lock was lost; another node may have held it.
    assert_eq!(flock(&none, SHARED), Err(Errno::IO));
    flock(&held, UNLOCK).unwrap();
    assert_eq!(flock(&none, SHARED), Err(Errno::NOLCK));
    flock(&other, UNLOCK).unwrap();
    ant.set_online(true);
    assert!(within(PATIENCE, || flock(&none, EXCLUSIVE).is_ok()));
}

#[test]
fn locks_of_one_machine_are_the_default() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    fs::write(ant.at().join("lock"), "").unwrap();
    assert!(within(PATIENCE, || bee.at().join("lock").exists()));
    let (one, other) = (open(&ant), open(&bee));
    flock(&one, EXCLUSIVE).unwrap();
    flock(&other, EXCLUSIVE).unwrap();
}

/// Locks an open file description instead of a process: `F_OFD_SETLK`.
fn lock_open_file(file: &File) -> Result<(), Option<i32>> {
    // SAFETY: all zeros is a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the call reads the structure, which outlives it.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error()),
    }
}

#[test]
fn a_lock_of_an_open_file_ends_with_it() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = two(&volume);
    let (one, again, other) = (open(&ant), open(&ant), open(&bee));
    assert!(within(PATIENCE, || lock_open_file(&one).is_ok()));
    assert_eq!(lock_open_file(&again), Err(Some(libc::EAGAIN)));
    assert_eq!(lock_open_file(&other), Err(Some(libc::EAGAIN)));
    // Closing another descriptor of the same process releases nothing.
    drop(again);
    assert_eq!(lock_open_file(&other), Err(Some(libc::EAGAIN)));
    drop(one);
    assert!(within(PATIENCE, || lock_open_file(&other).is_ok()), "it outlives its file");
}
