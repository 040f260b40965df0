//! Compaction: packs with little live data are rewritten, and no data is lost.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use shunt_test_support::servers::Postgres;
use shunt_volume::address::{DataAddress, MetaAddress};
use shunt_volume::crypto::VolumeKey;
use shunt_volume::failpoint::{Failpoint, arm, disarm};
use shunt_volume::id::{ObjectId, OwnerId};
use shunt_volume::maintenance::{
    Collected, Depth, MaintenanceError, StoreOwnerError, collect as free, fsck, repair, set_retention,
};
use shunt_volume::object::{ChunkId, Content, Kind, LinkName, Object, Time};
use shunt_volume::open::{Options, create, open};
use shunt_volume::store::history::Retention;
use shunt_volume::store::{Mutation, Transaction};
use shunt_volume::volume::Volume;

/// Serialises the tests, because failpoints are global to the process.
static ALONE: Mutex<()> = Mutex::new(());

const DAY: Duration = Duration::from_secs(24 * 3600);

struct TestVolume {
    dir: tempfile::TempDir,
    volume: Volume,
    files: HashMap<u128, (Content, Vec<u8>)>,
}

fn noise(seed: u128) -> Vec<u8> {
    let mut bytes = vec![0; 4000];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn at(n: u128) -> LinkName {
    LinkName { parent: ObjectId::ROOT, name: n.to_string().into_bytes() }
}

fn make_old(path: &Path, age: Duration) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

impl TestVolume {
    fn new(secret: Option<VolumeKey>) -> Self {
        Self::by(None, secret)
    }

    /// Creates a volume, with its metadata in a database if one is given.
    fn by(server: Option<&Postgres>, secret: Option<VolumeKey>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = DataAddress::Directory(dir.path().join("data"));
        let options = Options { secret, data, ..Options::default() };
        let sqlite = || MetaAddress::Sqlite(dir.path().to_owned());
        let meta = server.map_or_else(sqlite, |server| MetaAddress::Postgres(server.address()));
        let volume = create(&meta, &"v".parse().unwrap(), &options).unwrap();
        // No history is retained.
        let none = Retention { age: Some(Duration::ZERO), versions: Some(0) };
        set_retention(volume.admin().unwrap(), none).unwrap();
        Self { dir, volume, files: HashMap::new() }
    }

    fn commit(&self, item: Transaction) {
        let node = "node".parse().unwrap();
        self.volume.meta.commit(&node, rand::random(), &[item]).unwrap().remove(0).unwrap();
    }

    /// Creates files whose chunks share one pack.
    fn make(&mut self, numbers: std::ops::Range<u128>) {
        let mut upload = self.volume.content.upload(&*self.volume.meta);
        let mut change = Vec::new();
        for n in numbers {
            let bytes = noise(n);
            let content = upload.put(&bytes[..], bytes.len() as u64, None).unwrap();
            let object = Object {
                id: ObjectId(n),
                kind: Kind::Regular,
                mode: 0o644,
                owner: OwnerId(0),
                group: OwnerId(0),
                modified: Time(0),
                target: Vec::new(),
                content: content.clone(),
                xattrs: Default::default(),
            };
            change.extend([Mutation::Make(object), Mutation::Link(at(n), ObjectId(n))]);
            self.files.insert(n, (content, bytes));
        }
        self.commit(Transaction {
            mutations: change,
            chunks: upload.finish().unwrap().chunks,
            ..Transaction::default()
        });
    }

    fn remove(&mut self, goes: impl Fn(u128) -> bool) {
        let gone: Vec<u128> = self.files.keys().copied().filter(|n| goes(*n)).collect();
        let change = gone.iter().map(|n| Mutation::Unlink(at(*n))).collect();
        self.commit(Transaction { mutations: change, ..Transaction::default() });
        gone.iter().for_each(|n| drop(self.files.remove(n)));
    }

    /// Creates a volume with a sparse pack, whose dead chunks are dropped at the next collection.
    fn sparse(secret: Option<VolumeKey>) -> Self {
        let mut kept = Self::new(secret);
        kept.make(100..200);
        kept.remove(|n| n % 10 != 0);
        assert_eq!(kept.collect().marked, 90);
        kept
    }

    fn collect_after(&self, grace: Duration) -> Result<Collected, MaintenanceError> {
        std::thread::sleep(Duration::from_millis(15));
        free(&self.volume, grace, None, &|_, _| ())
    }

    fn collect(&self) -> Collected {
        self.collect_after(Duration::ZERO).unwrap()
    }

    fn collect_times(&self, times: usize) {
        for _ in 0..times {
            self.collect();
        }
    }

    fn packs(&self) -> Vec<PathBuf> {
        let of = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().map(|at| at.unwrap().path());
        of(self.dir.path().join("data/packs")).flat_map(of).collect()
    }

    fn bytes(&self) -> u64 {
        self.packs().iter().map(|pack| fs::metadata(pack).unwrap().len()).sum()
    }

    fn unread_by(&self, volume: &Volume) -> usize {
        let is_read = |(content, bytes): &(Content, Vec<u8>)| {
            volume.content.read(&*volume.meta, content, 0..u64::MAX).is_ok_and(|read| read == *bytes)
        };
        self.files.values().filter(|file| !is_read(file)).count()
    }

    /// Asserts that all files have their content and fsck finds no problem.
    fn is_whole(&self) {
        assert_eq!(self.unread_by(&self.volume), 0);
        let checked = fsck(&self.volume, Depth::Contents, &|_, _| ()).unwrap();
        assert_eq!(checked.problems, []);
    }

    /// Opens the volume with a copy of its current metadata.
    fn copied(&self) -> Volume {
        let to = self.dir.path().join("copy");
        fs::create_dir(&to).unwrap();
        let from = rusqlite::Connection::open(self.dir.path().join("meta.db")).unwrap();
        from.execute("VACUUM INTO ?1", [to.join("meta.db").to_str().unwrap()]).unwrap();
        let mut copy = open(&MetaAddress::Sqlite(to), &"v".parse().unwrap(), None).unwrap();
        copy.content = self.volume.content.clone();
        copy
    }

    fn noted(&self) -> usize {
        self.volume.admin().unwrap().settings("gc.pack.").unwrap().len()
    }
}

#[test]
fn live_chunks_of_sparse_pack_are_moved() {
    let _alone = ALONE.lock();
    for secret in [None, Some(VolumeKey::random())] {
        let kept = TestVolume::sparse(secret);
        let full = kept.bytes();
        let second = kept.collect();
        assert_eq!((second.dropped, second.packs, second.rewritten, second.unused_bytes), (90, 0, 1, 0));
        assert_eq!(kept.packs().len(), 2, "the old one can be read for a while");
        kept.is_whole();
        let third = kept.collect();
        assert_eq!((third.packs, third.rewritten), (1, 0));
        assert_eq!(kept.bytes(), full - second.bytes_to_free);
        assert!(kept.bytes() < full / 9, "{} of {full}", kept.bytes());
        kept.is_whole();
        let fourth = kept.collect();
        assert_eq!((fourth.packs, fourth.rewritten, kept.packs().len()), (0, 0, 1));
        kept.is_whole();
    }
}

#[test]
fn several_sparse_packs_become_one() {
    let _alone = ALONE.lock();
    let mut kept = TestVolume::new(None);
    (1..5).for_each(|n| kept.make(n * 100..n * 100 + 12));
    kept.make(900..912);
    kept.remove(|n| n < 900 && n % 10 != 0);
    kept.collect();
    assert_eq!(kept.collect().rewritten, 4);
    kept.collect();
    assert_eq!(kept.packs().len(), 2, "and one that is full stays");
    kept.is_whole();
}

/// Its index is longer than the first read of its end, and its chunks are more than one request covers.
#[test]
fn a_full_pack_of_small_files_is_rewritten() {
    let _alone = ALONE.lock();
    let mut kept = TestVolume::new(None);
    kept.make(10_000..12_000);
    kept.remove(|n| n % 10 != 0);
    kept.collect();
    let second = kept.collect();
    assert_eq!((second.dropped, second.rewritten), (1800, 1));
    assert!(second.bytes_to_free > 7_000_000, "{second:?}");
    kept.collect();
    assert!(kept.packs().len() == 1 && kept.bytes() < 1 << 20, "{}", kept.bytes());
    kept.is_whole();
}

#[test]
fn small_packs_are_not_compacted() {
    let _alone = ALONE.lock();
    let mut kept = TestVolume::new(None);
    kept.make(10..20);
    kept.remove(|n| n != 10);
    kept.collect();
    let second = kept.collect();
    assert_eq!((second.dropped, second.rewritten, kept.packs().len()), (9, 0, 1));
    assert!((9 * 4000..9 * 4100).contains(&second.unused_bytes), "{second:?}");
    kept.is_whole();
}

#[test]
fn a_piece_that_is_condemned_stays_it_in_the_other_pack() {
    let _alone = ALONE.lock();
    let mut kept = TestVolume::sparse(None);
    kept.remove(|n| n == 150);
    let second = kept.collect();
    assert_eq!((second.marked, second.dropped, second.rewritten), (1, 90, 1));
    let chunks = kept.volume.admin().unwrap().scan_chunks(ChunkId([0; 32]), 99).unwrap();
    assert_eq!(chunks.iter().filter(|(_, chunk)| chunk.marked_at.is_some()).count(), 1);
    assert!(chunks.iter().all(|(_, chunk)| chunk.location.key == chunks[0].1.location.key));
    assert_eq!(kept.collect().dropped, 1);
    kept.is_whole();
}

/// A backup of the metadata that is no older than the history finds all chunks it references.
#[test]
fn a_pack_that_was_rewritten_stays_as_long_as_history() {
    let _alone = ALONE.lock();
    let kept = TestVolume::sparse(None);
    let backup = kept.copied();
    let keep_for = |age| {
        set_retention(kept.volume.admin().unwrap(), Retention { age, versions: Some(0) }).unwrap();
    };
    keep_for(Some(2 * DAY));
    let done = kept.collect();
    assert_eq!((done.rewritten, done.saved_after), (1, 2 * DAY));
    assert_eq!(kept.collect().packs, 0);
    keep_for(None);
    assert_eq!(kept.collect().packs, 0, "history has no end");
    assert_eq!(kept.unread_by(&backup), 0);
    keep_for(Some(Duration::ZERO));
    assert_eq!(kept.collect().packs, 1);
    assert!(kept.unread_by(&backup) > 0);
    kept.is_whole();
}

#[test]
fn a_place_that_was_asked_for_before_is_read_for_the_grace() {
    let _alone = ALONE.lock();
    for is_cut_short in [false, true] {
        let kept = TestVolume::sparse(None);
        let before = kept.copied();
        if is_cut_short {
            arm(Failpoint::GcMoved, 1);
        }
        assert_eq!(kept.collect_after(Duration::ZERO).is_err(), is_cut_short);
        disarm();
        // Everything but the new pack.
        kept.packs().iter().for_each(|pack| make_old(pack, 3 * DAY));
        make_old(&kept.dir.path().join("data/shunt.volume"), 9 * DAY);
        for _ in 0..3 {
            assert_eq!(kept.collect_after(DAY).unwrap().packs, 0);
            assert_eq!(kept.unread_by(&before), 0);
        }
        assert_eq!(kept.collect().packs, 1);
        assert_eq!(kept.unread_by(&before), 10);
        kept.is_whole();
    }
}

/// No commit distinguishes the copies of the metadata.
#[test]
fn metadata_of_before_pieces_were_moved_free_nothing_until_they_found_them() {
    let _alone = ALONE.lock();
    let kept = TestVolume::sparse(None);
    let copy = kept.copied();
    kept.collect();
    kept.collect();
    assert_eq!((kept.packs().len(), kept.unread_by(&copy)), (1, 10));
    let refused = free(&copy, Duration::ZERO, None, &|_, _| ()).unwrap_err();
    assert!(matches!(refused, MaintenanceError::StoreOwner(StoreOwnerError::Moved(_))), "{refused}");
    kept.is_whole();
    // In case the current metadata is lost.
    let checked = fsck(&copy, Depth::Locations, &|_, _| ()).unwrap();
    let repaired = repair(&copy, &"repair".parse().unwrap(), &checked, &|_, _| ()).unwrap();
    assert_eq!((repaired.chunks, repaired.unrepaired, kept.unread_by(&copy)), (10, 0, 0));
    fs::remove_file(kept.dir.path().join("data/shunt.moved")).unwrap();
    for _ in 0..3 {
        free(&copy, Duration::ZERO, None, &|_, _| ()).unwrap();
    }
    assert_eq!(kept.unread_by(&copy), 0);
}

#[test]
fn a_pack_of_which_something_is_damaged_is_left_as_it_is() {
    let _alone = ALONE.lock();
    let mut kept = TestVolume::new(None);
    kept.make(100..150);
    let whole = kept.packs().remove(0);
    kept.make(200..250);
    kept.remove(|n| n % 10 != 0);
    kept.collect();
    let pack = kept.packs().into_iter().find(|pack| *pack != whole).unwrap();
    File::options().write(true).open(&pack).unwrap().write_all_at(b"damage", 500).unwrap();
    let was = fs::read(&pack).unwrap();
    for packs in [0, 1, 0] {
        let done = kept.collect();
        assert_eq!(done.packs, packs);
        assert!(done.unused_bytes > 100_000, "{done:?}");
    }
    assert!(!whole.exists(), "the other one is rewritten all the same");
    assert_eq!(fs::read(&pack).unwrap(), was);
    assert_eq!(kept.unread_by(&kept.volume), 1);
    assert_eq!(fsck(&kept.volume, Depth::Contents, &|_, _| ()).unwrap().count, 1);
    // A pack with an unreadable index is left alone, too.
    let file = File::options().write(true).open(&pack).unwrap();
    file.write_all_at(b"damage", was.len() as u64 - 20).unwrap();
    assert_eq!(kept.collect().rewritten, 0);
    assert_eq!(kept.unread_by(&kept.volume), 1);
}

#[test]
fn compaction_interrupted_at_any_point_loses_nothing() {
    let _alone = ALONE.lock();
    let points = [
        Failpoint::GcDropped,
        Failpoint::PackStored,
        Failpoint::GcNoted,
        Failpoint::GcRepacked,
        Failpoint::GcMoved,
        Failpoint::GcEmptied,
        Failpoint::GcRemoved,
    ];
    // Also with no commit for a long time: packs uploaded since then are not another volume's.
    for (point, is_idle) in points.into_iter().flat_map(|point| [(point, false), (point, true)]) {
        let kept = TestVolume::sparse(None);
        if is_idle {
            let db = rusqlite::Connection::open(kept.dir.path().join("meta.db")).unwrap();
            let days = 2 * DAY.as_nanos() as i64;
            assert!(db.execute("UPDATE log SET at = at - ?", [days]).unwrap() > 0);
            make_old(&kept.packs()[0], 3 * DAY);
        }
        arm(point, 1);
        let ends = (0..3).filter(|_| kept.collect_after(Duration::ZERO).is_err()).count();
        assert!(disarm() && ends > 0, "{point:?} is not reached");
        kept.is_whole();
        for _ in 0..3 {
            kept.collect();
            kept.is_whole();
        }
        assert_eq!((kept.packs().len(), kept.noted()), (1, 1), "{point:?}, {is_idle}");
        assert!(kept.bytes() < 50_000, "{point:?}, {is_idle}: {}", kept.bytes());
    }
}

#[test]
fn several_who_collect_at_once_lose_nothing() {
    let _alone = ALONE.lock();
    collect_at_once(TestVolume::new(None));
}

#[test]
fn several_who_collect_at_once_in_a_database_lose_nothing() {
    let Some(server) = Postgres::start(false) else {
        return shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
    };
    let _alone = ALONE.lock();
    collect_at_once(TestVolume::by(Some(&server), Some(VolumeKey::random())));
}

fn collect_at_once(mut kept: TestVolume) {
    for n in 1..6 {
        kept.make(n * 1000..n * 1000 + 50);
        kept.remove(|file| file >= n * 1000 && file % 10 != 0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| kept.collect_times(3));
            }
        });
        kept.is_whole();
    }
    kept.collect_times(4);
    kept.is_whole();
    assert!(kept.bytes() < 250_000, "{}", kept.bytes());
}
