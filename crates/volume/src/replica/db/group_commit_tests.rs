//! Tests of failing commits, and of the length of the WAL.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use rustix::io::Errno;

use super::*;
use crate::id::OwnerId;
use crate::object::Kind;
use crate::replica::{KernelCache, NewObject, Options, ROOT};

fn open(dir: &Path, background: bool) -> Replica {
    let options = Options { background, ..Options::new("v", "here".parse().unwrap()) };
    Replica::open(dir, options).unwrap()
}

fn make(replica: &Replica, name: &str, target: &[u8]) -> u64 {
    let new = NewObject { kind: Kind::Symlink, mode: 0o777, owner: OwnerId(0), group: OwnerId(0), target };
    replica.make(ROOT, name.as_bytes(), new).unwrap().ino
}

/// Makes the database roll back its commits, as on a full disk.
fn refuse(replica: &Replica, refuse: bool) {
    replica.inner.db.lock().db.commit_hook(refuse.then_some(|| true)).unwrap();
}

#[derive(Default)]
struct InvalidationCount(AtomicU32);

impl KernelCache for InvalidationCount {
    fn object_changed(&self, _num: u64) {}

    fn link_changed(&self, _parent: u64, _name: &[u8], _was_directory: bool) {}

    fn content_changed(&self, _num: u64) {}

    fn names_stale(&self) -> BoxFuture<'static, ()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn rolled_back_change_is_absent_and_replica_continues() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), false);
    let invalidations = Arc::new(InvalidationCount::default());
    replica.set_caches(invalidations.clone());
    make(&replica, "before", b"x");
    replica.commit().unwrap();
    make(&replica, "undone", b"x");
    refuse(&replica, true);
    replica.commit().unwrap_err();
    refuse(&replica, false);
    assert_eq!(invalidations.0.load(Ordering::Relaxed), 1, "the rollback invalidates the caches once");
    assert_eq!(replica.rollbacks(), 1);
    let shows = |replica: &Replica, name: &str| replica.lookup(ROOT, name.as_bytes()).map(|inode| inode.ino);
    assert_eq!(shows(&replica, "undone"), Err(Errno::NOENT));
    make(&replica, "after", b"x");
    replica.sync().unwrap();
    drop(replica);
    let replica = open(dir.path(), false);
    assert!(shows(&replica, "before").is_ok() && shows(&replica, "after").is_ok());
    assert_eq!(shows(&replica, "undone"), Err(Errno::NOENT));
}

/// The kernel reports a failed write once, and lets the next fsync succeed.
#[test]
fn repeated_fsync_does_not_hide_a_failed_one() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), false);
    make(&replica, "sound", b"x");
    replica.sync().unwrap();
    let log = &replica.inner.shared.durability.wal;
    // A pipe is on no disk: EINVAL.
    let (_, pipe) = rustix::pipe::pipe().unwrap();
    let sound = log.put(pipe.into());
    make(&replica, "lost", b"x");
    assert_eq!(replica.sync(), Err(Errno::INVAL));
    log.put(sound);
    assert_eq!(replica.sync(), Err(Errno::IO));
    make(&replica, "after", b"x");
    assert_eq!(replica.sync(), Err(Errno::IO));
    drop(replica);
    let replica = open(dir.path(), false);
    make(&replica, "new", b"x");
    replica.sync().unwrap();
}

#[test]
fn no_number_is_given_twice_whatever_was_undone() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), false);
    make(&replica, "undone", b"x");
    refuse(&replica, true);
    replica.commit().unwrap_err();
    refuse(&replica, false);
    let first = make(&replica, "first", b"x");
    replica.commit().unwrap();
    drop(replica);
    let replica = open(dir.path(), false);
    assert_ne!(make(&replica, "second", b"x"), first);
    assert_eq!(replica.lookup(ROOT, b"first").unwrap().ino, first);
}

/// If the WAL stayed long, each commit would be followed by a checkpoint.
#[test]
fn the_log_is_short_again_after_it_was_long() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), true);
    let mut made = 0_u32;
    let mut more = |many| {
        for _ in 0..many {
            made += 1;
            make(&replica, &made.to_string(), &[b'x'; 1000]);
        }
        replica.commit().unwrap();
        replica.inner.shared.durability.wal_length()
    };
    while more(100) < CHECKPOINT_WAL_BYTES {}
    let is_short = |_| {
        std::thread::sleep(Duration::from_millis(50));
        more(1) < CHECKPOINT_WAL_BYTES
    };
    assert!((0..200).any(is_short));
}

/// SQLite writes to the index as the WAL grows, amid acknowledged changes.
#[test]
fn the_index_of_the_log_has_room_as_the_log_has() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), true);
    let database = replica.inner.db.lock().db.path().unwrap().to_owned();
    let beyond = |suffix: &str| {
        let about = std::fs::metadata(format!("{database}{suffix}")).unwrap();
        (about.len(), (about.blocks() * 512).saturating_sub(about.len()))
    };
    // The index locates pages of the WAL. A reader of an old snapshot prevents checkpoints.
    let reader = Connection::open(&database).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM object").unwrap();
    let (first, _) = beyond("-shm");
    let mut made = 0_u32;
    while beyond("-shm").0 <= first {
        for _ in 0..1000 {
            made += 1;
            make(&replica, &made.to_string(), &[b'x'; 3000]);
        }
        replica.commit().unwrap();
        let (log, index) = (beyond("-wal").1, beyond("-shm").1);
        assert!(log >= 8 << 20 && index >= 32 << 10, "{log} and {index} bytes after {made} links");
        assert!(made < 100_000, "the index never grows");
    }
}
