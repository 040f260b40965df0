//! Prefetch: sequential read-ahead in large files, and batched prefetch of small files during a directory walk.
//!
//! Worker threads fetch from the store what the access pattern predicts, while the connection has bandwidth left. Prefetched
//! data is recorded like any other fetched data.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::params;
use rustix::io::Errno;

use crate::replica::data::fetch::WholeFile;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::number;
use crate::replica::error::Result;
use crate::replica::{Inner, Replica};

/// Number of threads, and so of concurrent requests, each for several chunks.
const WORKER_THREADS: usize = 4;
/// Bytes that one worker fetches at a time.
const FETCH_UNIT_BYTES: u64 = 8 << 20;
/// The initial read-ahead window, doubled up to the maximum, in bytes.
const READAHEAD_WINDOW: (u64, u64) = (FETCH_UNIT_BYTES, 64 << 20);
/// A read farther than this from the expected offset is a seek: the kernel's own requests overtake each other.
const SEEK_TOLERANCE: u64 = 2 << 20;
/// Files up to this size are fetched in batches.
const MAX_SMALL_FILE_BYTES: u64 = 1 << 20;
/// The initial number of files in a batch, doubled up to the maximum; a batch has at most [`MAX_BATCH_BYTES`].
const BATCH_FILES: (u32, u32) = (16, 256);
const MAX_BATCH_BYTES: u64 = 8 << 20;
/// Small files opened within this interval of each other are a directory walk.
const WALK_TIMEOUT: Duration = Duration::from_secs(1);
/// A bound for offsets, above any file size.
const MAX_FILE_BYTES: u64 = 1 << 60;
/// Maximum number of queued jobs; more are dropped.
const MAX_JOBS: usize = 64;
/// Maximum number of readers tracked.
const MAX_STREAMS: usize = 256;
/// A worker idle for this long makes fetched data durable.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

enum Job {
    /// A range of a file.
    Range(u64, Range<u64>),
    /// A number of small files after one.
    After(u64, u32),
}

/// A sequential reader of a large file.
#[derive(Default)]
struct Stream {
    /// The expected next offset.
    next: u64,
    window: u64,
    /// End of the range that is queued for download.
    requested_until: u64,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    streams: HashMap<u64, Stream>,
    last_walk: Option<Instant>,
    files: u32,
    ended: bool,
    /// Prefetching is enabled, and workers run.
    is_enabled: bool,
}

/// The queue of prefetch jobs and the access patterns that fill it.
#[derive(Default)]
pub(crate) struct Prefetcher {
    state: Mutex<State>,
    wake: Condvar,
}

impl Prefetcher {
    /// Records a read of a file that is not completely cached. `missing`: the file's size, if part of the range is not
    /// cached.
    pub(crate) fn read(&self, inner: &Inner, num: u64, range: &Range<u64>, missing: Option<u64>) {
        let range = &(range.start.min(MAX_FILE_BYTES)..range.end.min(missing.unwrap_or(MAX_FILE_BYTES)));
        let mut state = self.state.lock();
        if !state.is_enabled || !inner.shared.fetcher.read().as_ref().is_some_and(|fetcher| fetcher.is_fast())
        {
            return;
        }
        match missing {
            Some(size) if size <= MAX_SMALL_FILE_BYTES => state.walk(num),
            _ => state.follow_stream(num, range),
        }
        if !state.jobs.is_empty() {
            self.wake.notify_all();
        }
    }

    /// Turns prefetching on or off.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.state.lock().is_enabled = enabled;
    }

    fn next(&self) -> NextJob {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return NextJob::End;
            }
            if let Some(job) = state.jobs.pop_front() {
                return NextJob::Job(job);
            }
            if self.wake.wait_for(&mut state, IDLE_TIMEOUT).timed_out() {
                return NextJob::Idle;
            }
        }
    }
}

enum NextJob {
    Job(Job),
    Idle,
    End,
}

impl State {
    fn push(&mut self, job: Job) -> bool {
        let has_room = self.jobs.len() < MAX_JOBS;
        if has_room {
            self.jobs.push_back(job);
        }
        has_room
    }

    fn follow_stream(&mut self, num: u64, range: &Range<u64>) {
        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&num) {
            self.streams.clear();
        }
        let stream = self.streams.entry(num).or_default();
        let is_on = range.start <= stream.next + SEEK_TOLERANCE && range.end + SEEK_TOLERANCE >= stream.next;
        if !is_on {
            *stream = Stream { next: range.end, window: 0, requested_until: range.end };
            // Read-ahead queued for the old position is dropped.
            self.jobs.retain(|job| !matches!(job, Job::Range(other, _) if *other == num));
            return;
        }
        stream.next = stream.next.max(range.end);
        // More is queued only once half of the window is consumed.
        if stream.requested_until >= stream.next.saturating_add(stream.window / 2) && stream.window > 0 {
            return;
        }
        stream.window = (stream.window * 2).clamp(READAHEAD_WINDOW.0, READAHEAD_WINDOW.1);
        let mut from = stream.requested_until.max(range.end);
        let to = stream.next.saturating_add(stream.window);
        while from < to {
            // Up to a multiple of the unit, so that no chunk is fetched twice.
            let until = (from / FETCH_UNIT_BYTES + 1) * FETCH_UNIT_BYTES;
            if !self.push(Job::Range(num, from..until)) {
                break;
            }
            from = until;
        }
        if let Some(stream) = self.streams.get_mut(&num) {
            stream.requested_until = from;
        }
    }

    fn walk(&mut self, num: u64) {
        let now = Instant::now();
        let goes_on = self.last_walk.is_some_and(|last| now - last < WALK_TIMEOUT);
        self.last_walk = Some(now);
        if !goes_on {
            self.files = 0;
            return;
        }
        self.files = (self.files * 2).clamp(BATCH_FILES.0, BATCH_FILES.1);
        let files = self.files;
        self.push(Job::After(num, files));
    }
}

/// The worker threads, which end when this is dropped.
pub(crate) struct Workers {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(inner: Arc<Inner>) -> std::io::Result<Self> {
        let mut workers = Self { inner, threads: Vec::new() };
        for _ in 0..WORKER_THREADS {
            let inner = workers.inner.clone();
            let thread = std::thread::Builder::new().name("prefetch".into()).spawn(move || run(&inner))?;
            workers.threads.push(thread);
        }
        workers.inner.shared.prefetcher.set_enabled(true);
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.inner.shared.prefetcher.state.lock().ended = true;
        self.inner.shared.prefetcher.wake.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
        if let Err(errno) = self.inner.sync_all_fetched() {
            tracing::warn!(
                "fsync of fetched files failed: {errno}; after a crash of the \
                machine they are fetched again"
            );
        }
    }
}

fn run(inner: &Inner) {
    loop {
        let done = match inner.shared.prefetcher.next() {
            NextJob::End => return,
            NextJob::Idle => inner.sync_all_fetched().map(drop),
            NextJob::Job(Job::Range(num, range)) => inner.ensure_present(num, range),
            NextJob::Job(Job::After(num, limit)) => {
                inner.read(|db| db.small_files_after(num, limit)).and_then(|nums| inner.fetch_batch(&nums))
            }
        };
        if let Err(errno) = done {
            tracing::debug!("prefetch failed: {errno}");
        }
    }
}

impl Replica {
    /// Enables or disables prefetching.
    pub(crate) fn set_prefetch(&self, enabled: bool) {
        self.inner.shared.prefetcher.set_enabled(enabled);
    }

    /// Fetches files in the background, small ones in batches. Files that are removed meanwhile are skipped.
    ///
    /// # Errors
    /// The errors of [`ensure_present`](Self::ensure_present), for the first file that failed, after the others are fetched.
    pub fn fetch_in_background(&self, nums: &[u64]) -> Result<(), Errno> {
        let mut failed = None;
        for part in nums.chunks(BATCH_FILES.1 as usize) {
            let together = self.inner.fetch_batch(part);
            // Files that were too large for a batch, or already being fetched.
            let one_by_one =
                part.iter().try_for_each(|num| match self.inner.ensure_present(*num, 0..u64::MAX) {
                    Err(Errno::STALE) => Ok(()),
                    // A damaged file does not prevent fetching the others.
                    Err(errno @ Errno::IO) => {
                        failed = Some(errno);
                        Ok(())
                    }
                    done => done,
                });
            together.and(one_by_one)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

impl ReplicaDb {
    /// Returns small uncached files: those after `num` in its directory, then those created after it.
    fn small_files_after(&mut self, num: u64, limit: u32) -> Result<Vec<u64>> {
        self.flush()?;
        let mut query = self.db.prepare_cached(
            "SELECT o.num, o.size FROM link i JOIN link l ON l.parent = i.parent AND l.name > i.name
                 JOIN object o ON o.num = l.child
                 WHERE i.child = ?1 AND o.kind = 0 AND o.state = 0 AND o.size <= ?2 ORDER BY l.name LIMIT ?3",
        )?;
        let row = |row: &rusqlite::Row<'_>| Ok((number(row.get(0)?), number(row.get(1)?)));
        let mut found: Vec<(u64, u64)> = query
            .query_map(params![num as i64, MAX_SMALL_FILE_BYTES as i64, limit], row)?
            .collect::<rusqlite::Result<_>>()?;
        if found.len() < limit as usize {
            let mut query = self.db.prepare_cached(
                "SELECT num, size FROM object WHERE kind = 0 AND state < 2 AND state = 0 AND \
                    nlink > 0 AND num > ?1
                     AND size <= ?2 ORDER BY num LIMIT ?3",
            )?;
            let rest = params![num as i64, MAX_SMALL_FILE_BYTES as i64, limit - found.len() as u32];
            found.extend(query.query_map(rest, row)?.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        let mut sum = 0;
        let within = |(_, size): &(u64, u64)| {
            sum += size;
            sum <= MAX_BATCH_BYTES
        };
        Ok(found.into_iter().take_while(within).map(|(num, _)| num).collect())
    }
}

impl Inner {
    /// Fetches the small ones of some files that have no cached data and are not being fetched. Returns the first error.
    fn fetch_batch(&self, nums: &[u64]) -> Result<(), Errno> {
        let fetcher = self.shared.fetcher.read().clone().filter(|fetcher| fetcher.is_reachable());
        let fetcher = fetcher.ok_or(Errno::NETUNREACH)?;
        let (mut flights, mut nums_to_fetch, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for &num in nums {
            let whole = |found: Option<(_, _, Range<u64>)>| found.filter(|(_, _, part)| part.start == 0);
            let Ok(Some((_, content, _))) = self.missing(num, &(0..u64::MAX)).map(whole) else { continue };
            if content.size > MAX_SMALL_FILE_BYTES || content.size == 0 {
                continue;
            }
            let Some(flight) = self.shared.fetching.try_take(num, content.size) else { continue };
            // It may have been fetched before the claim.
            let Ok(Some((id, content, part))) = self.missing(num, &(0..u64::MAX)).map(whole) else {
                continue;
            };
            if part != (0..content.size) {
                continue;
            }
            let Some(into) = self.prepare_backing(num, &content)? else { continue };
            files.push(WholeFile { id, content: (*content).clone(), into });
            nums_to_fetch.push(num);
            flights.push(flight);
        }
        if files.is_empty() {
            return Ok(());
        }
        let answers = fetcher.fetch_batch(&files);
        let fetched: Vec<_> = (nums_to_fetch.iter().zip(&files).zip(&answers))
            .filter(|(_, answer)| answer.is_ok())
            .map(|((num, file), _)| (*num, &file.content, 0..file.content.size, &file.into))
            .collect();
        let bytes = fetched.iter().map(|(_, content, ..)| content.size).sum();
        self.shared.cache_counters.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.record_fetched(&fetched)?;
        answers.into_iter().find(|answer| answer.is_err()).unwrap_or(Ok(()))
    }
}
