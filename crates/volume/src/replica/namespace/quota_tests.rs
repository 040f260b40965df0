//! Tests that the counted usage matches the objects, after any changes and restarts.

use rusqlite::Connection;

use crate::id::OwnerId;
use crate::object::Kind;
use crate::quota::Usage;
use crate::replica::{NewObject, Options, ROOT, Rename, Replica, SetAttr};

fn open(at: &std::path::Path) -> Replica {
    let options = Options { background: false, ..Options::new("v", "here".parse().unwrap()) };
    Replica::open(at, options).unwrap()
}

fn make(replica: &Replica, name: &str, user: u32, kind: Kind) -> u64 {
    let (owner, target) = (OwnerId(user), if kind == Kind::Symlink { &b"target"[..] } else { b"" });
    let new = NewObject { kind, mode: 0o755, owner, group: OwnerId(0), target };
    replica.make(ROOT, name.as_bytes(), new).unwrap().ino
}

fn write(replica: &Replica, num: u64, size: u64) {
    let opened = replica.open_file(num, true, false).unwrap();
    opened.file.set_len(size).unwrap();
    replica.release_open(num, true, opened.session);
}

#[track_caller]
fn counts(replica: &Replica, expected: &[(u32, u64, u64)]) {
    let quota = replica.quota().unwrap();
    let found: Vec<_> = quota.users.iter().map(|(user, held)| (*user, held.bytes, held.objects)).collect();
    assert_eq!(found, expected);
    let all = expected.iter().fold(Usage::default(), |all, (_, bytes, objects)| Usage {
        bytes: all.bytes + bytes,
        objects: all.objects + objects,
    });
    assert_eq!(quota.used, all);
}

#[test]
fn counted_usage_matches_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    counts(&replica, &[]);
    let file = make(&replica, "file", 7, Kind::Regular);
    make(&replica, "dir", 7, Kind::Directory);
    make(&replica, "link", 0, Kind::Symlink);
    write(&replica, file, 1000);
    counts(&replica, &[(0, 0, 1), (7, 1000, 2)]);
    replica.link(file, ROOT, b"again").unwrap();
    replica.set(file, SetAttr { owner: Some(OwnerId(8)), ..SetAttr::default() }).unwrap();
    counts(&replica, &[(0, 0, 1), (7, 0, 1), (8, 1000, 1)]);
    replica.unlink(ROOT, b"again").unwrap();
    // An unlinked object counts while it is open, and not while the kernel only references it.
    replica.add_lookup(file);
    let opened = replica.open_file(file, false, false).unwrap();
    replica.unlink(ROOT, b"file").unwrap();
    counts(&replica, &[(0, 0, 1), (7, 0, 1), (8, 1000, 1)]);
    replica.release_open(file, false, opened.session);
    counts(&replica, &[(0, 0, 1), (7, 0, 1)]);
    replica.remove_lookups(file, 1);
    let other = make(&replica, "other", 9, Kind::Regular);
    write(&replica, other, 50);
    replica.rename(ROOT, b"link", ROOT, b"other", Rename::Replace).unwrap();
    counts(&replica, &[(0, 0, 1), (7, 0, 1)]);
    let last = make(&replica, "last", 9, Kind::Regular);
    write(&replica, last, 70);
    // An open, unlinked file at the time of a restart.
    let lost = make(&replica, "lost", 9, Kind::Regular);
    write(&replica, lost, 500);
    replica.open_file(lost, true, false).unwrap();
    replica.unlink(ROOT, b"lost").unwrap();
    let expected = [(0, 0, 1), (7, 0, 1), (9, 70, 1)];
    counts(&replica, &[(0, 0, 1), (7, 0, 1), (9, 570, 2)]);
    replica.commit().unwrap();
    drop(replica);
    assert_eq!(Replica::check_usage(dir.path(), false).unwrap(), Some(vec![]));
    let replica = open(dir.path());
    counts(&replica, &expected);
    drop(replica);

    // The database of an older version.
    let db = Connection::open(dir.path().join("replica.db")).unwrap();
    db.execute_batch("DROP TABLE usage; UPDATE meta SET value = 3 WHERE key = 'format'").unwrap();
    assert_eq!(Replica::check_usage(dir.path(), false).unwrap(), None);
    counts(&open(dir.path()), &expected);
    db.execute("UPDATE usage SET objects = 5 WHERE owner = 9", []).unwrap();
    let reported = Replica::check_usage(dir.path(), false).unwrap().unwrap();
    assert_eq!(reported, ["user 9: 70 bytes in 5 objects recorded on this machine, 70 in 1 found"]);
    Replica::check_usage(dir.path(), true).unwrap();
    counts(&open(dir.path()), &expected);
}

#[test]
fn failed_operation_does_not_change_usage() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let file = make(&replica, "file", 7, Kind::Regular);
    write(&replica, file, 10);
    replica.commit().unwrap();
    let failed: Result<(), _> = replica.apply(|applying| {
        applying.set_link(ROOT, b"file", None, None)?;
        Err(rustix::io::Errno::IO)
    });
    failed.unwrap_err();
    counts(&replica, &[(7, 10, 1)]);
}
