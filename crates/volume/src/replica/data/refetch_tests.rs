//! Tests of fetching new versions of files that were cached when they were replaced.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::id::ObjectId;
use crate::object::{Content, Layout, Segment};
use crate::replica::cache::eviction_tests::{AllContents, content_of, open, read, state, stored};
use crate::replica::*;

const BLOCK: u64 = 4096;
const SIZE: u64 = 4 * BLOCK;

/// Replaces a file by another node's version.
fn replace(replica: &Replica, num: u64, size: u64) {
    replace_by(replica, num, size, Vec::new());
}

fn replace_by(replica: &Replica, num: u64, size: u64, pieces: Vec<Segment>) {
    let digest = rand::random();
    replica
        .apply(|applying| {
            let inode = applying.inode(num)?.ok_or(Errno::NOENT)?;
            let mut agreed = applying.local(&inode)?;
            agreed.object.content = Content { size, digest, layout: Layout::Direct(pieces) };
            applying.set_object(inode.id, Some(&agreed), LocalObject::Agreed)
        })
        .unwrap();
}

fn queued(replica: &Replica) -> Vec<u64> {
    replica.refetches(0, 100).unwrap().into_iter().map(|(num, _)| num).collect()
}

/// Returns the rows of the table, which is what is known after a restart.
fn recorded(replica: &Replica) -> Vec<u64> {
    replica.commit().unwrap();
    let query = "SELECT num FROM replaced ORDER BY num";
    let rows = |db: &mut ReplicaDb| {
        let mut query = db.db.prepare(query)?;
        let nums = query.query_map([], |row| row.get::<_, i64>(0))?;
        Ok(nums.map(|num| num.map(|num| num as u64)).collect::<rusqlite::Result<Vec<_>>>()?)
    };
    replica.read(rows).unwrap()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Time given to an idle cache manager to do something.
const IDLE_DELAY: Duration = Duration::from_millis(300);

fn cached(limit: Option<u64>) -> CachePolicy {
    CachePolicy { mode: CacheMode::Cached, limit }
}

#[test]
fn only_complete_files_are_queued_for_refetch() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let [had, part, never, left, gone, emptied] =
        ["had", "part", "never", "left", "gone", "emptied"].map(|name| stored(&replica, ROOT, name, SIZE));
    for num in [had, left, gone, emptied] {
        read(&replica, num);
    }
    replica.ensure_present(part, 0..1).unwrap();
    assert_eq!(state(&replica, part), CacheState::Partial);
    replica.change(|db, _| db.evict_file(left)).unwrap();
    for num in [had, part, never, left, gone, emptied] {
        replace(&replica, num, SIZE);
    }
    assert_eq!(queued(&replica), [had, gone, emptied]);
    replica.unlink(ROOT, b"gone").unwrap();
    let opened = replica.open_file(emptied, true, true).unwrap();
    replica.release_open(emptied, true, opened.session);
    // A version after a version.
    replace(&replica, had, 2 * SIZE);
    assert_eq!(replica.refetches(0, 100).unwrap(), [(had, 2 * SIZE)]);
    replica.ensure_present(had, 0..1).unwrap();
    assert_eq!(replica.refetches(0, 100).unwrap(), [(had, 2 * SIZE - BLOCK)]);
    assert_eq!(recorded(&replica), [had]);
    drop(replica);
    let replica = open(dir.path());
    assert_eq!(queued(&replica), [had], "the queue persists over a restart");
    assert_eq!(read(&replica, had), content_of(2 * SIZE));
    assert_eq!((queued(&replica), recorded(&replica)), (vec![], vec![]));
    // An eviction during the download.
    replace(&replica, had, SIZE);
    replica.ensure_present(had, 0..1).unwrap();
    replica.evict(u64::MAX).unwrap();
    assert_eq!((queued(&replica), recorded(&replica)), (vec![], vec![]));
}

/// Chunks of one layout would overlap cached ranges of the other.
#[test]
fn partial_file_is_dropped_if_chunk_boundaries_change() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let [had, part, same] = ["had", "part", "same"].map(|name| stored(&replica, ROOT, name, SIZE));
    read(&replica, had);
    replica.ensure_present(part, 0..1).unwrap();
    replica.ensure_present(same, 0..1).unwrap();
    for (num, is_cut) in [(had, true), (part, true), (same, false)] {
        let apply = |applying: &mut Applying<'_>| {
            let inode = applying.inode(num)?.ok_or(Errno::NOENT)?;
            let mut agreed = applying.local(&inode)?;
            if is_cut {
                let half = Segment::Hole { length: SIZE / 2 };
                agreed.object.content.layout = Layout::Direct(vec![half, half]);
            }
            applying.set_object(inode.id, Some(&agreed), LocalObject::Agreed)
        };
        replica.apply(apply).unwrap();
    }
    let states = [had, part, same].map(|num| state(&replica, num));
    assert_eq!(states, [CacheState::Complete, CacheState::Absent, CacheState::Partial]);
}

#[test]
fn a_change_that_is_undone_leaves_no_mark() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let num = stored(&replica, ROOT, "file", SIZE);
    read(&replica, num);
    replica.commit().unwrap();
    let failed = replica.apply(|applying| {
        applying.work(|db, _| db.queue_refetch(num, None))?;
        Err::<(), _>(Errno::IO)
    });
    assert_eq!(failed, Err(Errno::IO));
    assert_eq!((queued(&replica), recorded(&replica)), (vec![], vec![]));
}

#[test]
fn superseded_file_is_refetched_before_open() {
    let dir = tempfile::tempdir().unwrap();
    let replica = Arc::new(open(dir.path()));
    let (had, never) = (stored(&replica, ROOT, "had", SIZE), stored(&replica, ROOT, "never", SIZE));
    let written = replica
        .make(
            ROOT,
            b"written",
            NewObject {
                kind: crate::object::Kind::Regular,
                mode: 0o644,
                owner: crate::id::OwnerId(0),
                group: crate::id::OwnerId(0),
                target: b"",
            },
        )
        .unwrap()
        .ino;
    read(&replica, had);
    // Only files that are read.
    let remote =
        CacheManager::start(replica.clone(), CachePolicy { mode: CacheMode::OnDemand, limit: None }).unwrap();
    let opened = replica.open_file(had, false, false).unwrap();
    for num in [had, never, written] {
        replace(&replica, num, SIZE);
    }
    std::thread::sleep(IDLE_DELAY);
    assert_eq!(state(&replica, had), CacheState::Absent, "fetched by a node without a cache");
    drop(remote);
    let tender = CacheManager::start(replica.clone(), cached(None)).unwrap();
    until("the files are fetched again", || {
        [had, written].iter().all(|num| state(&replica, *num) == CacheState::Complete)
            && tender.missing_files() == 0
    });
    assert_eq!(state(&replica, never), CacheState::Absent);
    replica.release_open(had, false, opened.session);
    replica.set_fetcher(None);
    for num in [had, written] {
        assert_eq!(read(&replica, num), content_of(SIZE));
    }
}

#[test]
fn slow_link_refetches_nothing() {
    struct SlowFetcher(AtomicBool);
    impl Fetcher for SlowFetcher {
        fn fetch(
            &self,
            id: ObjectId,
            content: &Content,
            range: Range<u64>,
            into: &File,
        ) -> Result<Range<u64>, Errno> {
            AllContents.fetch(id, content, range, into)
        }

        fn is_fast(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let replica = Arc::new(open(dir.path()));
    let num = stored(&replica, ROOT, "file", SIZE);
    read(&replica, num);
    let slow = Arc::new(SlowFetcher(false.into()));
    replica.set_fetcher(Some(slow.clone()));
    replace(&replica, num, SIZE);
    let _tender = CacheManager::start(replica.clone(), cached(None)).unwrap();
    std::thread::sleep(IDLE_DELAY);
    assert_eq!(state(&replica, num), CacheState::Absent);
    slow.0.store(true, Ordering::Relaxed);
    replica.notify_cache_change();
    until("the file is fetched", || state(&replica, num) == CacheState::Complete);
}

#[test]
fn refetch_evicts_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let replica = Arc::new(open(dir.path()));
    let nums: Vec<u64> = (0..4).map(|n| stored(&replica, ROOT, &n.to_string(), SIZE)).collect();
    for num in &nums {
        read(&replica, *num);
    }
    let limit = 4 * SIZE;
    replace(&replica, nums[0], SIZE + BLOCK);
    let _tender = CacheManager::start(replica.clone(), cached(Some(limit))).unwrap();
    std::thread::sleep(IDLE_DELAY);
    let there = || nums.iter().map(|num| state(&replica, *num) == CacheState::Complete).collect::<Vec<_>>();
    assert_eq!(there(), [false, true, true, true], "it did not fit into the cache");
    // A smaller file leaves enough space.
    replace(&replica, nums[1], SIZE - BLOCK);
    until("the file fits", || there() == [true; 4]);
    assert_eq!(replica.cached_bytes(), limit);
    // A file that was fetched in the background is still the first to be evicted.
    let more = stored(&replica, ROOT, "more", BLOCK);
    read(&replica, more);
    until("one file is evicted", || replica.cached_bytes() <= limit);
    assert_eq!(there(), [false, true, true, true]);
    std::thread::sleep(IDLE_DELAY);
    assert_eq!(there(), [false, true, true, true], "an evicted file was fetched again");
}

fn several() -> Vec<Segment> {
    vec![Segment::Hole { length: BLOCK }, Segment::Hole { length: SIZE - BLOCK }]
}

fn has_basis(replica: &Replica, num: u64) -> bool {
    replica.inner.db.lock().refetch_queue.basis(num).is_some()
}

#[test]
fn basis_files_are_bounded_and_dropped_once_unneeded() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let nums: Vec<u64> = (0..40)
        .map(|n| {
            let num = stored(&replica, ROOT, &n.to_string(), SIZE);
            replace_by(&replica, num, SIZE, several());
            num
        })
        .collect();
    let single = stored(&replica, ROOT, "single", SIZE);
    let written = stored(&replica, ROOT, "written", SIZE);
    replace_by(&replica, written, SIZE, several());
    let again = |nums: &[u64]| {
        for &num in nums {
            read(&replica, num);
            replace_by(&replica, num, SIZE, several());
        }
    };
    read(&replica, written);
    replica
        .change(|db, _| {
            let mut inode = db.inode(written)?;
            inode.maybe_dirty = true;
            db.save(inode);
            Ok(())
        })
        .unwrap();
    again(&[single, written]);
    assert!(!has_basis(&replica, single), "a file of one chunk needs no basis");
    assert!(!has_basis(&replica, written), "the content of a written file is unknown");
    again(&nums);
    let left: Vec<u64> = nums.iter().copied().filter(|num| has_basis(&replica, *num)).collect();
    assert_eq!(left, nums[8..]);

    // Files that are fetched, evicted, removed and truncated.
    read(&replica, nums[10]);
    replica.ensure_present(nums[11], 0..1).unwrap();
    replica.evict(u64::MAX).unwrap();
    replica.unlink(ROOT, b"12").unwrap();
    let opened = replica.open_file(nums[13], true, true).unwrap();
    replica.release_open(nums[13], true, opened.session);
    for num in &nums[10..14] {
        assert!(!has_basis(&replica, *num), "{num}");
    }
    // No more than the cache may hold.
    let here = replica.cached_bytes();
    replica.shrink_basis_cache(Some(here + 2 * SIZE));
    let left: Vec<u64> = nums.iter().copied().filter(|num| has_basis(&replica, *num)).collect();
    assert_eq!(left, nums[38..]);
    let before = Arc::downgrade(&replica.inner.db.lock().refetch_queue.basis(nums[39]).unwrap());
    read(&replica, nums[39]);
    until("the old file is closed", || before.upgrade().is_none());
}
