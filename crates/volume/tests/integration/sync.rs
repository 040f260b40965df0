//! Two replicas over one store, without a mount.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use shunt_volume::chunks::{Blobs, ChunkKeys, ContentStore};
use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::{ObjectId, OwnerId};
use shunt_volume::object::{Content, Kind, Layout, LinkName, Object, Segment, Time};
use shunt_volume::replica::{
    CacheManager, CachePolicy, CacheState, Inode, NewObject, Options, ROOT, Rename, Replica, SetAttr,
    StoreFetcher, SyncAdapter,
};
use shunt_volume::store::admin::StoreAdmin as _;
use shunt_volume::store::{EncryptedStore, MetaStore, MetadataCipher, Mutation, SqliteStore, Transaction};
use shunt_volume::sync::{LinkState, Runner, Step, Synchroniser};
use tempfile::TempDir;

use crate::common::faulty_object_store::{FaultyObjectStore, NetworkMode};

struct TestNode {
    replica: Arc<Replica>,
    sync: Synchroniser<SyncAdapter>,
}

struct Cluster {
    dir: TempDir,
    meta: Arc<dyn MetaStore>,
    admin: Arc<SqliteStore>,
    contents: ContentStore,
    objects: Arc<FaultyObjectStore>,
}

impl Cluster {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let root = Object {
            id: ObjectId::ROOT,
            kind: Kind::Directory,
            mode: 0o755,
            owner: OwnerId(0),
            group: OwnerId(0),
            modified: Time(0),
            target: Vec::new(),
            content: Content::empty(),
            xattrs: BTreeMap::new(),
        };
        let meta = Arc::new(SqliteStore::in_memory(&"test".parse().unwrap(), &root, b"").unwrap());
        std::fs::create_dir(dir.path().join("chunks")).unwrap();
        let blobs = Blobs::directory(&dir.path().join("chunks")).unwrap();
        let objects = Arc::new(FaultyObjectStore::over(blobs.objects()));
        let contents = ContentStore::new(Blobs::over(objects.clone()), ChunkKeys::open([7; 32]));
        Self { admin: meta.clone(), meta, contents, objects, dir }
    }

    fn node(&self, name: &str) -> TestNode {
        let options = Options::new("test", name.parse().unwrap());
        let replica = Arc::new(Replica::open(&self.dir.path().join(name), options).unwrap());
        replica.set_fetcher(Some(Arc::new(StoreFetcher::new(self.meta.clone(), self.contents.clone()))));
        let site = SyncAdapter::new(replica.clone(), self.meta.clone(), self.contents.clone());
        let sync = Synchroniser::new(site, self.meta.clone(), name.parse().unwrap(), rand::random);
        TestNode { replica, sync }
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

    fn plain(kind: Kind) -> NewObject<'static> {
        NewObject { kind, mode: 0o644, owner: OwnerId(0), group: OwnerId(0), target: b"" }
    }

    fn directory(&self, parent: u64, name: &str) -> Inode {
        self.replica.make(parent, name.as_bytes(), Self::plain(Kind::Directory)).unwrap()
    }

    fn write(&self, parent: u64, name: &str, bytes: &[u8]) -> Inode {
        let node = match self.replica.lookup(parent, name.as_bytes()) {
            Ok(node) => node,
            Err(_) => self.replica.make(parent, name.as_bytes(), Self::plain(Kind::Regular)).unwrap(),
        };
        let opened = self.replica.open_file(node.ino, true, true).unwrap();
        (&*opened.file).write_all(bytes).unwrap();
        self.replica.release_open(node.ino, true, opened.session);
        node
    }

    /// Overwrites a part of a file.
    fn edit(&self, path: &str, at: u64, bytes: &[u8]) {
        let num = self.at(path).unwrap().ino;
        let opened = self.replica.open_file(num, true, false).unwrap();
        opened.file.write_all_at(bytes, at).unwrap();
        self.replica.release_open(num, true, opened.session);
    }

    fn at(&self, path: &str) -> Result<Inode, Errno> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(self.replica.get(ROOT), |at, name| self.replica.lookup(at?.ino, name.as_bytes()))
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let node = self.at(path).unwrap();
        self.replica.ensure_present(node.ino, 0..u64::MAX).unwrap();
        let opened = self.replica.open_file(node.ino, false, false).unwrap();
        let mut bytes = Vec::new();
        (&*opened.file).read_to_end(&mut bytes).unwrap();
        self.replica.release_open(node.ino, false, opened.session);
        bytes
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listed = self.replica.list(self.at(path).unwrap().ino, b"", 100).unwrap();
        listed.into_iter().map(|one| String::from_utf8(one.name).unwrap()).collect()
    }
}

fn both(one: &mut TestNode, other: &mut TestNode) {
    for _ in 0..3 {
        one.settle();
        other.settle();
    }
}

#[test]
fn node_behind_truncated_log_reads_the_tree() {
    let cluster = Cluster::new();
    let (mut one, mut other) = (cluster.node("one"), cluster.node("other"));
    let kept = one.directory(ROOT, "kept");
    let gone = one.directory(ROOT, "gone");
    one.write(kept.ino, "both", b"first");
    one.write(kept.ino, "theirs", b"first");
    one.write(kept.ino, "mine", b"first");
    one.write(gone.ino, "file", b"first");
    both(&mut one, &mut other);

    let kept_there = other.at("kept").unwrap().ino;
    other.write(kept_there, "both", b"of the other");
    other.write(kept_there, "mine", b"of the other, too");
    other.write(kept_there, "new", b"new here");

    one.write(kept.ino, "both", b"of the one");
    one.write(kept.ino, "theirs", b"second");
    one.replica.unlink(gone.ino, b"file").unwrap();
    one.replica.rmdir(ROOT, b"gone").unwrap();
    one.replica.rename(kept.ino, b"theirs", ROOT, b"moved", Rename::Replace).unwrap();
    one.settle();
    cluster.admin.truncate_log(Time(i64::MAX), 0).unwrap();

    both(&mut one, &mut other);
    let mut third = cluster.node("third");
    third.settle();
    for machine in [&one, &third] {
        assert_eq!(machine.names("kept"), ["both", "mine", "new"]);
        assert_eq!(machine.read("kept/both"), b"of the one");
    }
    for machine in [&one, &other, &third] {
        assert_eq!(machine.names(""), ["kept", "moved"]);
        assert_eq!(machine.read("moved"), b"second");
        assert_eq!(machine.read("kept/mine"), b"of the other, too");
        assert_eq!(machine.read("kept/new"), b"new here");
    }
    assert_eq!(other.names("kept/both"), ["other", "store"]);
    assert_eq!(other.read("kept/both/other"), b"of the other");
    assert_eq!(other.read("kept/both/store"), b"of the one");
}

#[test]
fn written_content_is_read_on_other_node() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let docs = ant.directory(ROOT, "docs");
    ant.write(docs.ino, "small", b"a few bytes");
    ant.write(docs.ino, "large", &large);
    ant.settle();
    bee.settle();
    assert_eq!(bee.names("docs"), ["large", "small"]);
    assert_eq!(bee.read("docs/small"), b"a few bytes");
    assert!(bee.read("docs/large") == large);
    let docs = bee.at("docs").unwrap();
    bee.write(docs.ino, "small", b"other bytes");
    bee.replica.rename(docs.ino, b"large", ROOT, b"moved", Rename::Replace).unwrap();
    both(&mut bee, &mut ant);
    assert_eq!(ant.read("docs/small"), b"other bytes");
    assert!(ant.read("moved") == large);
    assert_eq!(ant.names("docs"), ["small"]);
    assert_eq!(ant.replica.pending_count(), Ok(0));
    assert_eq!(bee.replica.pending_count(), Ok(0));
}

#[test]
fn cached_file_is_refetched_for_offline_use() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let files = [("small", b"a few bytes".to_vec()), ("large", large)];
    for (name, bytes) in &files {
        ant.write(ROOT, name, bytes);
    }
    ant.write(ROOT, "other", &files[1].1);
    both(&mut ant, &mut bee);
    for (name, bytes) in &files {
        assert!(bee.read(name) == *bytes);
    }
    let _tender = CacheManager::start(bee.replica.clone(), CachePolicy::default()).unwrap();
    for (name, bytes) in &files {
        ant.write(ROOT, name, &[bytes, &b", and more"[..]].concat());
    }
    ant.write(ROOT, "other", b"read by nobody here".repeat(999).as_slice());
    both(&mut ant, &mut bee);
    let is_here = |name: &str| bee.at(name).unwrap().state == CacheState::Complete;
    until("they come by themselves", || files.iter().all(|(name, _)| is_here(name)));
    bee.replica.set_fetcher(None);
    for (name, bytes) in &files {
        assert!(bee.read(name) == [bytes, &b", and more"[..]].concat(), "{name}");
    }
    assert!(!is_here("other"));
}

#[test]
fn directories_have_the_time_of_their_last_change_everywhere() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let docs = ant.directory(ROOT, "docs");
    both(&mut ant, &mut bee);
    ant.write(docs.ino, "new", b"new here");
    bee.directory(ROOT, "other");
    both(&mut ant, &mut bee);
    for path in ["", "docs"] {
        assert_eq!(ant.at(path).unwrap().modified, bee.at(path).unwrap().modified, "{path:?}");
    }
    assert!(bee.at("docs").unwrap().modified > docs.modified);
    assert_eq!((ant.replica.pending_count(), bee.replica.pending_count()), (Ok(0), Ok(0)));
}

#[test]
fn two_versions_show_as_a_directory_until_one_is_removed() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "file", b"first");
    both(&mut ant, &mut bee);
    ant.write(ROOT, "file", b"of ant");
    bee.write(ROOT, "file", b"of bee");
    both(&mut ant, &mut bee);
    assert_eq!(ant.read("file"), b"of ant");
    assert_eq!(bee.names("file"), ["ant", "bee"]);
    assert_eq!(bee.read("file/ant"), b"of ant");
    assert_eq!(bee.read("file/bee"), b"of bee");
    let place = bee.at("file").unwrap().ino;
    assert_eq!(bee.replica.make(place, b"new", TestNode::plain(Kind::Regular)).unwrap_err(), Errno::PERM);
    let moved = bee.replica.rename(ROOT, b"file", ROOT, b"elsewhere", Rename::Replace);
    assert_eq!(moved, Err(Errno::BUSY));
    assert_eq!(bee.replica.rename(place, b"ant", ROOT, b"elsewhere", Rename::Replace), Err(Errno::BUSY));
    assert_eq!(bee.replica.rmdir(ROOT, b"file"), Err(Errno::NOTEMPTY));
    // The conflict survives a restart.
    drop(bee);
    let mut bee = cluster.node("bee");
    bee.settle();
    assert_eq!(bee.names("file"), ["ant", "bee"]);
    let place = bee.at("file").unwrap().ino;
    bee.replica.unlink(place, b"ant").unwrap();
    assert_eq!(bee.read("file"), b"of bee");
    both(&mut bee, &mut ant);
    assert_eq!(ant.read("file"), b"of bee");
    assert_eq!(bee.replica.pending_count(), Ok(0));
    assert!(bee.replica.conflicts().unwrap().is_empty());
}

#[test]
fn remote_deletion_of_changed_file_can_be_resolved_both_ways() {
    for keep in [true, false] {
        let cluster = Cluster::new();
        let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
        ant.write(ROOT, "file", b"first");
        both(&mut ant, &mut bee);
        ant.replica.unlink(ROOT, b"file").unwrap();
        bee.write(ROOT, "file", b"of bee");
        both(&mut ant, &mut bee);
        assert_eq!(bee.names("file"), ["ant", "bee"]);
        let gone = bee.at("file/ant").unwrap();
        assert_eq!((gone.kind, &gone.target[..]), (Kind::Symlink, &b"bee"[..]));
        let place = bee.at("file").unwrap().ino;
        bee.replica.unlink(place, if keep { b"ant" } else { b"bee" }).unwrap();
        both(&mut bee, &mut ant);
        for machine in [&ant, &bee] {
            match keep {
                true => assert_eq!(machine.read("file"), b"of bee"),
                false => assert_eq!(machine.at("file").unwrap_err(), Errno::NOENT),
            }
        }
    }
}

/// Restarts a node, which frees inodes without names.
fn again(cluster: &Cluster, bee: TestNode) -> TestNode {
    drop(bee);
    cluster.node("bee")
}

fn keep_both(machine: &TestNode) {
    for (at, _) in machine.replica.conflicts().unwrap() {
        machine.replica.keep_both(&at).unwrap();
    }
}

/// A directory that both moved has its place in one conflict, and the other conflict points there. Then the first conflict
/// ends.
#[test]
fn a_side_whose_place_goes_with_another_conflict_stays() {
    // In either order of the two conflicts.
    ["elsewhere", "aside"].into_iter().for_each(one_has_its_place_in_another);
}

fn one_has_its_place_in_another(elsewhere: &str) {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.directory(ROOT, "moved");
    both(&mut ant, &mut bee);
    ant.replica.rename(ROOT, b"moved", ROOT, b"at", Rename::Replace).unwrap();
    ant.settle();
    bee.replica.rename(ROOT, b"moved", ROOT, elsewhere.as_bytes(), Rename::Replace).unwrap();
    bee.write(ROOT, "at", b"of bee");
    bee.settle();
    assert_eq!(bee.at(&format!("{elsewhere}/bee")).unwrap().kind, Kind::Symlink);
    assert_eq!(bee.at("at/ant").unwrap().kind, Kind::Directory);
    ant.replica.rmdir(ROOT, b"at").unwrap();
    ant.settle();
    bee.settle();
    assert_eq!(bee.at(&format!("{elsewhere}/bee")).unwrap().kind, Kind::Directory);
    let mut bee = again(&cluster, bee);
    keep_both(&bee);
    both(&mut ant, &mut bee);
    for machine in [&ant, &bee] {
        assert_eq!(
            BTreeSet::from_iter(machine.names("")),
            BTreeSet::from(["at", elsewhere].map(String::from))
        );
        assert_eq!(machine.replica.conflicts().unwrap(), []);
    }
}

/// The node never fetched the contents: the store has them, but no object references them any more.
#[test]
fn a_side_of_which_nothing_is_here_is_sent() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let held = [("empty", vec![]), ("small", b"small".repeat(3)), ("large", b"large".repeat(99_999))];
    for (name, bytes) in &held {
        ant.write(ROOT, name, bytes);
    }
    both(&mut ant, &mut bee);
    for (name, _) in &held {
        ant.replica.unlink(ROOT, name.as_bytes()).unwrap();
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        bee.replica.set(bee.at(name).unwrap().ino, mode).unwrap();
    }
    both(&mut ant, &mut bee);
    assert_eq!(bee.replica.conflicts().unwrap().len(), held.len());
    // The node must keep these contents under any cache policy.
    assert_eq!(bee.replica.missing_files(false, 0, 10).unwrap().len(), held.len());
    keep_both(&bee);
    // After a failed round, nothing is fetched before a round succeeds.
    let fetcher = || StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone());
    bee.replica.set_fetcher(Some(Arc::new(fetcher().with_reachability(|| None))));
    bee.settle();
    assert_ne!(bee.replica.pending_count().unwrap(), 0);
    bee.replica.set_fetcher(Some(Arc::new(fetcher())));
    both(&mut bee, &mut ant);
    assert_eq!(bee.replica.pending_count().unwrap(), 0);
    for (name, bytes) in &held {
        assert_eq!(ant.read(name), *bytes, "{name}");
    }
}

#[test]
fn a_side_that_is_removed_at_its_place_stays() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.directory(ROOT, "moved");
    both(&mut ant, &mut bee);
    ant.replica.rename(ROOT, b"moved", ROOT, b"there", Rename::Replace).unwrap();
    ant.settle();
    bee.replica.rename(ROOT, b"moved", ROOT, b"here", Rename::Replace).unwrap();
    bee.settle();
    bee.replica.rmdir(ROOT, b"there").unwrap();
    bee.settle();
    assert_eq!(bee.at("here/bee").unwrap().kind, Kind::Directory);
    let mut bee = again(&cluster, bee);
    keep_both(&bee);
    both(&mut ant, &mut bee);
    for machine in [&ant, &bee] {
        assert_eq!(machine.names(""), ["here"]);
        assert_eq!(machine.replica.conflicts().unwrap(), []);
    }
}

/// The new directory can be created only once the old one has left its name, which it does only for a place below the new one.
#[test]
fn a_directory_is_moved_to_far_below_one_that_takes_its_name() {
    let cluster = Cluster::new();
    let (mut one, mut other) = (cluster.node("one"), cluster.node("other"));
    let old = one.directory(ROOT, "a");
    one.write(old.ino, "file", b"what was there");
    both(&mut one, &mut other);
    one.replica.rename(ROOT, b"a", ROOT, b"x", Rename::Replace).unwrap();
    let top = one.directory(ROOT, "a");
    let middle = one.directory(top.ino, "a");
    one.write(middle.ino, "beside", b"new");
    one.replica.rename(ROOT, b"x", middle.ino, b"b", Rename::Replace).unwrap();
    both(&mut one, &mut other);
    assert_eq!(other.read("a/a/b/file"), b"what was there");
    assert_eq!(other.read("a/a/beside"), b"new");
    assert_eq!(one.replica.pending_count().unwrap(), 0);
}

/// A change that would have moved a directory out of another waits for a conflict; a move into the latter waits, too.
#[test]
fn a_directory_waits_for_what_it_is_moved_into() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let place = ant.directory(ROOT, "place");
    ant.directory(place.ino, "was");
    let above = ant.directory(ROOT, "above");
    ant.directory(above.ino, "below");
    both(&mut ant, &mut bee);
    ant.write(ROOT, "same", b"of ant");
    ant.settle();
    let aside = bee.directory(ROOT, "same").ino;
    bee.settle();
    let num = |path: &str| bee.at(path).unwrap().ino;
    let (place, above) = (num("place"), num("above"));
    bee.replica.rename(place, b"was", aside, b"was", Rename::Replace).unwrap();
    bee.replica.rename(above, b"below", place, b"was", Rename::Replace).unwrap();
    bee.replica.rename(ROOT, b"above", num("place/was"), b"above", Rename::Replace).unwrap();
    bee.settle();
    assert_eq!(bee.names("place/was"), ["above"]);
    keep_both(&bee);
    both(&mut bee, &mut ant);
    for machine in [&ant, &bee] {
        assert_eq!(machine.names(""), ["place", "same", "same.conflict-bee"]);
        assert_eq!(machine.names("place/was"), ["above"]);
        assert_eq!(machine.names("same.conflict-bee"), ["was"]);
    }
}

/// The new directory takes the name once the old one is empty, which requires that the file has its name in the new one.
#[test]
fn a_directory_takes_the_place_of_one_that_a_file_left_for_it() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let old = bee.directory(ROOT, "place").ino;
    let below = bee.directory(old, "below").ino;
    let file = bee.write(below, "file", b"of bee").ino;
    both(&mut bee, &mut ant);
    let new = bee.directory(ROOT, "new").ino;
    bee.replica.link(file, new, b"file").unwrap();
    bee.replica.unlink(below, b"file").unwrap();
    bee.replica.rmdir(old, b"below").unwrap();
    bee.replica.rename(ROOT, b"new", ROOT, b"place", Rename::Replace).unwrap();
    both(&mut bee, &mut ant);
    assert_eq!(bee.replica.pending_count().unwrap(), 0);
    assert_eq!((ant.names(""), ant.read("place/file")), (vec!["place".to_owned()], b"of bee".to_vec()));
}

/// A round in progress when the user goes offline pushes none of the later changes.
#[test]
fn offline_changes_are_not_pushed() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let keeps = ant.sync.push_paused();
    keeps.store(true, Ordering::SeqCst);
    ant.write(ROOT, "file", b"of ant");
    both(&mut ant, &mut bee);
    assert_eq!(bee.names(""), Vec::<String>::new());
    keeps.store(false, Ordering::SeqCst);
    both(&mut ant, &mut bee);
    assert_eq!(bee.read("file"), b"of ant");
}

#[test]
fn a_file_takes_the_place_of_the_directory_above_its_own() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let above = bee.directory(ROOT, "above").ino;
    let below = bee.directory(above, "below").ino;
    bee.write(below, "file", b"of bee");
    both(&mut bee, &mut ant);
    bee.replica.rename(below, b"file", ROOT, b"aside", Rename::NoReplace).unwrap();
    bee.replica.rmdir(above, b"below").unwrap();
    bee.replica.rmdir(ROOT, b"above").unwrap();
    bee.replica.rename(ROOT, b"aside", ROOT, b"above", Rename::NoReplace).unwrap();
    both(&mut bee, &mut ant);
    assert_eq!(bee.replica.pending_count().unwrap(), 0);
    assert_eq!((ant.names(""), ant.read("above")), (vec!["above".to_owned()], b"of bee".to_vec()));
}

#[test]
fn volume_setting_survives_concurrent_creation() {
    let cluster = Cluster::new();
    let (mut one, mut other) = (cluster.node("one"), cluster.node("other"));
    both(&mut one, &mut other);
    one.write(ROOT, "file", b"1");
    other.replica.set_xattr(ROOT, b"user.said", Some(b"by the other"), None).unwrap();
    other.settle();
    both(&mut one, &mut other);
    for machine in [&one, &other] {
        assert_eq!(machine.replica.xattr(ROOT, b"user.said").unwrap(), b"by the other");
    }
}

#[test]
fn the_same_on_both_sides_is_no_conflict() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    for machine in [&ant, &bee] {
        let docs = machine.directory(ROOT, "docs");
        machine.write(docs.ino, "same", b"equal");
    }
    let docs = bee.at("docs").unwrap();
    bee.write(docs.ino, "more", b"only of bee");
    both(&mut ant, &mut bee);
    for machine in [&ant, &bee] {
        assert_eq!(machine.names(""), ["docs"]);
        assert_eq!(machine.names("docs"), ["more", "same"]);
        assert_eq!(machine.read("docs/same"), b"equal");
        assert!(machine.replica.conflicts().unwrap().is_empty());
    }
}

#[test]
fn a_change_is_seen_elsewhere_in_a_moment() {
    let cluster = Cluster::new();
    let (ant, bee) = (cluster.node("ant"), cluster.node("bee"));
    let runner = |machine: TestNode| {
        let TestNode { replica, sync } = machine;
        let runner = Runner::start(sync, cluster.meta.clone(), true).unwrap();
        let waker = runner.waker();
        replica.set_watcher(Some(Box::new(move || waker.wake())));
        (replica, runner)
    };
    let ((ant, ants), (bee, bees)) = (runner(ant), runner(bee));
    let mut waits = Vec::new();
    let mut make = |name: &str| {
        ant.make(ROOT, name.as_bytes(), TestNode::plain(Kind::Directory)).unwrap();
        let since = Instant::now();
        while bee.lookup(ROOT, name.as_bytes()).is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "{ants:?} {bees:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        waits.push(since.elapsed());
    };
    (0..21).for_each(|n| make(&format!("name{n}")));
    waits.sort();
    println!("median {:?}, longest {:?}", waits[10], waits[20]);
    assert!(waits[10] < Duration::from_millis(500), "{waits:?}");
    // Offline by choice, nothing is pushed; online again, it is.
    bees.set_online(false);
    std::thread::sleep(Duration::from_millis(50));
    ant.make(ROOT, b"late", TestNode::plain(Kind::Directory)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(bee.lookup(ROOT, b"late").is_err());
    assert_eq!(bees.progress().link, LinkState::Offline);
    bees.set_online(true);
    let since = Instant::now();
    while bee.lookup(ROOT, b"late").is_err() {
        assert!(since.elapsed() < Duration::from_secs(20), "{bees:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a condition, with a timeout.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn fsynced_content_is_pushed_while_file_is_open() {
    let cluster = Cluster::new();
    let (mut one, mut other) = (cluster.node("one"), cluster.node("other"));
    one.write(ROOT, "old", b"before");
    both(&mut one, &mut other);
    let old = one.at("old").unwrap().ino;
    let new = one.replica.make(ROOT, b"new", TestNode::plain(Kind::Regular)).unwrap().ino;
    let opened = [old, new].map(|num| one.replica.open_file(num, true, false).unwrap());
    for (num, opened) in [old, new].into_iter().zip(&opened) {
        (&*opened.file).write_all(b"synced").unwrap();
        one.replica.sync_file(num).unwrap();
    }
    until("the first versions", || {
        one.sync.step().unwrap();
        other.settle();
        other.at("new").is_ok() && other.read("old") == b"synced" && other.read("new") == b"synced"
    });

    // Unsynced data is not pushed, and pushed data is not pushed again.
    (&*opened[0].file).write_all(b", and more").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let head = cluster.meta.head().unwrap();
    for _ in 0..20 {
        one.sync.step().unwrap();
    }
    assert_eq!(cluster.meta.head().unwrap(), head, "something was sent");
    assert_eq!(one.sync.step().unwrap().sent, 0);
    one.replica.sync_file(old).unwrap();
    until("the second version", || {
        one.sync.step().unwrap();
        other.settle();
        other.read("old") == b"synced, and more"
    });

    // After a crash the replica knows that the file may differ from the pushed version.
    assert!(one.at("old").unwrap().maybe_dirty);
    (&*opened[0].file).write_all(b"!").unwrap();
    for (num, opened) in [old, new].into_iter().zip(&opened) {
        one.replica.release_open(num, true, opened.session);
    }
    both(&mut one, &mut other);
    assert_eq!(other.read("old"), b"synced, and more!");
    assert_eq!(one.replica.conflicts().unwrap(), []);
    assert_eq!(one.replica.pending_count().unwrap(), 0);
}

#[test]
fn a_file_that_was_sent_while_open_is_in_conflict_as_ever() {
    let cluster = Cluster::new();
    let (mut one, mut other) = (cluster.node("one"), cluster.node("other"));
    one.write(ROOT, "file", b"before");
    both(&mut one, &mut other);
    let num = one.at("file").unwrap().ino;
    let opened = one.replica.open_file(num, true, false).unwrap();
    (&*opened.file).write_all(b"synced").unwrap();
    one.replica.sync_file(num).unwrap();
    until("the synced version", || {
        one.sync.step().unwrap();
        other.settle();
        other.read("file") == b"synced"
    });
    (&*opened.file).write_all(b", and more").unwrap();
    other.write(ROOT, "file", b"of the other");
    other.settle();
    until("the version of the other", || {
        one.sync.step().unwrap();
        one.replica.cursor().unwrap() == cluster.meta.head().unwrap()
    });
    one.replica.release_open(num, true, opened.session);
    both(&mut one, &mut other);
    assert_eq!(one.names("file"), ["one", "other"]);
    assert_eq!(one.read("file/one"), b"synced, and more");
    assert_eq!(one.read("file/other"), b"of the other");
}

const MIB: usize = 1 << 20;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Synchronises until the changes of one node are on the other: a large file may take several rounds.
fn sent(one: &mut TestNode, other: &mut TestNode) {
    until("it is sent", || {
        both(one, other);
        one.replica.pending_count() == Ok(0)
    });
    other.settle();
}

impl Cluster {
    /// Returns the bytes that an operation downloads from the store.
    fn fetched_bytes(&self, done: impl FnOnce()) -> usize {
        let before = self.objects.fetched_bytes.load(Ordering::Relaxed);
        done();
        (self.objects.fetched_bytes.load(Ordering::Relaxed) - before) as usize
    }

    /// Returns the backing file of a node's file.
    fn backing(&self, machine: &TestNode, name: &str, path: &str) -> std::path::PathBuf {
        let num = machine.at(path).unwrap().ino;
        self.dir.path().join(format!("{name}/data/{:x}/{num:x}", num / 4096))
    }
}

#[test]
fn of_a_file_that_was_here_only_changed_pieces_come() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let fixed = noise(1, 65 * MIB + 5);
    // Its chunk list is stored in the store.
    let long = noise(2, 60 * MIB);
    let longer = [&long[..], &noise(3, 80 * MIB)].concat();
    let mut holes = vec![0; 80 * MIB];
    holes[10 * MIB..50 * MIB].copy_from_slice(&fixed[..40 * MIB]);
    ant.write(ROOT, "fixed", &fixed);
    ant.write(ROOT, "long", &long);
    ant.settle();
    ant.write(ROOT, "long", &longer);
    ant.write(ROOT, "holes", &holes);
    sent(&mut ant, &mut bee);
    let names = ["fixed", "long", "holes"];
    let mut expected = [fixed, longer, holes];
    for (name, bytes) in names.iter().zip(&expected) {
        assert!(bee.read(name) == *bytes);
    }
    let reader = bee.replica.open_file(bee.at("fixed").unwrap().ino, false, false).unwrap();

    // Changes: an edit, data shifted by an insertion, and zeros in the place of data and the other way round.
    let part = noise(4, 4096);
    expected[0][33 * MIB + 77..][..4096].copy_from_slice(&part);
    ant.edit("fixed", 33 * MIB as u64 + 77, &part);
    expected[1].splice(MIB..MIB, part.iter().copied());
    ant.write(ROOT, "long", &expected[1]);
    expected[2][20 * MIB..28 * MIB].fill(0);
    expected[2][60 * MIB..][..4096].copy_from_slice(&part);
    ant.write(ROOT, "holes", &expected[2]);
    sent(&mut ant, &mut bee);
    for (name, bytes) in names.iter().zip(&expected) {
        let fetched_bytes = cluster.fetched_bytes(|| assert!(bee.read(name) == *bytes, "{name}"));
        assert!((4096..8 * MIB).contains(&fetched_bytes), "{name}: {fetched_bytes}");
        assert_eq!(cluster.fetched_bytes(|| drop(bee.read(name))), 0);
    }
    let mut before = vec![0; 4096];
    reader.file.read_exact_at(&mut before, 33 * MIB as u64 + 77).unwrap();
    assert_eq!(before, noise(1, 65 * MIB + 5)[33 * MIB + 77..][..4096], "what was opened stays as it was");

    // Knowledge of the old version does not survive a restart.
    ant.edit("fixed", 5, &part);
    expected[0][5..][..4096].copy_from_slice(&part);
    sent(&mut ant, &mut bee);
    let bee = again(&cluster, bee);
    let fetched_bytes = cluster.fetched_bytes(|| assert!(bee.read("fixed") == expected[0]));
    assert!(fetched_bytes > 60 * MIB, "{fetched_bytes}");
}

#[test]
fn an_old_version_is_not_believed() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let mut expected = noise(1, 65 * MIB);
    for name in ["spoiled", "short"] {
        ant.write(ROOT, name, &expected);
    }
    sent(&mut ant, &mut bee);
    for name in ["spoiled", "short"] {
        assert!(bee.read(name) == expected);
        let file = std::fs::File::options().write(true).open(cluster.backing(&bee, "bee", name)).unwrap();
        match name {
            "spoiled" => file.write_all_at(b"not what it was", 9 * MIB as u64).unwrap(),
            _ => file.set_len(50 * MIB as u64).unwrap(),
        }
        ant.edit(name, 40 * MIB as u64, b"changed");
    }
    expected[40 * MIB..][..7].copy_from_slice(b"changed");
    sent(&mut ant, &mut bee);
    for (name, min, max) in [("spoiled", 8 * MIB, 9 * MIB), ("short", 18 * MIB, 25 * MIB)] {
        let fetched_bytes = cluster.fetched_bytes(|| assert!(bee.read(name) == expected, "{name}"));
        assert!((min..max).contains(&fetched_bytes), "{name}: {fetched_bytes}");
    }
}

#[test]
fn interrupted_download_completes() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let mut expected = noise(1, 65 * MIB);
    ant.write(ROOT, "file", &expected);
    sent(&mut ant, &mut bee);
    assert!(bee.read("file") == expected);
    let mut change = |ant: &TestNode, n: u64| {
        let (at, part) = (n as usize * 7 * MIB, noise(n, 4096));
        ant.edit("file", at as u64, &part);
        expected[at..][..4096].copy_from_slice(&part);
        expected.clone()
    };
    // Ends after a partial download, while no more can be downloaded.
    for n in 1..3 {
        let expected = change(&ant, n);
        sent(&mut ant, &mut bee);
        let num = bee.at("file").unwrap().ino;
        bee.replica.ensure_present(num, 0..1).unwrap();
        *cluster.objects.mode.lock() = NetworkMode::Cut;
        assert_eq!(bee.replica.ensure_present(num, 0..u64::MAX), Err(Errno::NETUNREACH));
        assert_eq!(bee.at("file").unwrap().state, CacheState::Partial);
        *cluster.objects.mode.lock() = NetworkMode::Open;
        if n % 2 == 1 {
            bee = again(&cluster, bee);
        }
        let fetcher = StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone());
        bee.replica.set_fetcher(Some(Arc::new(fetcher)));
        assert!(bee.read("file") == expected, "{n}");
    }
    // Readers run all the time, while versions follow each other.
    let (replica, num) = (bee.replica.clone(), bee.at("file").unwrap().ino);
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..3u64)
        .map(|n| {
            let (replica, ended) = (replica.clone(), ended.clone());
            std::thread::spawn(move || {
                let mut at = n;
                while !ended.load(Ordering::Relaxed) {
                    at = (at * 7 + 5) % 65;
                    let range = (at << 20)..((at + 3) << 20);
                    replica.ensure_present(num, range).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        })
        .collect();
    let mut last = Vec::new();
    for n in 4..7 {
        last = change(&ant, n);
        sent(&mut ant, &mut bee);
        std::thread::sleep(Duration::from_millis(20));
        if n % 2 == 0 {
            assert!(bee.read("file") == last, "{n}");
        }
    }
    ended.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert!(bee.read("file") == last);
}

/// No request waits for a store that was just found unreachable; once it is back, no request fails for that.
#[test]
fn contents_are_asked_for_again_once_the_store_is_back() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    ant.write(ROOT, "file", &bytes);
    both(&mut ant, &mut bee);
    let reconnects = Arc::new(AtomicU64::new(0));
    let current_reconnects = reconnects.clone();
    let from = StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone());
    let from = from.with_reachability(move || Some(current_reconnects.load(Ordering::Relaxed)));
    bee.replica.set_fetcher(Some(Arc::new(from)));
    let num = bee.at("file").unwrap().ino;
    let want = || bee.replica.ensure_present(num, 0..u64::MAX);
    *cluster.objects.mode.lock() = NetworkMode::Cut;
    assert_eq!(want(), Err(Errno::NETUNREACH));
    *cluster.objects.mode.lock() = NetworkMode::Open;
    assert_eq!(want(), Err(Errno::NETUNREACH), "asked too soon");
    reconnects.store(1, Ordering::Relaxed);
    assert_eq!(want(), Ok(()));
    assert!(bee.read("file") == bytes);
}

/// Only the contents were unreachable, so the metadata connection does not report their return.
#[test]
fn contents_that_were_away_are_there_soon_after_they_are_back() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    ant.write(ROOT, "file", &bytes);
    both(&mut ant, &mut bee);
    let from = Arc::new(StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone()).with_probing());
    bee.replica.set_fetcher(Some(from.clone()));
    let num = bee.at("file").unwrap().ino;
    let want = || bee.replica.ensure_present(num, 0..u64::MAX);
    *cluster.objects.mode.lock() = NetworkMode::Cut;
    assert_eq!(want(), Err(Errno::NETUNREACH));
    // After any length of outage.
    std::thread::sleep(Duration::from_secs(3));
    let asked = Instant::now();
    assert_eq!(want(), Err(Errno::NETUNREACH));
    assert!(asked.elapsed() < Duration::from_millis(100), "somebody waited for what is away");
    *cluster.objects.mode.lock() = NetworkMode::Open;
    let back = Instant::now();
    until("they are back", || !from.has_outage());
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
    assert_eq!(want(), Ok(()));
    assert!(bee.read("file") == bytes);
}

/// A connection that broke while the store was reachable: its requests do not fail.
#[test]
fn a_question_that_was_lost_is_asked_again() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "file", &[7; 100_000]);
    both(&mut ant, &mut bee);
    let from = Arc::new(StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone()).with_probing());
    bee.replica.set_fetcher(Some(from.clone()));
    *cluster.objects.mode.lock() = NetworkMode::CutOnce;
    assert!(bee.read("file") == [7; 100_000]);
    assert_eq!((*cluster.objects.mode.lock(), from.has_outage()), (NetworkMode::Open, false));
}

/// A truncated pack: only its chunks are lost.
#[test]
fn one_damaged_pack_is_no_store_that_is_away() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    let packs = || {
        let of = |dir: std::path::PathBuf| {
            std::fs::read_dir(dir).into_iter().flatten().map(|at| at.unwrap().path())
        };
        of(cluster.dir.path().join("chunks/packs")).flat_map(of).collect::<BTreeSet<_>>()
    };
    ant.write(ROOT, "lost", &noise(1, 100_000));
    sent(&mut ant, &mut bee);
    let first = packs();
    ant.write(ROOT, "kept", &noise(2, 100_000));
    sent(&mut ant, &mut bee);
    assert!(first.len() == 1 && packs().len() == 2);
    for (way, pack) in ["cut", "away"].iter().zip(first.iter().cycle()) {
        match *way {
            "cut" => std::fs::File::options().write(true).open(pack).unwrap().set_len(0).unwrap(),
            _ => std::fs::remove_file(pack).unwrap(),
        }
        let from = Arc::new(StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone()).with_probing());
        bee.replica.set_fetcher(Some(from.clone()));
        let lost = bee.at("lost").unwrap().ino;
        assert_eq!(bee.replica.ensure_present(lost, 0..u64::MAX), Err(Errno::IO), "{way}");
        assert!(!from.has_outage());
        assert!(bee.read("kept") == noise(2, 100_000));
    }
}

/// The reachability probe may request a lost chunk.
#[test]
fn a_store_that_lost_what_is_asked_for_is_back() {
    let cluster = Cluster::new();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "lost", &noise(1, 100_000));
    sent(&mut ant, &mut bee);
    let from = Arc::new(StoreFetcher::new(cluster.meta.clone(), cluster.contents.clone()).with_probing());
    bee.replica.set_fetcher(Some(from.clone()));
    let lost = bee.at("lost").unwrap().ino;
    *cluster.objects.mode.lock() = NetworkMode::Cut;
    assert_eq!(bee.replica.ensure_present(lost, 0..u64::MAX), Err(Errno::NETUNREACH));
    assert!(from.has_outage());
    for pack in std::fs::read_dir(cluster.dir.path().join("chunks/packs")).unwrap() {
        for pack in std::fs::read_dir(pack.unwrap().path()).unwrap() {
            std::fs::write(pack.unwrap().path(), b"").unwrap();
        }
    }
    *cluster.objects.mode.lock() = NetworkMode::Open;
    until("it is back", || !from.has_outage());
    assert_eq!(bee.replica.ensure_present(lost, 0..u64::MAX), Err(Errno::IO));
}

/// An object forged by a node without the key.
fn planted(n: u128, kind: Kind, target: &[u8], bytes: &[u8]) -> Object {
    Object {
        id: ObjectId(n),
        kind,
        mode: 0o644,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: target.to_vec(),
        content: match bytes {
            b"" => Content::empty(),
            _ => Content {
                size: bytes.len() as u64,
                digest: [n as u8; 32],
                layout: Layout::Inline(bytes.to_vec()),
            },
        },
        xattrs: BTreeMap::new(),
    }
}

fn commit(store: &dyn MetaStore, change: Vec<Mutation>) {
    let item = Transaction { mutations: change, ..Transaction::default() };
    store.commit(&"cuckoo".parse().unwrap(), rand::random(), &[item]).unwrap().remove(0).unwrap();
}

fn named(name: &[u8]) -> LinkName {
    LinkName { parent: ObjectId::ROOT, name: name.to_vec() }
}

#[test]
fn bytes_that_were_not_encrypted_are_not_those_of_an_encrypted_volume() {
    let mut cluster = Cluster::new();
    cluster.contents =
        ContentStore::new(Blobs::over(cluster.objects.clone()), ChunkKeys::sealed(&VolumeKey::random()));
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "own", b"small");
    ant.write(ROOT, "empty", b"");
    let planted = planted(77, Kind::Regular, b"", b"made up");
    commit(&*cluster.meta, vec![Mutation::Make(planted), Mutation::Link(named(b"planted"), ObjectId(77))]);
    both(&mut ant, &mut bee);
    let num = bee.at("planted").unwrap().ino;
    assert_eq!(bee.replica.ensure_present(num, 0..u64::MAX), Err(Errno::IO));
    assert_eq!(bee.at("planted").unwrap().state, CacheState::Absent);
    assert_eq!((bee.read("own"), bee.read("empty")), (b"small".to_vec(), Vec::new()));
}

#[test]
fn a_file_of_an_encrypted_volume_is_refused_unless_it_has_its_digest() {
    let mut cluster = Cluster::new();
    cluster.contents =
        ContentStore::new(Blobs::over(cluster.objects.clone()), ChunkKeys::sealed(&VolumeKey::random()));
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "small", b"small");
    ant.write(ROOT, "large", &vec![7; 9 << 20]);
    both(&mut ant, &mut bee);
    // One file gets a chunk replaced by zeros, the other a wrong digest.
    let mut changes = Vec::new();
    for stored in cluster.meta.scan(ObjectId(0), 10).unwrap().objects {
        let Object { id, kind: Kind::Regular, mut content, modified, .. } = stored.object else { continue };
        match &mut content.layout {
            Layout::Direct(pieces) if pieces.len() > 1 => {
                pieces[0] = Segment::Hole { length: pieces[0].length() };
            }
            _ => content.digest[0] ^= 1,
        }
        changes.push(Mutation::SetContent(id, content, modified));
    }
    assert_eq!(changes.len(), 2);
    assert_eq!(bee.read("large").len(), 9 << 20);
    commit(&*cluster.meta, changes);
    let mut cat = cluster.node("cat");
    (0..2).for_each(|_| both(&mut bee, &mut cat));
    for name in ["small", "large"] {
        let num = cat.at(name).unwrap().ino;
        for _ in 0..2 {
            assert_eq!(cat.replica.ensure_present(num, 0..u64::MAX), Err(Errno::IO), "{name}");
            assert_eq!(cat.at(name).unwrap().state, CacheState::Absent, "{name}");
        }
    }
    // Cached content is served as before.
    assert_eq!(bee.read("large").len(), 9 << 20);
    // A rewritten file is available again.
    ant.settle();
    ant.write(ROOT, "small", b"again");
    both(&mut ant, &mut cat);
    assert_eq!(cat.read("small"), b"again");
}

/// Not even from a volume whose log permanently contains an undecryptable entry.
#[test]
fn name_made_without_key_blocks_no_node() {
    let mut cluster = Cluster::new();
    let secret = VolumeKey::random();
    let veiled = || Arc::new(EncryptedStore::new(cluster.admin.clone(), MetadataCipher::new(&secret)));
    cluster.meta = veiled();
    let (mut ant, mut bee) = (cluster.node("ant"), cluster.node("bee"));
    ant.write(ROOT, "own", b"text");
    both(&mut ant, &mut bee);
    let own = cluster.meta.scan(ObjectId::ROOT, 10).unwrap().links.remove(0).child;
    let pipe = |n| planted(n, Kind::Fifo, b"", b"");
    commit(
        &*cluster.admin,
        vec![
            Mutation::Make(pipe(71)),
            Mutation::Link(named(b"in the clear"), ObjectId(71)),
            Mutation::Make(pipe(72)),
            Mutation::Link(named(&[200; 394]), ObjectId(72)),
            Mutation::Make(planted(73, Kind::Symlink, b"/etc/passwd", b"")),
            Mutation::Link(named(b"symlink"), ObjectId(73)),
            Mutation::SetXattr(own, b"user.planted".to_vec(), Some(b"value".to_vec())),
        ],
    );
    both(&mut ant, &mut bee);
    // One node reads the log, another the whole tree; and they agree.
    let names = ant.names("");
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("unreadable-")).count(), 3);
    assert_eq!(bee.names(""), names);
    let mut reported: Vec<_> = cluster
        .meta
        .scan(ObjectId::ROOT, 10)
        .unwrap()
        .links
        .into_iter()
        .map(|link| String::from_utf8(link.at.name).unwrap())
        .collect();
    reported.sort();
    assert_eq!(reported, names);
    let object = |id| cluster.meta.get(&[id]).unwrap().remove(0).unwrap().object;
    assert!(object(own).xattrs.is_empty());
    assert!(object(ObjectId(73)).target.starts_with(b"unreadable-"));
    assert_eq!(bee.read("own"), b"text");

    // They can be removed, also by a node that did not see them in this process.
    cluster.meta = veiled();
    let mut cat = cluster.node("cat");
    cat.settle();
    drop(cat);
    cluster.meta = veiled();
    let mut cat = cluster.node("cat");
    for name in names.iter().filter(|name| name.starts_with("unreadable-")) {
        cat.replica.unlink(ROOT, name.as_bytes()).unwrap();
    }
    both(&mut cat, &mut bee);
    assert_eq!(bee.names(""), ["own"]);
    assert_eq!(cluster.admin.scan(ObjectId::ROOT, 10).unwrap().links.len(), 1);
}

fn settle_all(machine: &mut TestNode) {
    while (Step { blocked: 0, ..machine.sync.step().unwrap() }) != Step::default() {}
}

fn goes_through_all(deep: usize) {
    let cluster = Cluster::new();
    let [mut one, mut other] = [cluster.node("one"), cluster.node("other")];
    let mut chain = vec![ROOT];
    let began = Instant::now();
    for n in 0..deep {
        chain.push(one.directory(chain[n], "d").ino);
    }
    println!("made {:?}", began.elapsed());
    settle_all(&mut one);
    println!("sent {:?}", began.elapsed());
    settle_all(&mut other);
    println!("came {:?}", began.elapsed());
    let mut bottom = ROOT;
    for _ in 0..deep {
        bottom = other.replica.lookup(bottom, b"d").unwrap().ino;
    }
    // The whole tree, since the log was truncated.
    cluster.admin.truncate_log(Time(i64::MAX), 0).unwrap();
    let mut late = cluster.node("late");
    settle_all(&mut late);
    assert!(late.at(&"d/".repeat(deep)).is_ok());
    println!("met {:?}", began.elapsed());
    // All of it is deleted, while the other node has something new at its bottom.
    for n in (0..deep).rev() {
        one.replica.rmdir(chain[n], b"d").unwrap();
    }
    other.write(bottom, "new", b"new");
    println!("removed {:?}", began.elapsed());
    settle_all(&mut one);
    println!("sent {:?}", began.elapsed());
    settle_all(&mut other);
    println!("kept {:?}", began.elapsed());
    let conflicts = other.replica.conflicts_with_paths().unwrap();
    assert_eq!(conflicts.iter().map(|one| &one.path[..]).collect::<Vec<_>>(), [b"d"]);
    cluster.admin.truncate_log(Time(i64::MAX), 0).unwrap();
    settle_all(&mut late);
    assert!(late.at("d").is_err());
    println!("gone {:?}", began.elapsed());
}

#[test]
fn a_chain_of_directories_goes_to_others_with_little_stack_and_is_kept_by_one() {
    let deep = std::env::var("DEPTH").map_or(3000, |depth| depth.parse().unwrap());
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || goes_through_all(deep));
    thread.unwrap().join().unwrap();
}
