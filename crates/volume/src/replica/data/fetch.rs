//! Contents that are not here, and how they come.
//!
//! A file comes by the pieces that are read. Whoever needs one that somebody else is bringing waits for that one.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rusqlite::params;
use rustix::io::Errno;

use crate::content::priority;
use crate::failpoint::{Failpoint, point};
use crate::id::ObjectId;
use crate::object::{Content, Layout};
use crate::replica::db::ReplicaDb;
use crate::replica::db::basis_cache::BasisFile;
use crate::replica::db::inode::{CacheState, number};
use crate::replica::error::{OpError, Result, errno};
use crate::replica::{Inner, Replica};

/// Brought by one call: what came before is noted, should the next fail.
const FETCH_STEP_BYTES: u64 = 32 << 20;

/// A file of which all is wanted, with its empty backing file.
#[derive(Debug)]
pub struct WholeFile {
    /// Its id.
    pub id: ObjectId,
    /// What it holds.
    pub content: Content,
    /// Where it goes.
    pub into: File,
}

/// Brings contents from the store.
pub trait Fetcher: Send + Sync {
    /// Writes a range of a content to its place in a file, perhaps with more around it. What was brought.
    ///
    /// # Errors
    /// ENETUNREACH while the store cannot be reached; EIO where it is damaged; those of writing. What would have been brought
    /// may be anything then.
    fn fetch(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno>;

    /// The same for a file that held something else before: pieces that both have need not be asked for.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch).
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

    /// What would be brought for a range: it with the pieces around its ends.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch).
    fn extent(&self, content: &Content, range: Range<u64>) -> Result<Range<u64>, Errno> {
        Ok(range.start..range.end.min(content.size))
    }

    /// Brings small files together, by fewer requests than one for each. Answers for each of them.
    fn fetch_batch(&self, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
        one_by_one(self, files)
    }

    /// Whether files that have come are to be [verified](Self::verify).
    fn needs_verification(&self) -> bool {
        false
    }

    /// Whether a file of which all has come holds what its content says: the digest is that of all of its bytes.
    ///
    /// # Errors
    /// EIO where it holds something else; those of reading it.
    fn verify(&self, _id: ObjectId, _content: &Content, _file: &File) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether the bytes of a content that are with the metadata may be its own.
    fn allows_inline(&self, _id: ObjectId, _content: &Content) -> bool {
        true
    }

    /// Whether the store can be reached, as far as is known without asking it.
    fn is_reachable(&self) -> bool {
        true
    }

    /// Whether the way to the store has room for more than what somebody waits for.
    fn is_fast(&self) -> bool {
        true
    }
}

/// Brings files by a request for each. Answers for each of them.
pub(crate) fn one_by_one<F: Fetcher + ?Sized>(fetcher: &F, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
    let one =
        |file: &WholeFile| fetcher.fetch(file.id, &file.content, 0..file.content.size, &file.into).map(drop);
    files.iter().map(one).collect()
}

/// What is not here: of which object and content, and which part of it.
pub(crate) type MissingRange = (ObjectId, Arc<Content>, Range<u64>);

/// What came of a content: its range, in its backing file.
pub(crate) type FetchedRange<'a> = (u64, &'a Content, Range<u64>, &'a File);

/// What a file holds once a range of it has come.
enum FetchOutcome {
    /// Not all of it, or something else by now.
    Part,
    /// All of it.
    Complete,
    /// All of it, with this range: its digest is to be verified first.
    Unverified(ObjectId),
}

/// What is on its way. Ranges of one content never overlap: each is of whole pieces.
#[derive(Default)]
pub(crate) struct InflightFetches {
    inflight: Mutex<HashMap<u64, Vec<Range<u64>>>>,
    finished: Condvar,
}

/// A range that this thread brings, and nobody else.
pub(crate) struct InflightRange<'a> {
    fetching: &'a InflightFetches,
    num: u64,
    range: Range<u64>,
}

impl InflightFetches {
    /// What of a range nobody brings yet, from its beginning on; `None` once somebody has, who was waited for.
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

    /// Once nobody brings any part of a file: nobody does as long as this is held.
    pub(crate) fn lock_file(&self, num: u64) -> InflightRange<'_> {
        let mut flights = self.inflight.lock();
        while flights.contains_key(&num) {
            self.finished.wait(&mut flights);
        }
        flights.entry(num).or_default().push(0..u64::MAX);
        InflightRange { fetching: self, num, range: 0..u64::MAX }
    }

    /// What of a whole file nobody brings yet: all of it, or `None` if any part is under way; does not wait.
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
    /// ENETUNREACH at once where it is not here and the store cannot be reached; ESTALE; EIO; ENOSPC.
    pub fn ensure_present(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        self.inner.ensure_present_for_user(num, range)
    }

    /// Whether the way to the store has room for what nobody waits for.
    pub fn is_link_fast(&self) -> bool {
        self.inner.shared.fetcher.read().as_ref().is_none_or(|fetcher| fetcher.is_fast())
    }

    /// The same for who has the file open: what comes is what it held when it was opened. Answers with all around the range
    /// that is here, which is [read on](Self::read_on) without being asked for.
    ///
    /// # Errors
    /// As for [`ensure_present`](Self::ensure_present). ESTALE too where it holds something else by now.
    pub fn ensure_open_present(
        &self,
        num: u64,
        session: u64,
        range: Range<u64>,
    ) -> Result<Range<u64>, Errno> {
        self.ensure_latest(num, session)?;
        self.ensure_present(num, range.clone())?;
        let here = self.inner.present_around(num, &range)?;
        // What came last may be of another version, in the file of that.
        self.ensure_latest(num, session)?;
        Ok(here)
    }

    /// Who has a file open reads of what was here already.
    ///
    /// # Errors
    /// ESTALE where it holds something else by now.
    pub fn read_on(&self, num: u64, session: u64, range: &Range<u64>) -> Result<(), Errno> {
        self.inner.shared.prefetcher.read(&self.inner, num, range, None);
        self.ensure_latest(num, session)
    }

    fn ensure_latest(&self, num: u64, session: u64) -> Result<(), Errno> {
        let current = self.inner.core.lock().opens.get(&num).map(|open| open.session);
        if current == Some(session) { Ok(()) } else { Err(Errno::STALE) }
    }
}

impl Inner {
    fn ensure_present_for_user(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        let Some((_, content, _)) = self.missing(num, &range)? else {
            self.shared.prefetcher.read(self, num, &range, None);
            return Ok(());
        };
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
            // Somebody may have brought it meanwhile, or replaced it.
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
        // Held until the lock is free again: the last of a large file takes long to go.
        let before = self.core.lock().refetch_queue.basis(num);
        let brought = match &before {
            _ if part.is_empty() => part.clone(),
            Some(before) => fetcher.fetch_with_basis(id, content, part.clone(), &file, before)?,
            None => fetcher.fetch(id, content, part.clone(), &file)?,
        };
        if brought.start > part.start || brought.end <= part.start && !part.is_empty() {
            tracing::error!("bytes {part:?} of object {num} were wanted, {brought:?} were brought");
            return Err(Errno::IO);
        }
        self.record_fetched(&[(num, content, brought, &file)])
    }

    /// A very small file is in the database: no store is asked for it.
    fn write_inline(&self, num: u64, content: &Content, bytes: &[u8]) -> Result<(), Errno> {
        let Some(_flight) = self.shared.fetching.take(num, 0..content.size) else { return Ok(()) };
        let Some(file) = self.prepare_backing(num, content)? else { return Ok(()) };
        file.write_all_at(bytes, 0).map_err(errno)?;
        self.record_fetched(&[(num, content, 0..content.size, &file)])
    }

    /// The backing file of a content that comes; `None` where the object does not hold it any more: that of another version
    /// would be written to.
    pub(crate) fn prepare_backing(&self, num: u64, content: &Content) -> Result<Option<File>, Errno> {
        self.finish_reaping(num)?;
        self.read(|core| {
            if core.node(num)?.state == CacheState::Complete || !core.content(num)?.is_same(content) {
                return Ok(None);
            }
            let file = self.shared.files.open_or_create(num)?;
            if file.metadata()?.len() != content.size {
                file.set_len(content.size)?;
            }
            Ok(Some(file))
        })
    }

    /// Notes ranges that have come. A file of which all is here then is complete, once its digest was verified; where that is
    /// not the one of its content, nothing of it is here.
    ///
    /// # Errors
    /// EIO where a file was refused; those of the database.
    pub(crate) fn record_fetched(&self, all: &[FetchedRange<'_>]) -> Result<(), Errno> {
        point(Failpoint::FetchBrought)?;
        let verifier = self.shared.fetcher.read().clone().filter(|fetcher| fetcher.needs_verification());
        let (mut complete, mut refused) = (Vec::new(), None);
        let (mut rest, mut is_verified) = ((0..all.len()).collect::<Vec<_>>(), verifier.is_none());
        loop {
            let unverified = self.change(|core, _| {
                let mut unverified = Vec::new();
                for &n in &rest {
                    let (num, content, range, file) = &all[n];
                    match core.record_range(*num, content, range.clone(), file, is_verified) {
                        Ok(FetchOutcome::Part) => {}
                        Ok(FetchOutcome::Complete) => complete.push(*num),
                        Ok(FetchOutcome::Unverified(id)) => unverified.push((n, id)),
                        // It was removed meanwhile.
                        Err(OpError { errno: Errno::STALE, .. }) => {}
                        Err(fail) => return Err(fail),
                    }
                }
                Ok(unverified)
            })?;
            let Some(verifier) = verifier.as_ref().filter(|_| !unverified.is_empty()) else { break };
            // Nothing is locked while whole files are read.
            rest.clear();
            for (n, id) in unverified {
                let (num, content, _, file) = &all[n];
                match verifier.verify(id, content, file) {
                    Ok(()) => rest.push(n),
                    Err(errno) => {
                        self.change(|core, _| core.discard_content(*num, content))?;
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

    /// What is here around a range, as long as the file is open.
    fn present_around(&self, num: u64, range: &Range<u64>) -> Result<Range<u64>, Errno> {
        self.read(|core| {
            if core.node(num)?.state == CacheState::Complete {
                return Ok(0..u64::MAX);
            }
            let size = core.content(num)?.size;
            let around = core.present(num)?.into_iter().find(|here| here.contains(&range.start));
            let around = around.unwrap_or(range.start..range.start);
            Ok(around.start..if around.end < size { around.end } else { u64::MAX })
        })
    }

    /// The first part of a range that is not here, with what it is a part of.
    pub(crate) fn missing(&self, num: u64, range: &Range<u64>) -> Result<Option<MissingRange>, Errno> {
        self.read(|core| {
            let node = core.node(num)?;
            if node.state == CacheState::Complete || !node.is_regular() {
                return Ok(None);
            }
            let content = Arc::new(core.content(num)?);
            let end = range.end.min(content.size);
            let mut at = range.start.min(end);
            if content.size == 0 {
                return Ok(Some((node.id, content, 0..0)));
            }
            let present = core.present(num)?;
            for here in &present {
                if here.start <= at {
                    at = at.max(here.end);
                } else {
                    return Ok((at < end).then(|| (node.id, content, at..end.min(here.start))));
                }
            }
            Ok((at < end).then_some((node.id, content, at..end)))
        })
    }
}

impl ReplicaDb {
    /// Ranges of a file that are here, in order, with something between any two.
    pub(crate) fn present(&self, num: u64) -> Result<Vec<Range<u64>>> {
        let mut query =
            self.db.prepare_cached("SELECT first, past FROM present WHERE num = ?1 ORDER BY first")?;
        let rows = query.query_map([num as i64], |row| Ok(number(row.get(0)?)..number(row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn forget_present(&mut self, num: u64) -> Result<()> {
        self.begin()?;
        let query = "SELECT coalesce(sum(past - first), 0) FROM present WHERE num = ?1";
        let sum: i64 = self.db.prepare_cached(query)?.query_row([num as i64], |row| row.get(0))?;
        self.cached_bytes = self.cached_bytes.saturating_sub(number(sum));
        self.db.prepare_cached("DELETE FROM present WHERE num = ?1")?.execute([num as i64])?;
        Ok(())
    }

    /// A range of a content is here. Where that would make a file complete whose digest was not verified, nothing is noted.
    fn record_range(
        &mut self,
        num: u64,
        content: &Content,
        range: Range<u64>,
        into: &File,
        is_verified: bool,
    ) -> Result<FetchOutcome> {
        let mut node = self.node(num)?;
        // It may have been replaced meanwhile, or have left: its file with it.
        let is_gone = rustix::fs::fstat(into)?.st_nlink == 0;
        if is_gone || node.state == CacheState::Complete || !self.content(num)?.is_same(content) {
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
            return Ok(FetchOutcome::Unverified(node.id));
        }
        self.forget_present(num)?;
        if is_complete {
            node.state = CacheState::Complete;
        } else {
            let mut insert = self.db.prepare_cached("INSERT INTO present VALUES (?1, ?2, ?3)")?;
            for range in &merged {
                insert.execute(params![num as i64, range.start as i64, range.end as i64])?;
                self.cached_bytes = self.cached_bytes.saturating_add(range.end - range.start);
            }
            node.state = CacheState::Partial;
        }
        self.record_unsynced(num)?;
        // It came to be opened: it is not the first to leave. What comes again by itself has the place it had.
        if !self.refetch_queue.contains(num) || self.opens.contains_key(&num) {
            self.record_open(num)?;
        }
        if is_complete {
            self.finish_refetch(num)?;
        }
        self.save(node);
        Ok(if is_complete { FetchOutcome::Complete } else { FetchOutcome::Part })
    }

    /// Nothing of a content is here: what came is something else.
    fn discard_content(&mut self, num: u64, content: &Content) -> Result<()> {
        let mut node = self.node(num)?;
        if node.state == CacheState::Complete || !self.content(num)?.is_same(content) {
            return Ok(());
        }
        self.forget_present(num)?;
        node.state = CacheState::Absent;
        self.save(node);
        Ok(())
    }
}
