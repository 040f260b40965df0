//! Fetches contents that are not cached.
//!
//! A read downloads the missing chunks of its range into the backing file and records the range in the database. Requests are
//! deduplicated (singleflight): a thread that needs a chunk already being downloaded waits for that download.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use rusqlite::params;
use rustix::io::Errno;

use crate::chunks::priority;
use crate::failpoint::{Failpoint, point};
use crate::id::ObjectId;
use crate::object::{Content, Layout};
use crate::replica::db::ReplicaDb;
use crate::replica::db::basis_cache::BasisFile;
use crate::replica::db::inode::{CacheState, number};
use crate::replica::error::{OpError, Result, errno};
use crate::replica::{Inner, Replica};

/// Maximum bytes per fetch call. Each call is recorded separately, so a failure loses at most this much.
const FETCH_STEP_BYTES: u64 = 32 << 20;

/// A file to download completely, with its empty backing file.
#[derive(Debug)]
pub struct WholeFile {
    /// Its id.
    pub id: ObjectId,
    /// The content to download.
    pub content: Content,
    /// The backing file.
    pub into: File,
}

/// Downloads contents from the store.
pub trait Fetcher: Send + Sync {
    /// Downloads a range of a content to its offset in a file, possibly with more around it. Returns the downloaded range.
    ///
    /// # Errors
    /// ENETUNREACH while the store cannot be reached; EIO if it is damaged; the errors of writing. The range in the file is
    /// undefined then.
    fn fetch(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno>;

    /// Downloads a range of a file that has an older version: chunks that both have need not be downloaded.
    ///
    /// # Errors
    /// Returns the errors of [`fetch`](Self::fetch).
    fn fetch_with_basis(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
        _before: &BasisFile,
    ) -> Result<Range<u64>, Errno> {
        self.fetch(id, content, range, into)
    }

    /// Extends a range to chunk boundaries, which is what [`fetch`](Self::fetch) would download.
    ///
    /// # Errors
    /// Returns the errors of [`fetch`](Self::fetch).
    fn extent(&self, content: &Content, range: Range<u64>) -> Result<Range<u64>, Errno> {
        Ok(range.start..range.end.min(content.size))
    }

    /// Downloads small files in a batch, with fewer requests than one per file. Returns one result per file.
    fn fetch_batch(&self, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
        one_by_one(self, files)
    }

    /// Reports whether downloaded files are to be [verified](Self::verify).
    fn needs_verification(&self) -> bool {
        false
    }

    /// Verifies that a completely downloaded file matches its content: the digest covers all of its bytes.
    ///
    /// # Errors
    /// EIO on a mismatch; the errors of reading the file.
    fn verify(&self, _id: ObjectId, _content: &Content, _file: &File) -> Result<(), Errno> {
        Ok(())
    }

    /// Reports whether a content may be stored inline with the metadata: not in an encrypted volume.
    fn allows_inline(&self, _id: ObjectId, _content: &Content) -> bool {
        true
    }

    /// Reports whether the store is reachable, as far as is known without a request.
    fn is_reachable(&self) -> bool {
        true
    }

    /// Reports whether the connection to the store has bandwidth left for prefetching.
    fn is_fast(&self) -> bool {
        true
    }
}

/// Downloads files with one request each. Returns one result per file.
pub(crate) fn one_by_one<F: Fetcher + ?Sized>(fetcher: &F, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
    let one =
        |file: &WholeFile| fetcher.fetch(file.id, &file.content, 0..file.content.size, &file.into).map(drop);
    files.iter().map(one).collect()
}

/// A range that is not cached, with its object and content.
pub(crate) type MissingRange = (ObjectId, Arc<Content>, Range<u64>);

/// A downloaded range of a content, with its inode number and backing file.
pub(crate) type FetchedRange<'a> = (u64, &'a Content, Range<u64>, &'a File);

/// The state of a file after a range of it was downloaded.
enum FetchOutcome {
    /// Still incomplete, or replaced meanwhile.
    Part,
    /// Complete.
    Complete,
    /// Complete with this range: the digest has to be verified first.
    Unverified(ObjectId),
}

/// Downloads in progress. Ranges of one content never overlap: each consists of whole chunks.
#[derive(Default)]
pub(crate) struct InflightFetches {
    inflight: Mutex<HashMap<u64, Vec<Range<u64>>>>,
    finished: Condvar,
}

/// A range that this thread downloads exclusively.
pub(crate) struct InflightRange<'a> {
    fetching: &'a InflightFetches,
    num: u64,
    range: Range<u64>,
}

impl InflightFetches {
    /// Claims the first part of a range that no thread is downloading. If all of it is being downloaded, waits for one
    /// download to finish and returns `None`.
    fn take(&self, num: u64, range: Range<u64>) -> Option<InflightRange<'_>> {
        let mut flights = self.inflight.lock();
        let under_way = flights.entry(num).or_default();
        if under_way.iter().any(|flight| flight.contains(&range.start) || *flight == range) {
            self.finished.wait(&mut flights);
            return None;
        }
        let next = under_way.iter().map(|flight| flight.start).filter(|start| *start > range.start).min();
        let range = range.start..next.map_or(range.end, |next| next.min(range.end));
        under_way.push(range.clone());
        Some(InflightRange { fetching: self, num, range })
    }

    /// Waits until no part of a file is being downloaded, and blocks further downloads until the result is dropped.
    pub(crate) fn lock_file(&self, num: u64) -> InflightRange<'_> {
        let mut flights = self.inflight.lock();
        while flights.contains_key(&num) {
            self.finished.wait(&mut flights);
        }
        flights.entry(num).or_default().push(0..u64::MAX);
        InflightRange { fetching: self, num, range: 0..u64::MAX }
    }

    /// Claims a whole file; returns `None` if any part of it is being downloaded. Does not wait.
    pub(crate) fn try_take(&self, num: u64, size: u64) -> Option<InflightRange<'_>> {
        let mut flights = self.inflight.lock();
        let under_way = flights.entry(num).or_default();
        if !under_way.is_empty() {
            return None;
        }
        under_way.push(0..size);
        Some(InflightRange { fetching: self, num, range: 0..size })
    }
}

impl Drop for InflightRange<'_> {
    fn drop(&mut self) {
        let mut flights = self.fetching.inflight.lock();
        if let Some(under_way) = flights.get_mut(&self.num) {
            under_way.retain(|range| *range != self.range);
            if under_way.is_empty() {
                flights.remove(&self.num);
            }
        }
        self.fetching.finished.notify_all();
    }
}

impl Replica {
    /// Returns once a range of a file is in its backing file.
    ///
    /// # Errors
    /// ENETUNREACH at once if it is not cached and the store cannot be reached; ESTALE; EIO; ENOSPC.
    pub fn ensure_present(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        self.inner.ensure_present_for_user(num, range)
    }

    /// Reports whether the connection to the store has bandwidth left for prefetching.
    pub(crate) fn is_link_fast(&self) -> bool {
        self.inner.shared.fetcher.read().as_ref().is_none_or(|fetcher| fetcher.is_fast())
    }

    /// Ensures that a range of an open file is cached, in the version that was opened. Returns the cached range around it,
    /// which may be [read](Self::record_read) without another check.
    ///
    /// # Errors
    /// Returns the errors of [`ensure_present`](Self::ensure_present); ESTALE too if the file was replaced since.
    pub fn ensure_open_present(
        &self,
        num: u64,
        session: u64,
        range: Range<u64>,
    ) -> Result<Range<u64>, Errno> {
        self.ensure_latest(num, session)?;
        self.ensure_present(num, range.clone())?;
        let present = self.inner.present_around(num, &range)?;
        // The data fetched last may belong to another version, and lie in the file of that one.
        self.ensure_latest(num, session)?;
        Ok(present)
    }

    /// Records a read of cached data of an open file, for the read-ahead.
    ///
    /// # Errors
    /// ESTALE if the file was replaced since it was opened.
    pub fn record_read(&self, num: u64, session: u64, range: &Range<u64>) -> Result<(), Errno> {
        self.record_cache_hit();
        self.inner.shared.prefetcher.read(&self.inner, num, range, None);
        self.ensure_latest(num, session)
    }

    fn ensure_latest(&self, num: u64, session: u64) -> Result<(), Errno> {
        let current = self.inner.db.lock().opens.get(&num).map(|open| open.session);
        if current == Some(session) { Ok(()) } else { Err(Errno::STALE) }
    }
}

impl Inner {
    fn ensure_present_for_user(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        let Some((_, content, _)) = self.missing(num, &range)? else {
            self.shared.cache_counters.hits.fetch_add(1, Ordering::Relaxed);
            self.shared.prefetcher.read(self, num, &range, None);
            return Ok(());
        };
        self.shared.cache_counters.misses.fetch_add(1, Ordering::Relaxed);
        let _urgent = priority::begin();
        self.shared.prefetcher.read(self, num, &range, Some(content.size));
        self.ensure_present(num, range).inspect_err(|errno| {
            if *errno == Errno::NETUNREACH {
                self.record_offline_miss(num);
            }
        })
    }

    pub(crate) fn ensure_present(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        loop {
            let Some((id, content, part)) = self.missing(num, &range)? else { return Ok(()) };
            let fetcher = self.shared.fetcher.read().clone();
            if let Layout::Inline(bytes) = &content.layout
                && bytes.len() as u64 == content.size
            {
                if fetcher.is_some_and(|fetcher| !fetcher.allows_inline(id, &content)) {
                    return Err(Errno::IO);
                }
                self.write_inline(num, &content, bytes)?;
                continue;
            }
            let fetcher = fetcher.filter(|fetcher| fetcher.is_reachable()).ok_or(Errno::NETUNREACH)?;
            let part = part.start..part.end.min(part.start.saturating_add(FETCH_STEP_BYTES));
            let extent = match part.is_empty() {
                true => part,
                false => fetcher.extent(&content, part)?,
            };
            let Some(flight) = self.shared.fetching.take(num, extent) else { continue };
            // Another thread may have downloaded or replaced it meanwhile.
            match self.missing(num, &flight.range)? {
                Some((id, now, part)) if now.is_same(&content) => {
                    self.fetch(&*fetcher, num, id, &content, part)?;
                }
                _ => {}
            }
        }
    }

    fn fetch(
        &self,
        fetcher: &dyn Fetcher,
        num: u64,
        id: ObjectId,
        content: &Content,
        part: Range<u64>,
    ) -> Result<(), Errno> {
        let Some(file) = self.prepare_backing(num, content)? else { return Ok(()) };
        // Dropped only after the lock is released: deleting the last reference to a large file takes long.
        let before = self.db.lock().refetch_queue.basis(num);
        let received = match &before {
            _ if part.is_empty() => part.clone(),
            Some(before) => fetcher.fetch_with_basis(id, content, part.clone(), &file, before)?,
            None => fetcher.fetch(id, content, part.clone(), &file)?,
        };
        if received.start > part.start || received.end <= part.start && !part.is_empty() {
            tracing::error!(
                "fetch of object {num} returned bytes {received:?} instead of {part:?}: the read fails with EIO"
            );
            return Err(Errno::IO);
        }
        let bytes = received.end.saturating_sub(received.start);
        self.shared.cache_counters.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.record_fetched(&[(num, content, received, &file)])
    }

    /// Writes a very small file from its inline bytes in the database, without a request to the store.
    fn write_inline(&self, num: u64, content: &Content, bytes: &[u8]) -> Result<(), Errno> {
        let Some(_flight) = self.shared.fetching.take(num, 0..content.size) else { return Ok(()) };
        let Some(file) = self.prepare_backing(num, content)? else { return Ok(()) };
        file.write_all_at(bytes, 0).map_err(errno)?;
        self.record_fetched(&[(num, content, 0..content.size, &file)])
    }

    /// Opens the backing file for a content to download. Returns `None` if the object's content changed: the file would
    /// belong to another version.
    pub(crate) fn prepare_backing(&self, num: u64, content: &Content) -> Result<Option<File>, Errno> {
        self.finish_reaping(num)?;
        self.read(|db| {
            if db.inode(num)?.state == CacheState::Complete || !db.content(num)?.is_same(content) {
                return Ok(None);
            }
            let file = self.shared.files.open_or_create(num)?;
            if file.metadata()?.len() != content.size {
                file.set_len(content.size)?;
            }
            Ok(Some(file))
        })
    }

    /// Records downloaded ranges. A file that is now fully cached becomes complete, once its digest is verified; on a
    /// mismatch all of its cached data is discarded.
    ///
    /// # Errors
    /// EIO if a file failed verification; the errors of the database.
    pub(crate) fn record_fetched(&self, all: &[FetchedRange<'_>]) -> Result<(), Errno> {
        point(Failpoint::FetchWritten)?;
        let verifier = self.shared.fetcher.read().clone().filter(|fetcher| fetcher.needs_verification());
        let (mut complete, mut refused) = (Vec::new(), None);
        let (mut rest, mut is_verified) = ((0..all.len()).collect::<Vec<_>>(), verifier.is_none());
        loop {
            let unverified = self.change(|db, _| {
                let mut unverified = Vec::new();
                for &n in &rest {
                    let (num, content, range, file) = &all[n];
                    match db.record_range(*num, content, range.clone(), file, is_verified) {
                        Ok(FetchOutcome::Part) => {}
                        Ok(FetchOutcome::Complete) => complete.push(*num),
                        Ok(FetchOutcome::Unverified(id)) => unverified.push((n, id)),
                        // The file was removed meanwhile.
                        Err(OpError { errno: Errno::STALE, .. }) => {}
                        Err(fail) => return Err(fail),
                    }
                }
                Ok(unverified)
            })?;
            let Some(verifier) = verifier.as_ref().filter(|_| !unverified.is_empty()) else { break };
            // Whole files are read without holding a lock.
            rest.clear();
            for (n, id) in unverified {
                let (num, content, _, file) = &all[n];
                match verifier.verify(id, content, file) {
                    Ok(()) => rest.push(n),
                    Err(errno) => {
                        self.change(|db, _| db.discard_content(*num, content))?;
                        refused = Some(errno);
                    }
                }
            }
            is_verified = true;
        }
        self.shared.cache_changed.notify();
        if let Some(caches) = self.shared.kernel_cache.get() {
            complete.iter().for_each(|num| caches.object_changed(*num));
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the cached range around a range, for an open file.
    fn present_around(&self, num: u64, range: &Range<u64>) -> Result<Range<u64>, Errno> {
        self.read(|db| {
            if db.inode(num)?.state == CacheState::Complete {
                return Ok(0..u64::MAX);
            }
            let size = db.content(num)?.size;
            let around = db.present(num)?.into_iter().find(|here| here.contains(&range.start));
            let around = around.unwrap_or(range.start..range.start);
            Ok(around.start..if around.end < size { around.end } else { u64::MAX })
        })
    }

    /// Returns the first part of a range that is not cached, with its object and content.
    pub(crate) fn missing(&self, num: u64, range: &Range<u64>) -> Result<Option<MissingRange>, Errno> {
        self.read(|db| {
            let inode = db.inode(num)?;
            if inode.state == CacheState::Complete || !inode.is_regular() {
                return Ok(None);
            }
            let content = Arc::new(db.content(num)?);
            let end = range.end.min(content.size);
            let mut at = range.start.min(end);
            if content.size == 0 {
                return Ok(Some((inode.id, content, 0..0)));
            }
            let present = db.present(num)?;
            for here in &present {
                if here.start <= at {
                    at = at.max(here.end);
                } else {
                    return Ok((at < end).then(|| (inode.id, content, at..end.min(here.start))));
                }
            }
            Ok((at < end).then_some((inode.id, content, at..end)))
        })
    }
}

impl ReplicaDb {
    /// Returns the cached ranges of a file, in order and not adjacent.
    pub(crate) fn present(&self, num: u64) -> Result<Vec<Range<u64>>> {
        let mut query =
            self.db.prepare_cached("SELECT first, past FROM present WHERE num = ?1 ORDER BY first")?;
        let rows = query.query_map([num as i64], |row| Ok(number(row.get(0)?)..number(row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn clear_present(&mut self, num: u64) -> Result<()> {
        self.begin()?;
        let query = "SELECT coalesce(sum(past - first), 0) FROM present WHERE num = ?1";
        let sum: i64 = self.db.prepare_cached(query)?.query_row([num as i64], |row| row.get(0))?;
        self.cached_bytes = self.cached_bytes.saturating_sub(number(sum));
        self.db.prepare_cached("DELETE FROM present WHERE num = ?1")?.execute([num as i64])?;
        Ok(())
    }

    /// Records that a range of a content is cached. If that would complete a file whose digest is not verified yet, records
    /// nothing.
    fn record_range(
        &mut self,
        num: u64,
        content: &Content,
        range: Range<u64>,
        into: &File,
        is_verified: bool,
    ) -> Result<FetchOutcome> {
        let mut inode = self.inode(num)?;
        // The file may have been replaced or evicted meanwhile, and its backing file unlinked.
        let is_gone = rustix::fs::fstat(into)?.st_nlink == 0;
        if is_gone || inode.state == CacheState::Complete || !self.content(num)?.is_same(content) {
            return Ok(FetchOutcome::Part);
        }
        let mut all = self.present(num)?;
        all.push(range);
        all.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let is_complete = matches!(merged[..], [ref only] if only.start == 0 && only.end >= content.size);
        if is_complete && !is_verified {
            return Ok(FetchOutcome::Unverified(inode.id));
        }
        self.clear_present(num)?;
        if is_complete {
            inode.state = CacheState::Complete;
        } else {
            let mut insert = self.db.prepare_cached("INSERT INTO present VALUES (?1, ?2, ?3)")?;
            for range in &merged {
                insert.execute(params![num as i64, range.start as i64, range.end as i64])?;
                self.cached_bytes = self.cached_bytes.saturating_add(range.end - range.start);
            }
            inode.state = CacheState::Partial;
        }
        self.record_unsynced(num)?;
        // The data was fetched for an open, so the file must not be the first to be evicted. A background refetch keeps the
        // LRU position.
        if !self.refetch_queue.contains(num) || self.opens.contains_key(&num) {
            self.record_open(num)?;
        }
        if is_complete {
            self.finish_refetch(num)?;
        }
        self.save(inode);
        Ok(if is_complete { FetchOutcome::Complete } else { FetchOutcome::Part })
    }

    /// Discards all cached data of a content: the downloaded bytes do not match it.
    fn discard_content(&mut self, num: u64, content: &Content) -> Result<()> {
        let mut inode = self.inode(num)?;
        if inode.state == CacheState::Complete || !self.content(num)?.is_same(content) {
            return Ok(());
        }
        self.clear_present(num)?;
        inode.state = CacheState::Absent;
        self.save(inode);
        Ok(())
    }
}
