//! Volumes with a sealed log: nodes refuse changes of the metadata made without the key.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, params};
use rustix::io::Errno;
use shunt_volume::address::{DataAddress, MetaAddress};
use shunt_volume::crypto::VolumeKey;
use shunt_volume::gateway::{Gateway, NodeRegistry, Role, Token, join};
use shunt_volume::id::{ObjectId, OwnerId, Seq, VolumeName};
use shunt_volume::maintenance::volume_settings;
use shunt_volume::maintenance::{Depth, LogRetention, Problem, collect, fsck};
use shunt_volume::object::{Content, Kind, Layout, LinkName, Object, Segment, Time, VersionedObject};
use shunt_volume::open::{self, OpenError};
use shunt_volume::replica::{NewObject, Options, ROOT, Replica, SetAttr, StoreFetcher, SyncAdapter};
use shunt_volume::store::{Mutation, SqliteStore, StoreError, Transaction};
use shunt_volume::sync::{LinkState, RoundObserver, Runner, Step, SyncError, Synchroniser};
use shunt_volume::upgrade::{Upgraded, upgrade};
use shunt_volume::volume::{KeyError, Volume, VolumeDescriptor};
use tempfile::TempDir;

struct Cluster {
    dir: TempDir,
    secret: VolumeKey,
}

struct TestNode {
    replica: Arc<Replica>,
    sync: Synchroniser<SyncAdapter>,
}

fn name() -> VolumeName {
    "diary".parse().unwrap()
}

fn top() -> Object {
    Object {
        id: ObjectId::ROOT,
        kind: Kind::Directory,
        mode: 0o750,
        owner: OwnerId(7),
        group: OwnerId(8),
        modified: Time(1),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    }
}

impl Cluster {
    fn new() -> Self {
        let cluster = Self { dir: TempDir::new().unwrap(), secret: VolumeKey::random() };
        let secret = Some(cluster.secret.clone());
        open::create(&cluster.meta(), &name(), &open::Options { secret, ..Default::default() }).unwrap();
        cluster
    }

    /// Creates a volume as the version before this format did.
    fn of_format_2() -> Self {
        let cluster = Self { dir: TempDir::new().unwrap(), secret: VolumeKey::random() };
        let described = VolumeDescriptor {
            name: name(),
            id: 77,
            made: Time(0),
            data: DataAddress::Beside,
            names: [0; 32],
            mark: Some(cluster.secret.mark()),
            hides_names: true,
            sealed: None,
        };
        let about = described.to_bytes();
        assert_eq!(about[..4], [2, 0, 0, 0]);
        SqliteStore::create(&cluster.dir.path().join("meta.db"), &name(), &top(), &about).unwrap();
        cluster
    }

    fn meta(&self) -> MetaAddress {
        MetaAddress::Sqlite(self.dir.path().to_owned())
    }

    fn open(&self) -> Volume {
        open::open(&self.meta(), &name(), Some(&self.secret)).unwrap()
    }

    fn node(&self, node: &str) -> TestNode {
        self.node_over(&self.open(), node)
    }

    fn node_over(&self, volume: &Volume, node: &str) -> TestNode {
        let replica =
            Replica::open(&self.dir.path().join(node), Options::new("diary", node.parse().unwrap())).unwrap();
        let replica = Arc::new(replica);
        let from = StoreFetcher::new(volume.meta.clone(), volume.content.clone());
        replica.set_fetcher(Some(Arc::new(from)));
        let site = SyncAdapter::new(replica.clone(), volume.meta.clone(), volume.content.clone());
        let sync = Synchroniser::new(site, volume.meta.clone(), node.parse().unwrap(), rand::random);
        TestNode { replica, sync }
    }

    fn db(&self) -> Db {
        Db(Connection::open(self.dir.path().join("meta.db")).unwrap())
    }

    fn check(&self) -> Vec<String> {
        let checked = fsck(&self.open(), Depth::Locations, &|_, _| ()).unwrap();
        let altered =
            |problem: &Problem| matches!(problem, Problem::Tampered(_)).then(|| problem.to_string());
        checked.problems.iter().filter_map(altered).collect()
    }
}

impl TestNode {
    fn settle(&mut self) {
        for _ in 0..50 {
            let step = self.sync.step().unwrap();
            if (Step { blocked: 0, ..step }) == Step::default() {
                return;
            }
        }
        panic!("there is no end");
    }

    fn make(&mut self, parent: u64, name: &str, kind: Kind) -> u64 {
        let new = NewObject { kind, mode: 0o644, owner: OwnerId(0), group: OwnerId(0), target: b"" };
        self.replica.make(parent, name.as_bytes(), new).unwrap().ino
    }

    /// Writes a file in a commit of its own.
    fn write(&mut self, parent: u64, name: &str, bytes: &[u8]) -> u64 {
        let num = match self.replica.lookup(parent, name.as_bytes()) {
            Ok(node) => node.ino,
            Err(_) => self.make(parent, name, Kind::Regular),
        };
        let opened = self.replica.open_file(num, true, true).unwrap();
        opened.file.set_len(0).unwrap();
        (&*opened.file).write_all(bytes).unwrap();
        self.replica.release_open(num, true, opened.session);
        self.settle();
        num
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let step = |at, name: &str| self.replica.lookup(at, name.as_bytes()).map(|node| node.ino);
        let num = path.split('/').try_fold(ROOT, step)?;
        self.replica.ensure_present(num, 0..u64::MAX)?;
        let opened = self.replica.open_file(num, false, false)?;
        let mut bytes = Vec::new();
        (&*opened.file).read_to_end(&mut bytes).unwrap();
        self.replica.release_open(num, false, opened.session);
        Ok(bytes)
    }

    /// Returns the error line of the next round.
    fn refusal(&mut self) -> String {
        let error = self.sync.step().unwrap_err();
        assert!(
            matches!(error, SyncError::Store(StoreError::Tampered(_)) | SyncError::WentBack(_)),
            "{error:?}"
        );
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    }
}

/// Direct access to the metadata, as an attacker without the key has it.
struct Db(Connection);

impl Db {
    fn head(&self) -> i64 {
        self.0.query_row("SELECT head FROM about", [], |row| row.get(0)).unwrap()
    }

    fn entry(&self, seq: i64) -> Vec<Mutation> {
        let sql = "SELECT change FROM log WHERE seq = ?";
        let bytes: Vec<u8> = self.0.query_row(sql, [seq], |row| row.get(0)).unwrap();
        postcard::from_bytes(&bytes).unwrap()
    }

    fn row(&self, seq: i64) -> (String, i64, Vec<u8>) {
        let sql = "SELECT node, at, change FROM log WHERE seq = ?";
        self.0.query_row(sql, [seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    }

    fn set_row(&self, seq: i64, (node, at, change): &(String, i64, Vec<u8>)) {
        let sql = "UPDATE log SET node = ?, at = ?, change = ? WHERE seq = ?";
        assert_eq!(self.0.execute(sql, params![node, at, change, seq]).unwrap(), 1);
    }

    fn put(&self, seq: i64, change: &[Mutation]) {
        let bytes = postcard::to_stdvec(change).unwrap();
        let sql = "UPDATE log SET change = ? WHERE seq = ?";
        assert_eq!(self.0.execute(sql, params![bytes, seq]).unwrap(), 1);
    }

    /// Returns the last log entry with such a change.
    fn last(&self, is_it: impl Fn(&Mutation) -> bool) -> i64 {
        (1..=self.head()).rev().find(|seq| self.entry(*seq).iter().any(&is_it)).unwrap()
    }

    /// Changes a log entry. `edit` returns whether it applied to a mutation.
    fn edit(&self, seq: i64, edit: impl Fn(&mut Mutation) -> bool) {
        let mut change = self.entry(seq);
        assert!(change.iter_mut().any(&edit), "{change:?}");
        self.put(seq, &change);
    }

    fn content(&self, seq: i64) -> Content {
        let content = |change: &Mutation| match change {
            Mutation::Make(object) if object.kind == Kind::Regular => Some(object.content.clone()),
            Mutation::SetContent(_, content, _) => Some(content.clone()),
            _ => None,
        };
        self.entry(seq).iter().find_map(content).unwrap()
    }

    fn set_content(&self, seq: i64, content: &Content) {
        self.edit(seq, |change| match change {
            Mutation::Make(object) if object.kind == Kind::Regular => {
                object.content = content.clone();
                true
            }
            Mutation::SetContent(_, of, _) => {
                *of = content.clone();
                true
            }
            _ => false,
        });
    }

    fn run(&self, sql: &str) {
        self.0.execute_batch(sql).unwrap();
    }
}

/// Sequence numbers of the commits made by [`late`].
struct Late {
    x: i64,
    y: i64,
    mode: i64,
    owner: i64,
    again: i64,
    last: i64,
}

fn holds(change: &Mutation) -> bool {
    match change {
        Mutation::Make(object) => object.kind == Kind::Regular,
        change => matches!(change, Mutation::SetContent(..)),
    }
}

/// Makes commits before and after the position that bee has followed.
fn late(cluster: &Cluster) -> (TestNode, Late) {
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let (a, b) = (ant.make(ROOT, "a", Kind::Directory), ant.make(ROOT, "b", Kind::Directory));
    let tool = ant.write(ROOT, "tool", b"#!/bin/sh");
    ant.write(ROOT, "kept", b"what was here before");
    bee.settle();
    assert_eq!(bee.read("kept").unwrap(), b"what was here before");
    let db = cluster.db();
    ant.write(a, "x", b"the first of x");
    let x = db.last(holds);
    ant.write(b, "y", b"all there is of y");
    let y = db.last(holds);
    ant.replica.set(tool, SetAttr { mode: Some(0o755), ..SetAttr::default() }).unwrap();
    ant.settle();
    let mode = db.last(|change| matches!(change, Mutation::SetMode(..)));
    ant.replica.set(tool, SetAttr { owner: Some(OwnerId(5)), ..SetAttr::default() }).unwrap();
    ant.settle();
    let owner = db.last(|change| matches!(change, Mutation::SetOwner(..)));
    ant.write(a, "x", b"the second of x");
    let again = db.last(holds);
    ant.write(ROOT, "last", b"last");
    let last = db.head();
    assert!(x < y && y < mode && mode < owner && owner < again && again < last);
    (bee, Late { x, y, mode, owner, again, last })
}

/// Tampers with the metadata as an attacker without the key: a node that follows the log refuses that, and so does a new one.
fn refused(line: &str, tamper: impl Fn(&Db, &Late)) {
    let cluster = Cluster::new();
    let (mut bee, late) = late(&cluster);
    assert_eq!(cluster.check(), [""; 0]);
    tamper(&cluster.db(), &late);
    let names = |machine: &TestNode| machine.replica.list(ROOT, b"", 100).unwrap().len();
    for _ in 0..2 {
        let refusal = bee.refusal();
        assert!(refusal.contains(line), "{refusal}");
        assert_eq!(bee.read("kept").unwrap(), b"what was here before");
        assert_eq!(names(&bee), 4);
    }
    let mut cat = cluster.node("cat");
    let refusal = cat.refusal();
    assert!(refusal.starts_with("the store was tampered with: "), "{refusal}");
    assert_eq!(names(&cat), 0);
    let problems = cluster.check();
    assert!(problems.iter().any(|problem| problem.contains(line)), "{problems:?}");
    // Also after a restart.
    drop(bee);
    assert!(cluster.node("bee").refusal().contains(line));
}

const CHANGED: &str = "was changed after it was sealed";

#[test]
fn contents_of_files_are_not_exchanged() {
    refused(CHANGED, |db, late| {
        let (x, y) = (db.content(late.x), db.content(late.y));
        db.set_content(late.x, &y);
        db.set_content(late.y, &x);
    });
}

#[test]
fn a_piece_is_not_replaced_by_a_hole() {
    refused(CHANGED, |db, late| {
        let content = db.content(late.y);
        let layout = Layout::Direct(vec![Segment::Hole { length: content.size }]);
        db.set_content(late.y, &Content { layout, ..content });
    });
}

#[test]
fn a_file_does_not_go_back_to_an_old_version() {
    refused(CHANGED, |db, late| db.set_content(late.again, &db.content(late.x)));
}

#[test]
fn attributes_are_not_changed() {
    refused(CHANGED, |db, late| {
        db.edit(late.mode, |change| match change {
            Mutation::SetMode(_, mode) => {
                *mode |= 0o4000;
                true
            }
            _ => false,
        });
    });
    refused(CHANGED, |db, late| {
        db.edit(late.owner, |change| match change {
            Mutation::SetOwner(_, owner) => {
                *owner = OwnerId(0);
                true
            }
            _ => false,
        });
    });
}

#[test]
fn names_are_not_exchanged() {
    let link = |db: &Db, seq: i64| -> (LinkName, ObjectId) {
        let link = |change: &Mutation| match change {
            Mutation::Link(at, child) => Some((at.clone(), *child)),
            _ => None,
        };
        db.entry(seq).iter().find_map(link).unwrap()
    };
    refused(CHANGED, |db, late| {
        let (x, y) = (link(db, late.x).1, link(db, late.y).1);
        for (seq, child) in [(late.x, y), (late.y, x)] {
            db.edit(seq, |change| match change {
                Mutation::Link(_, of) => {
                    *of = child;
                    true
                }
                _ => false,
            });
        }
    });
}

#[test]
fn commits_are_not_reordered_left_out_or_made_again() {
    refused("saw another log", |db, Late { x, y, .. }| {
        db.run(&format!(
            "UPDATE log SET seq = -1 WHERE seq = {x}; UPDATE log SET seq = {x} WHERE seq = {y};
             UPDATE log SET seq = {y} WHERE seq = -1;"
        ));
    });
    refused("saw another log", |db, Late { owner, last, .. }| {
        db.run(&format!("DELETE FROM log WHERE seq = {owner};"));
        for seq in owner + 1..=*last {
            db.run(&format!("UPDATE log SET seq = {seq} - 1 WHERE seq = {seq};"));
        }
        db.run("UPDATE about SET head = head - 1;");
    });
    refused("follows", |db, Late { owner, .. }| db.run(&format!("DELETE FROM log WHERE seq = {owner};")));
    refused("repeats an older one", |db, Late { x, .. }| {
        db.run(&format!(
            "INSERT INTO log SELECT (SELECT head + 1 FROM about), node, at, change FROM log WHERE seq = {x};
             UPDATE about SET head = head + 1;"
        ));
    });
    // Under the name of another node, or without a seal.
    refused(CHANGED, |db, Late { y, .. }| db.run(&format!("UPDATE log SET node = 'eve' WHERE seq = {y};")));
    refused("was not sealed", |db, Late { mode, .. }| {
        let mut change = db.entry(*mode);
        assert!(matches!(change.pop(), Some(Mutation::Seal(_))));
        db.put(*mode, &change);
    });
}

#[test]
fn a_log_that_went_back_is_refused_by_who_has_seen_more() {
    let cluster = Cluster::new();
    let (mut bee, _) = late(&cluster);
    let db = cluster.db();
    let old = cluster.dir.path().join("old.db");
    db.run(&format!("VACUUM INTO '{}'; ATTACH '{0}' AS old;", old.display()));
    let mut ant = cluster.node("ant");
    ant.write(ROOT, "newest", b"newest");
    bee.settle();
    assert_eq!(bee.read("newest").unwrap(), b"newest");
    for table in ["about", "object", "link", "log", "past_object", "past_link", "chunk", "answer"] {
        db.run(&format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM old.{table};"));
    }
    assert!(bee.refusal().contains("the store was rolled back"));
    // Another node commits as many: the log has its old length again.
    let mut dog = cluster.node("dog");
    for n in 0..3 {
        dog.write(ROOT, &format!("other{n}"), b"");
    }
    assert!(bee.refusal().contains("the store was rolled back"));
    assert_eq!(bee.read("newest").unwrap(), b"newest");
    // Nor may the log begin later than before.
    db.run("DELETE FROM log WHERE seq <= 2; UPDATE about SET forgotten = 2;");
    assert!(cluster.node("elk").refusal().contains("does not go back to the beginning"));
}

#[test]
fn commits_through_gateway_are_sealed() {
    let cluster = Cluster::new();
    let blind = open::open_to_serve(&cluster.meta(), &name()).unwrap();
    let book = Arc::new(NodeRegistry::open(&cluster.dir.path().join("book")).unwrap());
    let serving = Gateway::new(&blind, book.clone()).unwrap().listen("127.0.0.1:0").unwrap();
    let secret = book.invite(Role::Write, Duration::from_secs(60)).unwrap();
    let token = Token::new(serving.address().to_string(), name(), &book, secret);
    let credentials = cluster.dir.path().join("credentials");
    join(&token, &"far".parse().unwrap()).unwrap().save(&credentials).unwrap();
    let there = MetaAddress::Gateway(credentials);
    let volume = open::open(&there, &name(), Some(&cluster.secret)).unwrap();
    let (mut far, mut near) = (cluster.node_over(&volume, "far"), cluster.node("near"));
    near.write(ROOT, "near", b"of near");
    far.settle();
    far.write(ROOT, "far", b"of far");
    near.settle();
    assert_eq!(far.read("near").unwrap(), b"of near");
    assert_eq!(near.read("far").unwrap(), b"of far");
    let id = near.replica.lookup(ROOT, b"far").unwrap().id;
    assert!(!volume.meta.history().unwrap().versions(id).unwrap().is_empty());
    assert_eq!(cluster.check(), [""; 0]);

    // A gateway accepts only sealed commits, and nodes trust nothing for coming from it.
    let there = open::open_without_key(&there, &name()).unwrap();
    let item =
        Transaction { mutations: vec![Mutation::SetMode(ObjectId::ROOT, 0o777)], ..Transaction::default() };
    let refused = there.meta.commit(&"far".parse().unwrap(), 1, &[item]);
    assert!(matches!(refused, Err(StoreError::Denied(_))), "{refused:?}");
    near.write(ROOT, "more", b"");
    let db = cluster.db();
    let seq = db.last(holds);
    db.run(&format!("UPDATE log SET node = 'far' WHERE seq = {seq};"));
    assert!(far.refusal().contains(CHANGED));
    serving.stop().unwrap();
}

/// Counter of synchronisation rounds.
#[derive(Default)]
struct Count(AtomicU64);

impl RoundObserver for Count {
    fn begin(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn end(&self, _began: u64, _is_all: bool, _cursor: Seq) {}
}

#[test]
fn refused_log_is_not_requested_continuously() {
    let cluster = Cluster::new();
    let (bee, late) = late(&cluster);
    cluster.db().run(&format!("UPDATE log SET node = 'eve' WHERE seq = {};", late.y));
    let runner = Runner::start(bee.sync, cluster.open().meta, true).unwrap();
    let count = Arc::new(Count::default());
    runner.set_rounds(count.clone());
    std::thread::sleep(Duration::from_secs(4));
    let LinkState::Stopped(reason) = runner.progress().link else { panic!("{:?}", runner.progress()) };
    assert!(reason.contains(CHANGED), "{reason}");
    assert!((2..20).contains(&count.0.load(Ordering::SeqCst)), "{count:?}", count = count.0);
}

/// A store that shows one node a log of its own is detected by the next commit that it passes on.
#[test]
fn a_log_of_its_own_for_one_machine_is_found_out() {
    let cluster = Cluster::new();
    let (mut bee, late) = late(&cluster);
    let db = cluster.db();
    // Bee does not see the last commit, and commits in its place.
    let of_ant = db.row(late.last);
    db.run(&format!("DELETE FROM log WHERE seq = {}; UPDATE about SET head = head - 1;", late.last));
    bee.write(ROOT, "of-bee", b"");
    let of_bee = db.row(late.last);
    // Ant continues with its own log.
    db.set_row(late.last, &of_ant);
    let mut ant = cluster.node("ant");
    ant.write(ROOT, "more", b"");
    db.set_row(late.last, &of_bee);
    assert!(bee.refusal().contains("saw another log"));
}

#[test]
fn tables_that_are_not_what_the_log_says_are_told_and_not_believed() {
    let edit = |db: &Db, table: &str, of: ObjectId, edit: &dyn Fn(&mut VersionedObject)| {
        let sql = format!("SELECT body FROM {table} WHERE id = ?");
        let bytes: Vec<u8> = db.0.query_row(&sql, [of.to_bytes()], |row| row.get(0)).unwrap();
        let mut stored: VersionedObject = postcard::from_bytes(&bytes).unwrap();
        edit(&mut stored);
        let bytes = postcard::to_stdvec(&stored).unwrap();
        let sql = format!("UPDATE {table} SET body = ? WHERE id = ?");
        db.0.execute(&sql, params![bytes, of.to_bytes()]).unwrap();
    };
    let cluster = Cluster::new();
    let (mut bee, late) = late(&cluster);
    let db = cluster.db();
    let of = |seq: i64| {
        let id = |change: &Mutation| match change {
            Mutation::Link(_, child) => Some(*child),
            change => change.sets(),
        };
        db.entry(seq).iter().find_map(id).unwrap()
    };
    let (x, y, tool) = (of(late.x), of(late.y), of(late.mode));
    let volume = cluster.open();
    let history = volume.meta.history().unwrap();
    assert_eq!(history.versions(x).unwrap().len(), 2);

    // History of a file.
    edit(&db, "past_object", x, &|stored| stored.object.content = db.content(late.y));
    let error = history.versions(x).unwrap_err().to_string();
    assert!(error.contains("the content of object"), "{error}");
    assert!(history.object_at(x, Seq(late.x as u64)).is_err());
    assert_eq!(history.versions(tool).unwrap().len(), 3);

    // Current state.
    edit(&db, "object", tool, &|stored| stored.object.mode = 0o4755);
    edit(&db, "object", y, &|stored| stored.object.owner = OwnerId(9));
    let problems = cluster.check();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("the mode of object")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("the owner of object")), "{problems:?}");
    assert!(volume.meta.get(&[tool]).is_err() && volume.meta.get(&[x]).is_ok());
    // An earlier state, once valid.
    edit(&db, "object", tool, &|stored| {
        stored.object.mode = 0o644;
        stored.field_versions.clear();
        stored.object.owner = OwnerId(0);
    });
    edit(&db, "object", y, &|stored| stored.object.owner = OwnerId(0));
    let problems = cluster.check();
    assert!(
        problems.iter().any(|problem| problem.contains("is not in the state that the log records")),
        "{problems:?}"
    );
    let swap = |one: ObjectId, other: ObjectId| {
        let sql = "UPDATE link SET child = ? WHERE child = ?";
        db.0.execute(sql, params![[0u8; 16], one.to_bytes()]).unwrap();
        db.0.execute(sql, params![one.to_bytes(), other.to_bytes()]).unwrap();
        db.0.execute(sql, params![other.to_bytes(), [0u8; 16]]).unwrap();
    };
    swap(x, y);
    assert!(cluster.check().iter().any(|problem| problem.contains("leads to object")));
    // None of these changes reaches a node.
    bee.settle();
    assert_eq!(bee.read("a/x").unwrap(), b"the second of x");
    assert_eq!(bee.replica.lookup(ROOT, b"tool").unwrap().mode, 0o755);
    // No log entry records how the root directory was created.
    swap(y, x);
    edit(&db, "object", ObjectId::ROOT, &|stored| stored.object.mode = 0o777);
    assert!(cluster.node("cat").refusal().contains("the mode of object"));
}

#[test]
fn a_volume_of_format_2_is_used_as_it_is_and_upgraded() {
    let cluster = Cluster::of_format_2();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "a", b"before");
    bee.settle();
    let b = bee.write(ROOT, "b", b"before, too");
    bee.replica.set(b, SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
    bee.settle();
    assert!(cluster.open().meta.sealed_log().is_none());
    assert_eq!(cluster.check(), [""; 0]);
    let head = cluster.db().head() as u64;

    // Another node commits while the log is read: the upgrade covers that, too.
    let (other, once) = (cluster.open(), std::sync::Once::new());
    let done = upgrade(&cluster.meta(), &name(), Some(&cluster.secret), &|_| {
        once.call_once(|| {
            volume_settings::set(&*other.meta, &"fox".parse().unwrap(), b"system.shunt.test", &|_| {
                Ok(Some(vec![1]))
            })
            .unwrap();
        });
    });
    assert_eq!(done.unwrap(), Upgraded::Now(Seq(head + 1)));
    let again = upgrade(&cluster.meta(), &name(), Some(&cluster.secret), &|_| ());
    assert_eq!(again.unwrap(), Upgraded::Before(Seq(head + 1)));
    assert!(matches!(
        upgrade(&cluster.meta(), &name(), Some(&VolumeKey::random()), &|_| ()),
        Err(OpenError::Key(KeyError::Wrong(_)))
    ));

    // A node that still has the volume open commits nothing that others would have to refuse, and loses nothing.
    ant.make(ROOT, "new", Kind::Regular);
    let denied = ant.sync.step().unwrap().denied.unwrap();
    assert!(denied.contains("mount it again"), "{denied}");
    drop((ant, bee));
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.settle();
    bee.settle();
    bee.write(ROOT, "a", b"after");
    ant.settle();
    let mut cat = cluster.node("cat");
    cat.settle();
    for machine in [&ant, &cat] {
        assert_eq!(machine.read("a").unwrap(), b"after");
        assert_eq!(machine.read("b").unwrap(), b"before, too");
        assert_eq!(machine.replica.lookup(ROOT, b"b").unwrap().mode, 0o640);
        assert!(machine.replica.lookup(ROOT, b"new").is_ok());
    }
    assert_eq!(cluster.check(), [""; 0]);
    let volume = cluster.open();
    let a = cat.replica.lookup(ROOT, b"a").unwrap().id;
    assert_eq!(volume.meta.history().unwrap().versions(a).unwrap().len(), 2);

    // The seal of the upgrade covers the earlier log as a whole.
    let db = cluster.db();
    let made = |change: &Mutation| matches!(change, Mutation::Make(_));
    let seq = (1..=head as i64).find(|seq| db.entry(*seq).iter().any(made)).unwrap();
    db.edit(seq, |change| match change {
        Mutation::Make(object) => {
            object.mode |= 0o4000;
            true
        }
        _ => false,
    });
    let line = "is not the one that the volume was upgraded with";
    let mut dog = cluster.node("dog");
    assert!(dog.refusal().contains(line));
    assert!(dog.replica.lookup(ROOT, b"a").is_err());
    assert!(cluster.check().iter().any(|problem| problem.contains(line)));
    let error = cluster.open().meta.history().unwrap().versions(a).unwrap_err().to_string();
    assert!(error.contains(line), "{error}");
    // A node that has followed the original log is not affected.
    ant.settle();
    drop(ant);
    cluster.node("ant").settle();
}

#[test]
fn a_description_that_the_key_did_not_make_is_refused() {
    let cluster = Cluster::new();
    let db = cluster.db();
    let about: Vec<u8> = db.0.query_row("SELECT description FROM about", [], |row| row.get(0)).unwrap();
    let described = VolumeDescriptor::from_bytes(&about).unwrap();
    assert_eq!(described.to_bytes(), about);
    let put = |described: &VolumeDescriptor| {
        db.0.execute("UPDATE about SET description = ?", [described.to_bytes()]).unwrap();
        open::open(&cluster.meta(), &name(), Some(&cluster.secret)).map(drop)
    };
    // A descriptor without the seal.
    let opened = put(&VolumeDescriptor { sealed: None, ..described.clone() });
    assert!(matches!(opened, Err(OpenError::Key(KeyError::Wrong(_)))), "{opened:?}");
    // A descriptor with another log start, or for another volume.
    let mut sealed = described.sealed.unwrap();
    sealed.from = Seq(100);
    for other in [
        VolumeDescriptor { sealed: Some(sealed), ..described.clone() },
        VolumeDescriptor { id: 1, ..described.clone() },
    ] {
        let opened = put(&other);
        assert!(matches!(opened, Err(OpenError::Store(StoreError::Tampered(_)))), "{opened:?}");
    }
    put(&described).unwrap();
}

#[test]
fn a_sealed_log_is_kept_and_takes_only_what_is_sealed() {
    let cluster = Cluster::new();
    let mut ant = cluster.node("ant");
    ant.write(ROOT, "a", b"text");
    let whole = LogRetention { age: std::time::Duration::ZERO, count: 0 };
    let collected = collect(&cluster.open(), std::time::Duration::ZERO, Some(whole), &|_, _| ());
    assert!(collected.unwrap_err().to_string().contains("omit --history-days"));
    collect(&cluster.open(), std::time::Duration::ZERO, None, &|_, _| ()).unwrap();
    let blind = open::open_without_key(&cluster.meta(), &name()).unwrap();
    let item =
        Transaction { mutations: vec![Mutation::SetMode(ObjectId::ROOT, 0o777)], ..Transaction::default() };
    let refused = blind.meta.commit(&"eve".parse().unwrap(), 1, &[item]);
    assert!(matches!(refused, Err(StoreError::Denied(_))), "{refused:?}");
    // A repeated batch is still recognised.
    let volume = cluster.open();
    let node = "fox".parse().unwrap();
    let item =
        Transaction { mutations: vec![Mutation::SetMode(ObjectId::ROOT, 0o700)], ..Transaction::default() };
    let once = volume.meta.commit(&node, 2, std::slice::from_ref(&item)).unwrap();
    assert_eq!(volume.meta.commit(&node, 2, &[item]).unwrap(), once);
    ant.settle();
    assert_eq!(ant.replica.get(ROOT).unwrap().mode, 0o700);
}
