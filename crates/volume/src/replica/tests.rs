//! Tests of replicas against a model, and of crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::id::OwnerId;
use crate::object::{Content, Kind, VersionedObject};

fn open(path: &Path) -> Replica {
    let mut options = Options::new("v", "here".parse().unwrap());
    options.background = false;
    Replica::open(path, options).unwrap()
}

fn new(kind: Kind) -> NewObject<'static> {
    NewObject { kind, mode: 0o644, owner: OwnerId(7), group: OwnerId(8), target: b"" }
}

/// Marks all local changes as committed to the store.
fn agree(replica: &Replica, seq: u64) {
    for pending in replica.pending(usize::MAX).unwrap() {
        match pending {
            LocalChange::Object(object) => {
                let mut stored = VersionedObject {
                    object: object.local,
                    created: Seq(seq),
                    field_versions: BTreeMap::new(),
                    links: 1,
                };
                stored.object.content = Content { size: seq, ..stored.object.content };
                replica.mark_committed(object.num, object.generation, &stored).unwrap();
            }
            LocalChange::Link(link) => {
                let now = link.local.map(|(num, _)| (num, Seq(seq)));
                replica.mark_link_committed(link.parent, &link.name, now).unwrap();
            }
        }
    }
    assert_eq!(replica.pending_count().unwrap(), 0);
}

type Names = BTreeMap<(u64, Vec<u8>), u64>;

fn names(replica: &Replica, query: &str) -> Names {
    replica
        .read(|db| {
            let mut query = db.db.prepare(query)?;
            let rows = query.query_map([], |row| {
                Ok(((row.get::<_, i64>(0)? as u64, row.get(1)?), row.get::<_, i64>(2)? as u64))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .unwrap()
}

/// Returns the names of the base, as the replica has them.
fn agreed(replica: &Replica) -> Names {
    names(
        replica,
        "SELECT parent, name, child FROM link l WHERE NOT EXISTS
            (SELECT 1 FROM base_link b WHERE b.parent = l.parent AND b.name = l.name)
         UNION ALL SELECT parent, name, child FROM base_link WHERE child IS NOT NULL",
    )
}

fn all(replica: &Replica) -> Names {
    names(replica, "SELECT parent, name, child FROM link")
}

/// Checks invariants.
fn check(replica: &Replica) {
    let all = all(replica);
    let mut links = BTreeMap::<u64, u32>::new();
    let mut subdirs = BTreeMap::<u64, u32>::new();
    for ((parent, _), child) in &all {
        *links.entry(*child).or_default() += 1;
        if replica.get(*child).unwrap().is_directory() {
            *subdirs.entry(*parent).or_default() += 1;
        }
    }
    for num in all.values().copied().collect::<BTreeSet<_>>() {
        let inode = replica.get(num).unwrap();
        assert_eq!(inode.links, links[&num], "names of {num}");
        assert_eq!(inode.subdirs, subdirs.get(&num).copied().unwrap_or(0), "directories in {num}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Make(usize, u8, bool),
    Link(usize, usize, u8),
    Remove(usize, u8),
    Rename(usize, u8, usize, u8, u8),
    Mode(usize, u16),
    Write(usize, u8),
    Agree,
    Commit,
    Reopen,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (dir, name) = (0..6_usize, 0..5_u8);
    prop_oneof![
        4 => (dir.clone(), name.clone(), any::<bool>()).prop_map(|(d, n, k)| Step::Make(d, n, k)),
        1 => (0..20_usize, dir.clone(), name.clone()).prop_map(|(o, d, n)| Step::Link(o, d, n)),
        3 => (dir.clone(), name.clone()).prop_map(|(d, n)| Step::Remove(d, n)),
        4 => (dir.clone(), name.clone(), dir, name, 0..4_u8)
            .prop_map(|(d, n, e, m, how)| Step::Rename(d, n, e, m, how)),
        1 => (0..20_usize, 0..0o777_u16).prop_map(|(o, mode)| Step::Mode(o, mode)),
        1 => (0..20_usize, any::<u8>()).prop_map(|(o, byte)| Step::Write(o, byte)),
        1 => Just(Step::Agree),
        1 => Just(Step::Commit),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

/// A model of the tree: names, directories and modes.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    names: Names,
    directories: BTreeSet<u64>,
    modes: BTreeMap<u64, u16>,
}

impl Model {
    fn directory(&self, at: usize) -> u64 {
        let alive: Vec<u64> = std::iter::once(ROOT)
            .chain(self.names.values().copied().filter(|num| self.is_dir(*num)))
            .collect();
        alive[at % alive.len()]
    }

    fn object(&self, at: usize) -> Option<u64> {
        let alive: Vec<u64> = self.names.values().copied().collect();
        (!alive.is_empty()).then(|| alive[at % alive.len()])
    }

    fn is_dir(&self, num: u64) -> bool {
        num == ROOT || self.directories.contains(&num)
    }

    fn is_empty(&self, num: u64) -> bool {
        !self.names.keys().any(|(parent, _)| *parent == num)
    }

    fn is_below(&self, num: u64, above: u64) -> bool {
        num == above
            || num != ROOT
                && self
                    .names
                    .iter()
                    .any(|((parent, _), child)| *child == num && self.is_below(*parent, above))
    }

    fn remove(&mut self, key: &(u64, Vec<u8>)) -> Result<(), Errno> {
        let child = *self.names.get(key).ok_or(Errno::NOENT)?;
        if self.is_dir(child) && !self.is_empty(child) {
            return Err(Errno::NOTEMPTY);
        }
        self.names.remove(key);
        Ok(())
    }

    fn rename(&mut self, from: (u64, Vec<u8>), to: (u64, Vec<u8>), how: Rename) -> Result<(), Errno> {
        let child = *self.names.get(&from).ok_or(Errno::NOENT)?;
        let other = self.names.get(&to).copied();
        if self.is_dir(child) && self.is_below(to.0, child) {
            return Err(Errno::INVAL);
        }
        match (other, how) {
            (None, Rename::Exchange) => return Err(Errno::NOENT),
            (Some(_), Rename::NoReplace) => return Err(Errno::EXIST),
            (Some(other), _) if other == child => return Ok(()),
            (Some(other), Rename::Exchange) => {
                if self.is_dir(other) && self.is_below(from.0, other) {
                    return Err(Errno::INVAL);
                }
                self.names.insert(from, other);
                self.names.insert(to, child);
                return Ok(());
            }
            (Some(other), _) => match (self.is_dir(child), self.is_dir(other)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.is_empty(other) => return Err(Errno::NOTEMPTY),
                _ => {}
            },
            (None, _) => {}
        }
        self.names.remove(&from);
        self.names.insert(to, child);
        Ok(())
    }
}

fn name(byte: u8) -> Vec<u8> {
    vec![b'a' + byte]
}

fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let mut replica = open(directory.path());
    let mut model = Model::default();
    let mut committed = (model.clone(), Names::new());
    let mut base = Names::new();
    let mut seq = 0;
    for step in steps {
        match step {
            Step::Make(at, byte, is_dir) => {
                let parent = model.directory(at);
                let kind = if is_dir { Kind::Directory } else { Kind::Regular };
                let made = replica.make(parent, &name(byte), new(kind));
                if model.names.contains_key(&(parent, name(byte))) {
                    assert_eq!(made.unwrap_err(), Errno::EXIST);
                    continue;
                }
                let num = made.unwrap().ino;
                model.names.insert((parent, name(byte)), num);
                model.modes.insert(num, 0o644);
                model.directories.remove(&num);
                if is_dir {
                    model.directories.insert(num);
                }
            }
            Step::Link(object, at, byte) => {
                let (Some(num), parent) = (model.object(object), model.directory(at)) else { continue };
                let linked = replica.link(num, parent, &name(byte)).map(|_| ());
                let expected = match model.names.contains_key(&(parent, name(byte))) {
                    _ if model.is_dir(num) => Err(Errno::PERM),
                    true => Err(Errno::EXIST),
                    false => {
                        model.names.insert((parent, name(byte)), num);
                        Ok(())
                    }
                };
                assert_eq!(linked, expected);
            }
            Step::Remove(at, byte) => {
                let key = (model.directory(at), name(byte));
                let is_dir = model.names.get(&key).is_some_and(|num| model.is_dir(*num));
                let removed =
                    if is_dir { replica.rmdir(key.0, &key.1) } else { replica.unlink(key.0, &key.1) };
                assert_eq!(removed.map(drop), model.remove(&key));
            }
            Step::Rename(at, byte, to_at, to_byte, how) => {
                let leave = (how == 3).then(|| new(Kind::Character(0, 0)));
                let how =
                    [Rename::Replace, Rename::NoReplace, Rename::Exchange, Rename::Replace][usize::from(how)];
                let from = (model.directory(at), name(byte));
                let to = (model.directory(to_at), name(to_byte));
                let renamed = replica.rename_whiteout(from.0, &from.1, to.0, &to.1, how, leave).map(drop);
                assert_eq!(renamed, model.rename(from.clone(), to, how));
                // Only if something was renamed.
                if leave.is_some() && renamed.is_ok() && !model.names.contains_key(&from) {
                    let left = replica.lookup(from.0, &from.1).unwrap();
                    assert_eq!(left.kind, Kind::Character(0, 0));
                    model.names.insert(from, left.ino);
                    model.modes.insert(left.ino, 0o644);
                    model.directories.remove(&left.ino);
                }
            }
            Step::Mode(object, mode) => {
                let Some(num) = model.object(object) else { continue };
                replica.set(num, SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
                model.modes.insert(num, mode);
            }
            Step::Write(object, byte) => {
                let is_file = |num: &u64| replica.get(*num).unwrap().kind == Kind::Regular;
                let Some(num) = model.object(object).filter(is_file) else { continue };
                let opened = replica.open_file(num, true, true).unwrap();
                (&*opened.file).write_all(&[byte; 3]).unwrap();
                replica.release_open(num, true, opened.session);
                assert_eq!(replica.get(num).unwrap().size, 3);
                // The dirty mark was made durable, with everything before it.
                replica.commit().unwrap();
                committed = (model.clone(), base.clone());
            }
            Step::Agree => {
                seq += 1;
                agree(&replica, seq);
                base = model.names.clone();
                committed = (model.clone(), base.clone());
            }
            Step::Commit => {
                replica.commit().unwrap();
                committed = (model.clone(), base.clone());
            }
            Step::Reopen => {
                replica.commit().unwrap();
                committed = (model.clone(), base.clone());
                drop(replica);
                replica = open(directory.path());
            }
            Step::Crash => {
                drop(replica);
                replica = open(directory.path());
                model = committed.0.clone();
                base = committed.1.clone();
            }
        }
        assert_eq!(all(&replica), model.names);
        assert_eq!(agreed(&replica), base);
    }
    check(&replica);
    for num in model.names.values() {
        assert_eq!(replica.get(*num).unwrap().mode, model.modes[num]);
    }
    drop(replica);
    check(&open(directory.path()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn it_is_the_model(steps in proptest::collection::vec(step(), 1..80)) {
        run(steps);
    }
}

#[test]
fn reverted_change_is_not_a_local_change() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    let made = replica.make(ROOT, b"a", new(Kind::Regular)).unwrap();
    agree(&replica, 1);
    replica.rename(ROOT, b"a", ROOT, b"b", Rename::Replace).unwrap();
    replica.rename(ROOT, b"b", ROOT, b"a", Rename::Replace).unwrap();
    replica.make(ROOT, b"new", new(Kind::Regular)).unwrap();
    replica.unlink(ROOT, b"new").unwrap();
    let pending = replica.pending(10).unwrap();
    // Only the directory's time is left.
    assert!(
        matches!(&pending[..], [LocalChange::Object(top)] if top.num == ROOT && top.dirty == Dirty::MODIFIED)
    );
    assert_eq!(replica.lookup(ROOT, b"a").unwrap().ino, made.ino);
}

#[test]
fn a_change_during_a_push_is_pushed_again() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    let num = replica.make(ROOT, b"a", new(Kind::Regular)).unwrap().ino;
    let pending = replica.pending(10).unwrap();
    replica.set(num, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    replica.unlink(ROOT, b"a").unwrap();
    for pending in pending {
        match pending {
            LocalChange::Object(object) => {
                let stored = VersionedObject {
                    object: object.local,
                    created: Seq(1),
                    field_versions: BTreeMap::new(),
                    links: 1,
                };
                replica.mark_committed(object.num, object.generation, &stored).unwrap();
            }
            LocalChange::Link(link) => {
                replica
                    .mark_link_committed(ROOT, &link.name, link.local.map(|(num, _)| (num, Seq(1))))
                    .unwrap();
            }
        }
    }
    let left = replica.pending(10).unwrap();
    let removed = left.iter().any(|pending| {
        matches!(pending, LocalChange::Link(link)
            if link.name == b"a" && link.local.is_none() && link.base.is_some_and(|base| base.0 == num))
    });
    assert!(removed, "{left:?}");
    replica.mark_link_committed(ROOT, b"a", None).unwrap();
    assert!(replica.read(|db| db.find(num)).unwrap().is_none());
}

#[test]
fn open_file_outlives_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    let num = replica.make(ROOT, b"a", new(Kind::Regular)).unwrap().ino;
    replica.add_lookup(num);
    let opened = replica.open_file(num, true, false).unwrap();
    replica.unlink(ROOT, b"a").unwrap();
    (&*opened.file).write_all(b"more").unwrap();
    assert_eq!((replica.get(num).unwrap().size, replica.get(num).unwrap().links), (4, 0));
    assert!(
        !replica
            .pending(10)
            .unwrap()
            .iter()
            .any(|pending| matches!(pending, LocalChange::Object(o) if o.num == num))
    );
    replica.release_open(num, true, opened.session);
    assert!(replica.get(num).is_ok());
    replica.remove_lookups(num, 1);
    assert_eq!(replica.get(num).unwrap_err(), Errno::STALE);
    assert!(directory.path().join("data/0/2").exists());
    assert_eq!(replica.reap(10).unwrap(), 1);
    assert!(!directory.path().join("data/0/2").exists());
}

#[test]
fn files_that_were_never_committed_go() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    replica.make(ROOT, b"a", new(Kind::Regular)).unwrap();
    replica.commit().unwrap();
    replica.make(ROOT, b"b", new(Kind::Regular)).unwrap();
    assert!(directory.path().join("data/0/3").exists());
    drop(replica);
    let replica = open(directory.path());
    assert!(replica.lookup(ROOT, b"a").is_ok() && replica.lookup(ROOT, b"b").is_err());
    assert!(directory.path().join("data/0/2").exists() && !directory.path().join("data/0/3").exists());
}

#[test]
fn write_before_crash_is_a_local_change() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    let num = replica.make(ROOT, b"a", new(Kind::Regular)).unwrap().ino;
    agree(&replica, 1);
    let opened = replica.open_file(num, true, false).unwrap();
    (&*opened.file).write_all(b"bytes").unwrap();
    drop(replica);
    let replica = open(directory.path());
    let inode = replica.get(num).unwrap();
    assert!(inode.maybe_dirty && inode.size == 5 && inode.dirty.contains(Dirty::CONTENT));
    assert!(matches!(&replica.pending(9).unwrap()[..], [LocalChange::Object(object)] if object.maybe_dirty));
}

#[test]
fn write_to_new_file_before_crash_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let file = replica.make(ROOT, b"f", new(Kind::Regular)).unwrap();
    // A commit may happen between the two at any time.
    replica.commit().unwrap();
    let opened = replica.open_file(file.ino, true, false).unwrap();
    (&*opened.file).write_all(b"written").unwrap();
    drop(replica);
    let replica = open(dir.path());
    assert_eq!(replica.get(file.ino).unwrap().size, 7);
    check(&replica);
}

#[test]
fn a_new_file_that_nobody_wrote_keeps_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let made = replica.make(ROOT, b"f", new(Kind::Regular)).unwrap();
    // As if the backing file were created after the file was given its time.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    let file = std::fs::File::open(dir.path().join(format!("data/0/{:x}", made.ino))).unwrap();
    file.set_modified(later).unwrap();
    replica.commit().unwrap();
    drop(replica);
    let again = open(dir.path()).get(made.ino).unwrap();
    assert_eq!((again.modified, again.changed), (made.modified, made.changed));
}

#[test]
fn one_at_a_time_has_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    let again = Replica::open(directory.path(), Options::new("v", "here".parse().unwrap()));
    assert!(matches!(again, Err(ReplicaError::Busy(_))));
    drop(replica);
    let other = Replica::open(directory.path(), Options::new("w", "here".parse().unwrap()));
    assert!(matches!(other, Err(ReplicaError::Mismatch { property: "volume", .. })));
}

#[test]
fn a_replica_of_a_newer_version_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let db = rusqlite::Connection::open(directory.path().join("replica.db")).unwrap();
    db.execute("UPDATE meta SET value = 99 WHERE key = 'format'", []).unwrap();
    let again = Replica::open(directory.path(), Options::new("v", "here".parse().unwrap())).unwrap_err();
    assert!(
        again.to_string().contains("format 99") && again.to_string().contains("newer version"),
        "{again}"
    );
    let format: u32 =
        db.query_row("SELECT value FROM meta WHERE key = 'format'", [], |row| row.get(0)).unwrap();
    assert_eq!(format, 99);
}

struct Store;

impl Fetcher for Store {
    fn fetch(
        &self,
        _id: crate::id::ObjectId,
        content: &Content,
        range: std::ops::Range<u64>,
        into: &std::fs::File,
    ) -> Result<std::ops::Range<u64>, Errno> {
        // Whole chunks of ten bytes.
        let range = range.start / 10 * 10..range.end.next_multiple_of(10).min(content.size);
        for at in range.clone() {
            std::os::unix::fs::FileExt::write_all_at(into, &[at as u8], at).unwrap();
        }
        Ok(range)
    }
}

#[test]
fn contents_come_when_they_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let replica = open(directory.path());
    let inode = replica.make(ROOT, b"a", new(Kind::Regular)).unwrap();
    agree(&replica, 1);
    let mut stored = replica.apply(|applying| applying.local(&inode)).unwrap();
    stored.object.content = Content { size: 35, digest: [1; 32], ..Content::empty() };
    stored.created = Seq(1);
    replica.apply(|applying| applying.set_object(inode.id, Some(&stored), LocalObject::Agreed)).unwrap();
    let inode = replica.get(inode.ino).unwrap();
    assert_eq!((inode.size, inode.state), (35, CacheState::Absent));
    assert_eq!(replica.ensure_present(inode.ino, 0..5).unwrap_err(), Errno::NETUNREACH);
    assert_eq!(replica.open_file(inode.ino, true, false).unwrap_err(), Errno::NETUNREACH);
    replica.set_fetcher(Some(Arc::new(Store)));
    replica.ensure_present(inode.ino, 12..13).unwrap();
    assert_eq!(replica.get(inode.ino).unwrap().state, CacheState::Partial);
    let opened = replica.open_file(inode.ino, false, false).unwrap();
    assert!(!opened.complete);
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&*opened.file, &mut byte, 15).unwrap();
    assert_eq!(byte, [15]);
    replica.release_open(inode.ino, false, opened.session);
    let opened = replica.open_file(inode.ino, true, false).unwrap();
    assert!(opened.complete && opened.file.metadata().unwrap().len() == 35);
    assert_eq!(std::io::read_to_string(&*opened.file).unwrap().len(), 35);
}
