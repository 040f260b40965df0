//! Tests of eviction and of the accounting of cached bytes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use crate::id::{ObjectId, OwnerId};
use crate::object::{Content, Kind, Layout, Object, VersionedObject};
use crate::replica::*;

const SIZE: u64 = 3 * 4096 + 5;

/// A store that has every content: the value of each byte depends on its offset.
pub(crate) struct AllContents;

pub(crate) fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

impl Fetcher for AllContents {
    fn fetch(
        &self,
        _: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno> {
        let range = range.start / 4096 * 4096..(range.end.div_ceil(4096) * 4096).min(content.size);
        let bytes: Vec<u8> = range.clone().map(byte).collect();
        into.write_all_at(&bytes, range.start).unwrap();
        Ok(range)
    }
}

pub(crate) fn open(path: &Path) -> Replica {
    let mut options = Options::new("v", "here".parse().unwrap());
    options.background = false;
    let replica = Replica::open(path, options).unwrap();
    replica.set_fetcher(Some(Arc::new(AllContents)));
    replica.enable_recent_opens();
    replica
}

/// Creates a file that the store has, with a name in a directory.
pub(crate) fn stored(replica: &Replica, parent: u64, name: &str, size: u64) -> u64 {
    let id = ObjectId(rand::random());
    let content = Content { size, digest: [9; 32], layout: Layout::Direct(Vec::new()) };
    let object = Object {
        id,
        kind: Kind::Regular,
        mode: 0o644,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: crate::object::Time(1),
        target: Vec::new(),
        content,
        xattrs: Default::default(),
    };
    let stored = VersionedObject { object, created: Seq(1), field_versions: Default::default(), links: 1 };
    replica
        .apply(|applying| {
            let num = applying.set_object(id, Some(&stored), LocalObject::Agreed)?;
            applying.set_link(parent, name.as_bytes(), Some((num, Seq(1))), Some(num))?;
            Ok(num)
        })
        .unwrap()
}

pub(crate) fn read(replica: &Replica, num: u64) -> Vec<u8> {
    let opened = replica.open_file(num, false, false).unwrap();
    replica.ensure_present(num, 0..u64::MAX).unwrap();
    let mut bytes = vec![0; opened.file.metadata().unwrap().len() as usize];
    opened.file.read_exact_at(&mut bytes, 0).unwrap();
    replica.release_open(num, false, opened.session);
    bytes
}

pub(crate) fn content_of(size: u64) -> Vec<u8> {
    (0..size).map(byte).collect()
}

/// Checks the counter of cached bytes against the tables.
fn counted(replica: &Replica) -> u64 {
    replica.commit().unwrap();
    let query = "SELECT (SELECT coalesce(sum((size + 4095) / 4096 * 4096), 0) FROM object WHERE kind = 0 AND state = 2)
        + (SELECT coalesce(sum(past - first), 0) FROM present)";
    let sum: i64 = replica.read(|db| Ok(db.db.query_row(query, [], |row| row.get(0))?)).unwrap();
    assert_eq!(replica.cached_bytes(), sum as u64);
    sum as u64
}

pub(crate) fn state(replica: &Replica, num: u64) -> CacheState {
    replica.get(num).unwrap().state
}

#[test]
fn the_least_recently_opened_leave_first() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let nums: Vec<u64> = (0..4).map(|n| stored(&replica, ROOT, &n.to_string(), SIZE)).collect();
    for num in &nums {
        assert_eq!(state(&replica, *num), CacheState::Absent);
        assert_eq!(read(&replica, *num), content_of(SIZE));
    }
    read(&replica, nums[0]);
    assert_eq!(counted(&replica), 4 * 4 * 4096);
    assert_eq!(replica.evict(1).unwrap(), 4 * 4096);
    assert_eq!(state(&replica, nums[1]), CacheState::Absent);
    assert!(replica.backing(nums[1]).is_none(), "its backing file was removed");
    replica.evict(2 * 4 * 4096).unwrap();
    let there: Vec<_> = nums.iter().map(|num| state(&replica, *num) == CacheState::Complete).collect();
    assert_eq!(there, [true, false, false, false]);
    assert_eq!(counted(&replica), 4 * 4096);
    drop(replica);
    let replica = open(dir.path());
    assert_eq!(counted(&replica), 4 * 4096);
    for num in nums {
        assert_eq!(read(&replica, num), content_of(SIZE), "it is fetched again");
    }
}

#[test]
fn open_changed_and_pinned_files_are_not_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let directory =
        NewObject { kind: Kind::Directory, mode: 0o755, owner: OwnerId(0), group: OwnerId(0), target: b"" };
    let above = replica.make(ROOT, b"above", directory).unwrap().ino;
    let below = replica.make(above, b"below", directory).unwrap().ino;
    let pinned = stored(&replica, below, "pinned", SIZE);
    let (reads, wrote, free) = (
        stored(&replica, ROOT, "reads", SIZE),
        stored(&replica, ROOT, "wrote", SIZE),
        stored(&replica, ROOT, "free", SIZE),
    );
    let own = replica.make(ROOT, b"own", NewObject { kind: Kind::Regular, ..directory }).unwrap().ino;
    let opened = replica.open_file(own, true, false).unwrap();
    opened.file.set_len(10_000).unwrap();
    replica.release_open(own, true, opened.session);
    replica.pin(above, true).unwrap();
    for num in [pinned, reads, wrote, free] {
        read(&replica, num);
    }
    let reader = replica.open_file(reads, false, false).unwrap();
    let writer = replica.open_file(wrote, true, false).unwrap();
    replica.release_open(wrote, true, writer.session);
    assert_eq!(replica.evict(u64::MAX).unwrap(), 4 * 4096);
    let states = [pinned, reads, wrote, own, free].map(|num| state(&replica, num));
    assert_eq!(states[..4], [CacheState::Complete; 4]);
    assert_eq!(states[4], CacheState::Absent);
    let here = replica.cache_stats().unwrap();
    assert_eq!(here, CacheStats { bytes: counted(&replica), pinned: 4 * 4096, changed: 4 * 4096 + 3 * 4096 });
    // A removed pin and a released file.
    replica.pin(above, false).unwrap();
    replica.release_open(reads, false, reader.session);
    assert_eq!(replica.evict(u64::MAX).unwrap(), 2 * 4 * 4096);
}

#[test]
fn pinned_or_all_files_are_requested() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let directory =
        NewObject { kind: Kind::Directory, mode: 0o755, owner: OwnerId(0), group: OwnerId(0), target: b"" };
    let above = replica.make(ROOT, b"above", directory).unwrap().ino;
    let one = stored(&replica, above, "one", SIZE);
    let other = stored(&replica, ROOT, "other", SIZE);
    assert!(replica.missing_files(false, 0, 10).unwrap().is_empty());
    replica.pin(above, true).unwrap();
    assert_eq!(replica.missing_files(false, 0, 10).unwrap(), [one]);
    let late = stored(&replica, above, "late", SIZE);
    assert_eq!(replica.missing_files(false, 0, 10).unwrap(), [one, late]);
    assert_eq!(replica.missing_files(true, 0, 10).unwrap(), [one, other, late]);
    assert_eq!(replica.missing_files(true, one, 1).unwrap(), [other]);
    drop(replica);
    let replica = open(dir.path());
    assert!(replica.is_pinned(late).unwrap());
    assert_eq!(replica.missing_files(false, 0, 10).unwrap(), [one, late]);
}

/// A crash between recording an eviction and removing the data, or before the record is durable.
#[test]
fn a_crash_leaves_no_file_that_is_said_to_be_here() {
    for lasts in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let replica = open(dir.path());
        let num = stored(&replica, ROOT, "file", SIZE);
        read(&replica, num);
        replica.sync().unwrap();
        replica.change(|db, _| db.evict_file(num)).unwrap();
        if lasts {
            replica.sync().unwrap();
        }
        // The state that a crash leaves.
        let copy = tempfile::tempdir().unwrap();
        let status =
            std::process::Command::new("cp").arg("-a").arg(dir.path().join(".")).arg(copy.path()).status();
        assert!(status.unwrap().success());
        let replica = open(copy.path());
        assert_eq!(state(&replica, num), if lasts { CacheState::Absent } else { CacheState::Complete });
        assert!(replica.backing(num).is_some(), "no file is removed before");
        replica.reap(10).unwrap();
        assert_eq!(replica.backing(num).is_none(), lasts);
        assert_eq!(read(&replica, num), content_of(SIZE));
        counted(&replica);
    }
}

/// A file is opened, or fetched again, after its eviction was recorded and before its data is removed.
#[test]
fn open_during_eviction_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let replica = open(dir.path());
    let (opens, comes) = (stored(&replica, ROOT, "opens", SIZE), stored(&replica, ROOT, "comes", SIZE));
    for num in [opens, comes] {
        read(&replica, num);
        replica.change(|db, _| db.evict_file(num)).unwrap();
    }
    let opened = replica.open_file(opens, false, false).unwrap();
    assert_eq!(read(&replica, comes), content_of(SIZE));
    while replica.reap(10).unwrap() > 0 {}
    replica.ensure_present(opens, 0..u64::MAX).unwrap();
    replica.release_open(opens, false, opened.session);
    while replica.reap(10).unwrap() > 0 {}
    for num in [opens, comes] {
        assert_eq!(state(&replica, num), CacheState::Complete);
        assert_eq!(read(&replica, num), content_of(SIZE));
    }
    counted(&replica);
}

/// Data that is being downloaded into an evicted file is not recorded as cached.
#[test]
fn late_data_of_evicted_file_is_discarded() {
    struct DelayedFetcher(Arc<Replica>, u64, std::sync::atomic::AtomicBool);
    impl Fetcher for DelayedFetcher {
        fn fetch(
            &self,
            id: ObjectId,
            content: &Content,
            range: Range<u64>,
            into: &File,
        ) -> Result<Range<u64>, Errno> {
            let brought = AllContents.fetch(id, content, range, into);
            if !self.2.swap(true, std::sync::atomic::Ordering::Relaxed) {
                self.0.evict(u64::MAX).unwrap();
                assert_eq!(state(&self.0, self.1), CacheState::Absent);
            }
            brought
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let replica = Arc::new(open(dir.path()));
    let num = stored(&replica, ROOT, "file", SIZE);
    replica.ensure_present(num, 0..1).unwrap();
    assert_eq!(state(&replica, num), CacheState::Partial);
    assert_eq!(counted(&replica), 4096);
    replica.set_fetcher(Some(Arc::new(DelayedFetcher(replica.clone(), num, false.into()))));
    replica.ensure_present(num, 0..u64::MAX).unwrap();
    replica.set_fetcher(None);
    assert_eq!(read(&replica, num), content_of(SIZE));
    counted(&replica);
}

#[test]
fn replicas_of_older_formats_are_brought_up() {
    for format in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let replica = open(dir.path());
        let num = stored(&replica, ROOT, "file", SIZE);
        read(&replica, num);
        let here = counted(&replica);
        drop(replica);
        let db = rusqlite::Connection::open(dir.path().join("replica.db")).unwrap();
        let first = "DROP TABLE recent; DROP INDEX object_away; DROP INDEX object_pinned;
            DELETE FROM meta WHERE key = 'here';";
        let first = if format == 1 { first } else { "" };
        let then = format!(
            "{first} DROP TABLE usage; DROP TABLE unsure; UPDATE meta SET value = {format} WHERE key = 'format'"
        );
        db.execute_batch(&then).unwrap();
        drop(db);
        let replica = open(dir.path());
        assert_eq!(counted(&replica), here);
        assert_eq!(state(&replica, num), CacheState::Complete);
        assert_eq!(read(&replica, num), content_of(SIZE));
    }
}

#[test]
fn a_tender_keeps_to_the_limit_and_brings_what_is_pinned() {
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !done() {
            assert!(std::time::Instant::now() < until, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let replica = Arc::new(open(dir.path()));
    let nums: Vec<u64> = (0..8).map(|n| stored(&replica, ROOT, &n.to_string(), SIZE)).collect();
    let limit = 3 * 4 * 4096;
    let tender =
        CacheManager::start(replica.clone(), CachePolicy { mode: CacheMode::Cached, limit: Some(limit) })
            .unwrap();
    for num in &nums {
        assert_eq!(read(&replica, *num), content_of(SIZE));
    }
    wait("the cache is below its limit", &|| replica.cached_bytes() <= limit);
    replica.pin(nums[0], true).unwrap();
    wait("the file is fetched", &|| {
        state(&replica, nums[0]) == CacheState::Complete && tender.missing_files() == 0
    });
    drop(tender);
    let all =
        CacheManager::start(replica.clone(), CachePolicy { mode: CacheMode::Full, limit: None }).unwrap();
    wait("all files are fetched", &|| nums.iter().all(|num| state(&replica, *num) == CacheState::Complete));
    drop(all);
    let _none =
        CacheManager::start(replica.clone(), CachePolicy { mode: CacheMode::OnDemand, limit: None }).unwrap();
    wait("all but the pinned file is evicted", &|| replica.cached_bytes() == 4 * 4096);
    assert_eq!(state(&replica, nums[0]), CacheState::Complete);
}
