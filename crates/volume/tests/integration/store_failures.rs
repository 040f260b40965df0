//! Effects of stores and connections on a replica: replies that are lost for days, and a store that went back in time.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume::address::MetaAddress;
use shunt_volume::id::{NodeName, ObjectId, OwnerId, Seq};
use shunt_volume::maintenance::collect;
use shunt_volume::object::{ChunkId, Kind, Time, VersionedObject};
use shunt_volume::open;
use shunt_volume::replica::{NewObject, Options, ROOT, Replica, StoreFetcher, SyncAdapter};
use shunt_volume::store::{
    ChunkLocation, LogEntry, MAX_KEPT_RESULTS, MetaStore, Page, Rejected, SqliteStore, StoreError,
    Transaction,
};
use shunt_volume::sync::{Outbox, Step, SyncError, Synchroniser};
use shunt_volume::volume::Volume;
use tempfile::TempDir;

const HOUR: i64 = 3600 * 1_000_000_000;

/// Fate of commits.
#[derive(Clone, Copy, PartialEq)]
enum Commits {
    Arrive,
    Lost,
    /// They arrive, but their replies are lost.
    Unanswered,
}

/// Connection to a store, which may suddenly be replaced by another one.
struct ReplaceableStore {
    store: Mutex<Arc<dyn MetaStore>>,
    commits: Mutex<Commits>,
    clock: Arc<AtomicI64>,
    /// Time that the upload of an unknown chunk takes.
    slow: AtomicI64,
}

impl ReplaceableStore {
    fn now(&self) -> Arc<dyn MetaStore> {
        self.store.lock().clone()
    }
}

impl MetaStore for ReplaceableStore {
    fn head(&self) -> Result<Seq, StoreError> {
        self.now().head()
    }

    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError> {
        let lost = || Err(StoreError::Unreachable("asleep".into()));
        let commits = *self.commits.lock();
        match commits {
            Commits::Arrive => self.now().commit(node, token, items),
            Commits::Lost => lost(),
            Commits::Unanswered => {
                self.now().commit(node, token, items)?;
                lost()
            }
        }
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.now().get(ids)
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        self.now().scan(from, limit)
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        self.now().log_since(after, limit)
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        self.now().locate_chunks(chunks)
    }

    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        let known = self.now().has_chunks(chunks)?;
        if known.contains(&false) {
            self.clock.fetch_add(self.slow.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(known)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        self.now().wait(after, at_most)
    }
}

struct Cluster {
    dir: TempDir,
    volume: Volume,
    store_link: Arc<ReplaceableStore>,
    clock: Arc<AtomicI64>,
}

struct TestNode {
    replica: Arc<Replica>,
    sync: Synchroniser<SyncAdapter>,
}

impl Cluster {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let at = MetaAddress::Sqlite(dir.path().join("volume"));
        let volume = open::create(&at, &"test".parse().unwrap(), &open::Options::default()).unwrap();
        let clock = Arc::new(AtomicI64::new(1_000_000 * HOUR / 3600));
        let store_link = ReplaceableStore {
            store: Mutex::new(volume.meta.clone()),
            commits: Mutex::new(Commits::Arrive),
            clock: clock.clone(),
            slow: AtomicI64::new(0),
        };
        Self { dir, volume, store_link: Arc::new(store_link), clock }
    }

    fn node(&self, name: &str) -> TestNode {
        let clock = self.clock.clone();
        let options = Options {
            clock: Arc::new(move || Time(clock.load(Ordering::Relaxed))),
            ..Options::new("test", name.parse().unwrap())
        };
        let replica = Arc::new(Replica::open(&self.dir.path().join(name), options).unwrap());
        let fetcher = StoreFetcher::new(self.store_link.clone(), self.volume.content.clone());
        replica.set_fetcher(Some(Arc::new(fetcher)));
        let site = SyncAdapter::new(replica.clone(), self.store_link.clone(), self.volume.content.clone());
        let sync = Synchroniser::new(site, self.store_link.clone(), name.parse().unwrap(), rand::random);
        TestNode { replica, sync }
    }

    fn commits(&self, commits: Commits) {
        *self.store_link.commits.lock() = commits;
    }

    fn later(&self, hours: i64) {
        self.clock.fetch_add(hours * HOUR, Ordering::Relaxed);
    }

    /// Collects garbage as if the grace period were over.
    fn collect(&self) {
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..3 {
            collect(&self.volume, Duration::ZERO, None, &|_, _| ()).unwrap();
        }
    }

    fn packs(&self) -> Vec<PathBuf> {
        let of = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().map(|at| at.unwrap().path());
        of(self.dir.path().join("volume/data/packs")).flat_map(of).collect()
    }

    /// Returns a copy of the current metadata.
    fn backup(&self) -> Arc<dyn MetaStore> {
        let path = self.dir.path().join("backup.db");
        let db = rusqlite::Connection::open(self.dir.path().join("volume/meta.db")).unwrap();
        db.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
        Arc::new(SqliteStore::open(&path).unwrap())
    }
}

impl TestNode {
    fn settle(&mut self) {
        for _ in 0..50 {
            let step = self.sync.step().unwrap();
            if (Step { blocked: 0, ..step }) == Step::default() && step.blocked == 0 {
                return;
            }
        }
        panic!("there is no end");
    }

    /// Pushes local changes, for which no reply arrives.
    fn is_lost(&mut self) {
        assert!(matches!(self.sync.step(), Err(SyncError::Store(StoreError::Unreachable(_)))));
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let num = match self.replica.lookup(ROOT, name.as_bytes()) {
            Ok(node) => node.ino,
            Err(_) => {
                let new = NewObject {
                    kind: Kind::Regular,
                    mode: 0o644,
                    owner: OwnerId(0),
                    group: OwnerId(0),
                    target: b"",
                };
                self.replica.make(ROOT, name.as_bytes(), new).unwrap().ino
            }
        };
        let opened = self.replica.open_file(num, true, true).unwrap();
        (&*opened.file).write_all(bytes).unwrap();
        self.replica.release_open(num, true, opened.session);
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let node = self.replica.lookup(ROOT, name.as_bytes()).unwrap();
        self.replica.ensure_present(node.ino, 0..u64::MAX).unwrap();
        let opened = self.replica.open_file(node.ino, false, false).unwrap();
        let mut bytes = Vec::new();
        (&*opened.file).read_to_end(&mut bytes).unwrap();
        self.replica.release_open(node.ino, false, opened.session);
        bytes
    }

    fn names(&self) -> BTreeSet<String> {
        let listed = self.replica.list(ROOT, b"", 100).unwrap();
        listed.into_iter().map(|one| String::from_utf8(one.name).unwrap()).collect()
    }

    fn is_agreed(&self) {
        assert_eq!(self.replica.conflicts().unwrap(), []);
        assert_eq!(self.replica.pending_count(), Ok(0));
    }

    fn went_back(&mut self) {
        for _ in 0..2 {
            let error = self.sync.step().unwrap_err();
            assert!(matches!(error, SyncError::WentBack(_)), "{error}");
            assert!(error.to_string().starts_with("the store was rolled back"));
        }
    }
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// A node sleeps over a weekend between the upload of contents and the commit: they are freed in between.
#[test]
fn contents_that_waited_for_too_long_are_sent_anew() {
    // After that many hours, or with the clock set back.
    for hours in [30, -1] {
        let cluster = Cluster::new();
        let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
        let bytes = noise(1, 200_000);
        ant.write("file", &bytes);
        cluster.commits(Commits::Lost);
        ant.is_lost();
        assert_eq!(cluster.packs().len(), 1);
        cluster.collect();
        assert_eq!(cluster.packs().len(), 0);
        cluster.later(hours);
        cluster.commits(Commits::Arrive);
        ant.settle();
        bee.settle();
        assert!(bee.read("file") == bytes);
        ant.is_agreed();
    }
}

#[test]
fn delayed_change_is_pushed_in_current_form() {
    let cluster = Cluster::new();
    let mut ant = cluster.node("ant");
    ant.write("file", &noise(1, 200_000));
    cluster.commits(Commits::Lost);
    ant.is_lost();
    let packs = cluster.packs();
    cluster.later(11);
    cluster.commits(Commits::Arrive);
    ant.settle();
    ant.is_agreed();
    assert_eq!(cluster.packs(), packs);
}

/// The store has the commit, and may or may not remember its reply, which the node does not get for days.
#[test]
fn old_commit_is_not_repeated() {
    for others in [0, MAX_KEPT_RESULTS + 1] {
        let cluster = Cluster::new();
        let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
        ant.write("file", &noise(1, 200_000));
        ant.settle();
        ant.write("file", &noise(2, 200_000));
        ant.write("other", b"beside");
        cluster.commits(Commits::Unanswered);
        ant.is_lost();
        let head = cluster.volume.meta.head().unwrap();
        for token in 0..others {
            cluster.volume.meta.commit(&"cat".parse().unwrap(), token as u128, &[]).unwrap();
        }
        cluster.later(30);
        cluster.commits(Commits::Arrive);
        ant.settle();
        ant.is_agreed();
        assert_eq!(cluster.volume.meta.head().unwrap(), head);
        ant.write("file", b"once more");
        ant.settle();
        ant.is_agreed();
        bee.settle();
        assert_eq!(bee.read("file"), b"once more");
        assert_eq!(bee.read("other"), b"beside");
    }
}

/// An outbox written by an older version has no time, and the older version reads those that have one.
#[test]
fn an_outbox_of_an_older_version_is_read() {
    let items = vec![Transaction { chunks: vec![], ..Transaction::default() }];
    let older = (7_u128, items.clone(), Some(Seq(3)));
    let read = Outbox::decode(&postcard::to_stdvec(&older).unwrap()).unwrap();
    assert_eq!(read, Outbox { token: 7, items, answered: Some(Seq(3)), begun: None });
    let kept = Outbox { begun: Some(Time(5)), ..read };
    assert_eq!(Outbox::decode(&kept.encode()).unwrap(), kept);
    assert_eq!(postcard::from_bytes::<(u128, Vec<Transaction>, Option<Seq>)>(&kept.encode()).unwrap(), older);
    assert!(Outbox::decode(&kept.encode()[..3]).is_err());
}

/// A connection on which a file takes days: uploaded parts are not uploaded again, and no commit references chunks that may
/// have been freed.
#[test]
fn a_file_that_takes_days_arrives_in_parts() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let bytes = noise(1, 200 << 20);
    ant.write("file", &bytes);
    std::thread::sleep(Duration::from_secs(1));
    cluster.store_link.slow.store(3 * HOUR, Ordering::Relaxed);
    let mut rounds = 0;
    while ant.replica.pending_count() != Ok(0) {
        ant.sync.step().unwrap();
        rounds += 1;
        assert!(rounds < 30);
    }
    assert!(rounds > 1);
    cluster.store_link.slow.store(0, Ordering::Relaxed);
    ant.settle();
    bee.settle();
    assert!(bee.read("file") == bytes);
    let sent: u64 = cluster.packs().iter().map(|pack| pack.metadata().unwrap().len()).sum();
    assert!(sent < bytes.len() as u64 * 3 / 2, "{sent}");
}

/// Restored from a backup, or a copy that lags behind.
#[test]
fn a_store_that_went_back_is_not_followed() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write("old", b"in the backup");
    ant.settle();
    let backup = cluster.backup();
    ant.write("new", b"not in it");
    ant.write("more", b"nor this");
    ant.settle();
    bee.settle();
    ant.write("waits", b"of ant");
    let lost = std::mem::replace(&mut *cluster.store_link.store.lock(), backup);
    // Its log is shorter than the part already read.
    ant.went_back();
    bee.went_back();
    // A new node takes the store as it is. Then its log gets longer.
    let mut cat = cluster.node("cat");
    for n in 0..5 {
        cat.write(&format!("cat{n}"), b"of cat");
        cat.settle();
    }
    ant.went_back();
    bee.went_back();
    drop(ant);
    let mut ant = cluster.node("ant");
    // Local data may be the only copy and stays, even before the store was contacted again.
    assert_eq!(ant.replica.evict(u64::MAX), Ok(0));
    ant.went_back();
    let expected = ["more", "new", "old", "waits"].map(String::from);
    assert_eq!(ant.names(), BTreeSet::from(expected));
    assert_eq!(ant.replica.evict(u64::MAX), Ok(0));
    assert_eq!(ant.read("new"), b"not in it");
    assert!(!cat.names().contains("waits"));
    // The node finds the newer store again.
    *cluster.store_link.store.lock() = lost;
    ant.settle();
    bee.settle();
    ant.is_agreed();
    assert_eq!(bee.read("waits"), b"of ant");
    assert!(ant.replica.evict(u64::MAX).unwrap() > 0);
}

/// A commit in flight when the store went back is not accepted by the restored store.
#[test]
fn rolled_back_store_receives_no_changes() {
    let cluster = Cluster::new();
    let mut ant = cluster.node("ant");
    ant.write("old", b"in the backup");
    ant.settle();
    let backup = cluster.backup();
    ant.write("new", b"not in it");
    ant.settle();
    ant.write("waits", b"of ant");
    cluster.commits(Commits::Lost);
    ant.is_lost();
    cluster.commits(Commits::Arrive);
    let head = backup.head().unwrap();
    *cluster.store_link.store.lock() = backup.clone();
    ant.went_back();
    assert_eq!(backup.head().unwrap(), head);
}

/// A log that was truncated beyond the node's position does not mean that the store went back.
#[test]
fn a_log_that_is_forgotten_is_no_reason_to_stop() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write("file", b"first");
    ant.settle();
    bee.settle();
    cluster.volume.admin().unwrap().truncate_log(Time(i64::MAX), 0).unwrap();
    ant.settle();
    ant.write("file", b"second");
    ant.settle();
    bee.settle();
    assert_eq!(bee.read("file"), b"second");
    cluster.volume.admin().unwrap().truncate_log(Time(i64::MAX), 0).unwrap();
    ant.write("file", b"third");
    ant.settle();
    cluster.volume.admin().unwrap().truncate_log(Time(i64::MAX), 0).unwrap();
    bee.settle();
    assert_eq!(bee.read("file"), b"third");
}
