//! Tests of batched, deduplicated and prefetched downloads.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::id::ObjectId;
use crate::object::{Content, Layout};
use crate::replica::cache::eviction_tests::{byte, content_of, stored};
use crate::replica::*;

const PIECE_BYTES: u64 = 1 << 20;

/// A store with chunks of 1 MiB, which records its requests.
struct RecordingFetcher {
    asked: Mutex<Vec<Range<u64>>>,
    /// Number of requests for several files.
    together: AtomicUsize,
    slow: AtomicBool,
    reachable: AtomicBool,
    takes: Duration,
}

impl RecordingFetcher {
    fn new(takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            asked: Mutex::default(),
            together: AtomicUsize::new(0),
            slow: false.into(),
            reachable: true.into(),
            takes,
        })
    }

    fn bytes(&self) -> u64 {
        self.asked.lock().iter().map(|range| range.end - range.start).sum()
    }
}

impl Fetcher for RecordingFetcher {
    fn fetch(
        &self,
        _: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno> {
        std::thread::sleep(self.takes);
        let range = self.extent(content, range)?;
        let bytes: Vec<u8> = range.clone().map(byte).collect();
        into.write_all_at(&bytes, range.start).unwrap();
        self.asked.lock().push(range.clone());
        Ok(range)
    }

    fn extent(&self, content: &Content, range: Range<u64>) -> Result<Range<u64>, Errno> {
        Ok(range.start / PIECE_BYTES * PIECE_BYTES
            ..(range.end.div_ceil(PIECE_BYTES) * PIECE_BYTES).min(content.size))
    }

    fn fetch_batch(&self, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
        self.together.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.takes);
        for file in files {
            file.into.write_all_at(&content_of(file.content.size), 0).unwrap();
        }
        vec![Ok(()); files.len()]
    }

    fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    fn is_fast(&self) -> bool {
        !self.slow.load(Ordering::Relaxed)
    }
}

fn open(path: &Path, fetcher: Arc<RecordingFetcher>) -> Arc<Replica> {
    let replica = Arc::new(Replica::open(path, Options::new("v", "here".parse().unwrap())).unwrap());
    replica.set_fetcher(Some(fetcher));
    replica
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn readers_of_one_range_fetch_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = RecordingFetcher::new(Duration::from_millis(50));
    let replica = open(dir.path(), store.clone());
    replica.set_prefetch(false);
    let size = 4 * PIECE_BYTES + 7;
    let num = stored(&replica, ROOT, "file", size);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let replica = &replica;
            scope.spawn(move || replica.ensure_present(num, n % 2 * 1000..2 * PIECE_BYTES + n).unwrap());
        }
    });
    assert_eq!(store.bytes(), 3 * PIECE_BYTES, "{:?}", store.asked.lock());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| replica.ensure_present(num, 0..u64::MAX).unwrap());
        }
    });
    assert_eq!(store.bytes(), size);
    let opened = replica.open_file(num, false, false).unwrap();
    assert!(opened.complete);
    let mut bytes = vec![0; size as usize];
    opened.file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == content_of(size));
    replica.release_open(num, false, opened.session);
}

#[test]
fn the_rest_of_a_file_comes_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = RecordingFetcher::new(Duration::ZERO);
    let replica = open(dir.path(), store.clone());
    let size = 40 * PIECE_BYTES;
    let (read, jumped, slow) = (
        stored(&replica, ROOT, "read", size),
        stored(&replica, ROOT, "jumped", size),
        stored(&replica, ROOT, "slow", size),
    );
    let step = 128 << 10;
    (0..16).for_each(|n| replica.ensure_present(read, n * step..(n + 1) * step).unwrap());
    wait("read-ahead", || store.bytes() >= 8 * PIECE_BYTES);
    // After a read to the end, each chunk was downloaded once.
    (16..size / step).for_each(|n| replica.ensure_present(read, n * step..(n + 1) * step).unwrap());
    wait("all", || replica.get(read).unwrap().state == CacheState::Complete);
    assert_eq!(store.bytes(), size);
    // Random reads cause no read-ahead.
    store.asked.lock().clear();
    for at in [30, 10, 20, 35] {
        replica.ensure_present(jumped, at * PIECE_BYTES..at * PIECE_BYTES + 10).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(store.bytes(), 4 * PIECE_BYTES);
    // A slow connection causes none either.
    store.asked.lock().clear();
    store.slow.store(true, Ordering::Relaxed);
    (0..16).for_each(|n| replica.ensure_present(slow, n * step..(n + 1) * step).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(store.bytes(), 2 * PIECE_BYTES);
}

#[test]
fn small_files_of_a_walk_come_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = RecordingFetcher::new(Duration::from_millis(1));
    let replica = open(dir.path(), store.clone());
    let nums: Vec<u64> = (0..400).map(|n| stored(&replica, ROOT, &format!("{n:04}"), 5000)).collect();
    for num in &nums {
        replica.ensure_present(*num, 0..u64::MAX).unwrap();
        let opened = replica.open_file(*num, false, false).unwrap();
        let mut bytes = vec![0; 5000];
        opened.file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(opened.complete && bytes == content_of(5000));
        replica.release_open(*num, false, opened.session);
    }
    let (alone, together) = (store.asked.lock().len(), store.together.load(Ordering::Relaxed));
    assert!(alone + together < 100, "{alone} and {together} requests for 400 files");
    assert!(store.bytes() < 400 * 5000);
}

#[test]
fn offline_miss_fails_at_once_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = RecordingFetcher::new(Duration::ZERO);
    let replica = open(dir.path(), store.clone());
    replica.set_prefetch(false);
    let (one, other) =
        (stored(&replica, ROOT, "one", PIECE_BYTES), stored(&replica, ROOT, "other", PIECE_BYTES));
    assert_eq!(replica.offline_misses().unwrap(), (0, Vec::new()));
    store.reachable.store(false, Ordering::Relaxed);
    for num in [one, other, one] {
        assert_eq!(replica.ensure_present(num, 0..1), Err(Errno::NETUNREACH));
    }
    assert_eq!(replica.offline_misses().unwrap(), (3, vec![b"other".to_vec(), b"one".to_vec()]));
    assert!(store.asked.lock().is_empty());
    store.reachable.store(true, Ordering::Relaxed);
    replica.ensure_present(one, 0..u64::MAX).unwrap();
    assert_eq!(replica.offline_misses().unwrap(), (3, vec![b"other".to_vec()]));
}

#[test]
fn a_very_small_file_needs_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), RecordingFetcher::new(Duration::ZERO));
    replica.set_fetcher(None);
    let (small, empty) = (stored(&replica, ROOT, "small", 5), stored(&replica, ROOT, "empty", 0));
    for (num, bytes) in [(small, &b"small"[..]), (empty, b"")] {
        let id = replica.get(num).unwrap().id;
        replica
            .apply(|applying| {
                let inode = applying.find(id)?.unwrap();
                let mut inline = applying.base(&inode)?.unwrap();
                inline.object.content.digest = [7; 32];
                inline.object.content.layout = Layout::Inline(bytes.to_vec());
                applying.set_object(id, Some(&inline), LocalObject::Agreed)
            })
            .unwrap();
        replica.ensure_present(num, 0..u64::MAX).unwrap();
        let opened = replica.open_file(num, false, false).unwrap();
        let mut read = vec![0; bytes.len()];
        opened.file.read_exact_at(&mut read, 0).unwrap();
        assert!(opened.complete && read == bytes);
        replica.release_open(num, false, opened.session);
    }
}

/// Data that was not fsynced is fetched again after a crash of the machine, but not of the process.
#[test]
fn unsynced_data_is_fetched_again() {
    for machine in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = RecordingFetcher::new(Duration::ZERO);
        let mut options = Options::new("v", "here".parse().unwrap());
        options.background = false;
        let replica = Replica::open(dir.path(), options.clone()).unwrap();
        replica.set_fetcher(Some(store.clone()));
        let (came, written) =
            (stored(&replica, ROOT, "came", PIECE_BYTES), stored(&replica, ROOT, "written", PIECE_BYTES));
        replica.ensure_present(came, 0..u64::MAX).unwrap();
        replica.ensure_present(written, 0..u64::MAX).unwrap();
        let opened = replica.open_file(written, true, false).unwrap();
        opened.file.write_all_at(b"here", 0).unwrap();
        replica.release_open(written, true, opened.session);
        replica.commit().unwrap();
        drop(replica);
        if machine {
            let db = Connection::open(dir.path().join("replica.db")).unwrap();
            db.execute("UPDATE meta SET value = 'before' WHERE key = 'boot'", []).unwrap();
            // The state of a file of which only the length is on the disk.
            let backing = BackingDir::open(dir.path()).unwrap().existing(came).unwrap();
            backing.write_all_at(&vec![0; PIECE_BYTES as usize], 0).unwrap();
        }
        let replica = Replica::open(dir.path(), options).unwrap();
        replica.set_fetcher(Some(store.clone()));
        let states = [came, written].map(|num| replica.get(num).unwrap().state);
        assert_eq!(
            states,
            [if machine { CacheState::Absent } else { CacheState::Complete }, CacheState::Complete]
        );
        store.asked.lock().clear();
        replica.ensure_present(came, 0..u64::MAX).unwrap();
        assert_eq!(store.bytes(), if machine { PIECE_BYTES } else { 0 });
        let read = |num| {
            let mut bytes = vec![0; PIECE_BYTES as usize];
            let opened = replica.open_file(num, false, false).unwrap();
            opened.file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(read(came) == content_of(PIECE_BYTES));
        assert_eq!(read(written)[..4], *b"here");
    }
}

/// Replaces a file by another version from the store.
fn replace(replica: &Replica, num: u64) {
    let id = replica.get(num).unwrap().id;
    replica
        .apply(|applying| {
            let inode = applying.find(id)?.unwrap();
            let mut next = applying.base(&inode)?.unwrap();
            next.object.content.digest = [8; 32];
            applying.set_object(id, Some(&next), LocalObject::Agreed)
        })
        .unwrap();
}

/// If a partially cached version is replaced, its readers get an error, and no zeros.
#[test]
fn a_version_that_is_gone_is_not_read_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let store = RecordingFetcher::new(Duration::ZERO);
    let replica = open(dir.path(), store);
    let num = stored(&replica, ROOT, "file", 4 * PIECE_BYTES);
    let opened = replica.open_file(num, false, false).unwrap();
    replica.ensure_open_present(num, opened.session, 0..10).unwrap();
    replace(&replica, num);
    assert_eq!(
        replica.ensure_open_present(num, opened.session, PIECE_BYTES..PIECE_BYTES + 1),
        Err(Errno::STALE)
    );
    replica.release_open(num, false, opened.session);
    let again = replica.open_file(num, false, false).unwrap();
    replica.ensure_open_present(num, again.session, PIECE_BYTES..PIECE_BYTES + 1).unwrap();
    replica.release_open(num, false, again.session);
}

/// A reader of cached data asks for it once.
#[test]
fn cached_ranges_are_valid_for_the_same_version_only() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path(), RecordingFetcher::new(Duration::ZERO));
    replica.set_prefetch(false);
    let num = stored(&replica, ROOT, "file", 5 * PIECE_BYTES);
    let session = replica.open_file(num, false, false).unwrap().session;
    let want = |range| replica.ensure_open_present(num, session, range).unwrap();
    assert_eq!(want(PIECE_BYTES + 1..PIECE_BYTES + 2), PIECE_BYTES..2 * PIECE_BYTES);
    assert_eq!(
        want(2 * PIECE_BYTES..2 * PIECE_BYTES + 1),
        PIECE_BYTES..3 * PIECE_BYTES,
        "with the content fetched before"
    );
    assert_eq!(
        want(4 * PIECE_BYTES..5 * PIECE_BYTES + 1),
        4 * PIECE_BYTES..u64::MAX,
        "to the end of the file and beyond"
    );
    assert_eq!(
        want(9 * PIECE_BYTES..9 * PIECE_BYTES + 1),
        9 * PIECE_BYTES..u64::MAX,
        "nothing is missing in that range"
    );
    replica.record_read(num, session, &(PIECE_BYTES..2 * PIECE_BYTES)).unwrap();
    replace(&replica, num);
    assert_eq!(replica.record_read(num, session, &(PIECE_BYTES..2 * PIECE_BYTES)), Err(Errno::STALE));
    replica.release_open(num, false, session);
}

/// A version is replaced during its download: the rest would be of the other version, in the other file.
#[test]
fn a_version_that_goes_while_it_comes_is_not_read_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let store = RecordingFetcher::new(Duration::from_millis(100));
    let replica = open(dir.path(), store.clone());
    replica.set_prefetch(false);
    let num = stored(&replica, ROOT, "file", 5 * PIECE_BYTES);
    let opened = replica.open_file(num, false, false).unwrap();
    for here in [1, 3] {
        replica
            .ensure_open_present(num, opened.session, here * PIECE_BYTES..(here + 1) * PIECE_BYTES)
            .unwrap();
    }
    let done = std::thread::scope(|scope| {
        let reads = scope.spawn(|| replica.ensure_open_present(num, opened.session, 0..5 * PIECE_BYTES));
        wait("the first of three", || store.asked.lock().len() > 2);
        replace(&replica, num);
        reads.join().unwrap()
    });
    assert_eq!(done, Err(Errno::STALE));
    replica.release_open(num, false, opened.session);
}
