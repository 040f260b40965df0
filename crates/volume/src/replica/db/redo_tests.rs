//! A replica is abandoned as by SIGKILL, at any moment, and continued by another one with the redo log.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::{HEAD, LOG_AT, RedoLog};
use crate::id::OwnerId;
use crate::object::Kind;
use crate::replica::{NewObject, Options, ROOT, Rename, Replica, SetAttr};

#[derive(Clone)]
struct Memory(Arc<[AtomicU64]>);

impl Deref for Memory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

fn memory() -> Memory {
    Memory((0..RedoLog::WORDS).map(|_| AtomicU64::new(0)).collect())
}

fn options(log: RedoLog) -> Options {
    let mut options = Options::new("redo", "node".parse().unwrap());
    options.background = false;
    options.redo = Some(Arc::new(log));
    options
}

fn begin(dir: &Path, memory: &Memory) -> Replica {
    Replica::open(dir, options(RedoLog::create(Box::new(memory.clone())).unwrap())).unwrap()
}

/// Ends a replica without a commit, as SIGKILL does, and continues with another one.
fn kill(replica: Replica, dir: &Path, memory: &Memory) -> Replica {
    let lock: Arc<OwnedFd> = Arc::new(replica.lock().try_clone_to_owned().unwrap());
    // The transaction is rolled back when the connection is closed.
    drop(replica);
    let log = RedoLog::open(Box::new(memory.clone())).unwrap();
    Replica::open(dir, Options { inherited_lock: Some(lock), ..options(log) }).unwrap()
}

fn new(kind: Kind) -> NewObject<'static> {
    NewObject { kind, mode: 0o755, owner: OwnerId(3), group: OwnerId(4), target: b"" }
}

#[test]
fn changes_without_a_commit_survive() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
    let replica = begin(dir.path(), &memory);
    let directory = replica.make(ROOT, b"directory", new(Kind::Directory)).unwrap();
    let file = replica.make(directory.ino, b"file\x01'", new(Kind::Regular)).unwrap();
    replica.commit().unwrap();
    replica.link(file.ino, ROOT, b"link").unwrap();
    replica.rename(directory.ino, b"file\x01'", ROOT, b"renamed", Rename::Replace).unwrap();
    replica.set_xattr(file.ino, b"user.name", Some(b"it's \0 a value"), Some(false)).unwrap();
    replica.set(file.ino, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    let removed = replica.make(ROOT, b"removed", new(Kind::Fifo)).unwrap();
    replica.unlink(ROOT, b"removed").unwrap();
    let (before, quota) = (replica.get(file.ino).unwrap(), replica.quota().unwrap());

    let mut replica = kill(replica, dir.path(), &memory);
    for _ in 0..2 {
        let after = replica.lookup(ROOT, b"renamed").unwrap();
        assert_eq!((after.ino, after.id, after.mode, after.links), (file.ino, file.id, 0o600, 2));
        assert_eq!((after.changed, after.dirty), (before.changed, before.dirty));
        assert_eq!(replica.lookup(ROOT, b"link").unwrap().ino, file.ino);
        assert_eq!(replica.lookup(directory.ino, b"file\x01'").unwrap_err(), Errno::NOENT);
        assert_eq!(replica.xattr(file.ino, b"user.name").unwrap(), b"it's \0 a value");
        assert_eq!(replica.get(removed.ino).unwrap_err(), Errno::STALE);
        assert_eq!(replica.quota().unwrap(), quota);
        let another = replica.make(ROOT, b"another", new(Kind::Regular)).unwrap();
        assert!(another.ino > removed.ino, "numbers are not reused");
        replica.unlink(ROOT, b"another").unwrap();
        replica.remove_lookups(another.ino, 1);
        // Nothing is executed twice.
        replica = kill(replica, dir.path(), &memory);
    }
}

#[test]
fn a_log_that_was_committed_is_not_executed_again() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
    let replica = begin(dir.path(), &memory);
    replica.make(ROOT, b"first", new(Kind::Directory)).unwrap();
    let head = memory[HEAD].load(Ordering::Relaxed);
    replica.commit().unwrap();
    replica.rename(ROOT, b"first", ROOT, b"second", Rename::Replace).unwrap();
    replica.commit().unwrap();
    // As if the process had been killed between the first commit and the emptying of the log.
    memory[HEAD].store(head, Ordering::Relaxed);
    let replica = kill(replica, dir.path(), &memory);
    assert_eq!(replica.lookup(ROOT, b"first").unwrap_err(), Errno::NOENT);
    replica.lookup(ROOT, b"second").unwrap();
}

#[test]
fn results_of_requests_are_found_whether_committed_or_not() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
    let replica = begin(dir.path(), &memory);
    let make = |replica: &Replica, request, name: &[u8]| {
        replica.execute_for(request, |replica| replica.make(ROOT, name, new(Kind::Regular)))
    };
    let first = make(&replica, 2, b"first").unwrap();
    replica.commit().unwrap();
    let second = make(&replica, 4, b"second").unwrap();
    assert_eq!(make(&replica, 6, b"second").unwrap_err(), Errno::EXIST);
    replica.execute_for(8, |replica| replica.unlink(ROOT, b"first")).unwrap();
    replica.make(ROOT, b"third", new(Kind::Regular)).unwrap();
    let mut replica = kill(replica, dir.path(), &memory);
    for _ in 0..2 {
        assert_eq!(replica.earlier_result(2), Some(first.ino));
        assert_eq!(replica.earlier_result(4), Some(second.ino));
        assert_eq!(replica.earlier_result(6), None, "it failed");
        assert_eq!(replica.earlier_result(8), Some(first.ino));
        replica = kill(replica, dir.path(), &memory);
    }
}

#[test]
fn unlinked_files_stay_until_the_kernel_forgets_them() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
    let replica = begin(dir.path(), &memory);
    let open = replica.make(ROOT, b"open", new(Kind::Regular)).unwrap();
    let known = replica.make(ROOT, b"known", new(Kind::Directory)).unwrap();
    let opened = replica.open_file(open.ino, true, false).unwrap();
    std::io::Write::write_all(&mut &*opened.file, b"content").unwrap();
    [open.ino, known.ino].into_iter().for_each(|num| replica.add_lookup(num));
    replica.unlink(ROOT, b"open").unwrap();
    replica.rmdir(ROOT, b"known").unwrap();
    let nameless = replica.create_tmpfile(ROOT, new(Kind::Regular)).unwrap();

    let replica = kill(replica, dir.path(), &memory);
    let adopted = replica.adopt_open(open.ino, true).unwrap();
    assert_eq!(replica.get(open.ino).unwrap().size, 7);
    assert_eq!(replica.get(known.ino).unwrap().links, 0);
    let mut doubtful = replica.doubtful_unlinked();
    doubtful.sort_unstable();
    assert_eq!(doubtful, [known.ino, nameless.ino]);
    replica.link(nameless.ino, ROOT, b"named").unwrap();
    replica.remove_lookups(known.ino, 1);
    assert_eq!(replica.get(known.ino).unwrap_err(), Errno::STALE);
    // FORGET may be handled before RELEASE.
    replica.remove_lookups(open.ino, 1);
    replica.get(open.ino).unwrap();
    replica.release_open(open.ino, true, adopted.session);
    assert_eq!(replica.get(open.ino).unwrap_err(), Errno::STALE);
}

#[test]
fn adopted_files_keep_their_times_and_lengths() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
    let replica = begin(dir.path(), &memory);
    let file = replica.make(ROOT, b"file", new(Kind::Regular)).unwrap();
    let opened = replica.open_file(file.ino, true, false).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::io::Write::write_all(&mut &*opened.file, b"written past the daemon").unwrap();
    let before = replica.get(file.ino).unwrap();
    assert!(before.modified > file.modified);
    let replica = kill(replica, dir.path(), &memory);
    let adopted = replica.adopt_open(file.ino, true).unwrap();
    let after = replica.get(file.ino).unwrap();
    assert_eq!((after.size, after.modified), (before.size, before.modified));
    assert!(replica.release_open(file.ino, true, adopted.session) || after.size == 23);
    assert_eq!(replica.get(file.ino).unwrap().modified, before.modified);
}

/// A damaged log loses changes, but neither panics nor damages what was committed.
#[test]
fn a_damaged_log_is_survived() {
    for damage in [0, 1, u64::MAX] {
        let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
        let replica = begin(dir.path(), &memory);
        replica.make(ROOT, b"committed", new(Kind::Regular)).unwrap();
        replica.commit().unwrap();
        replica.make(ROOT, b"lost", new(Kind::Regular)).unwrap();
        memory[LOG_AT].store(damage, Ordering::Relaxed);
        let replica = kill(replica, dir.path(), &memory);
        replica.lookup(ROOT, b"committed").unwrap();
        assert_eq!(replica.lookup(ROOT, b"lost").unwrap_err(), Errno::NOENT);
    }
    assert!(RedoLog::open(Box::new(memory())).is_err(), "no log was begun");
}

#[test]
fn a_full_log_is_committed() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), memory());
    let replica = begin(dir.path(), &memory);
    let file = replica.make(ROOT, b"file", new(Kind::Regular)).unwrap();
    let value = vec![b'v'; 65_000];
    for n in 0..300 {
        let set = |replica: &Replica| replica.set_xattr(file.ino, b"user.v", Some(&value), None);
        replica.execute_for(n + 1, set).unwrap();
    }
    let replica = kill(replica, dir.path(), &memory);
    assert_eq!(replica.xattr(file.ino, b"user.v").unwrap().len(), 65_000);
    assert!((1..=300).all(|request| replica.earlier_result(request) == Some(0)));
}
