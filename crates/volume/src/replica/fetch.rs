//! Contents that are not here, and how they come.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;

use parking_lot::{Condvar, Mutex};
use rusqlite::params;
use rustix::io::Errno;

use super::Replica;
use super::core::Core;
use super::error::Done;
use super::node::{State, number};
use crate::id::ObjectId;
use crate::object::Content;

/// Brings contents from the store.
pub trait Fetcher: Send + Sync {
    /// Writes a range of a content to its place in a file, perhaps with more around it. What was brought.
    ///
    /// # Errors
    /// ENETUNREACH while the store cannot be reached; EIO where it is damaged; those of writing.
    fn fetch(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno>;
}

/// One at a time brings the content of a file.
#[derive(Default)]
pub(super) struct Fetching {
    busy: Mutex<HashSet<u64>>,
    done: Condvar,
}

struct Turn<'a>(&'a Fetching, u64);

impl Fetching {
    fn turn(&self, num: u64) -> Turn<'_> {
        let mut busy = self.busy.lock();
        while !busy.insert(num) {
            self.done.wait(&mut busy);
        }
        Turn(self, num)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
        self.0.done.notify_all();
    }
}

impl Replica {
    /// Returns once a range of a file is in its backing file.
    ///
    /// # Errors
    /// ENETUNREACH at once where it is not here and the store cannot be reached; ESTALE; EIO; ENOSPC.
    pub fn want(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        loop {
            let Some(_) = self.missing(num, &range)? else { return Ok(()) };
            let _turn = self.inner.shared.fetching.turn(num);
            // Somebody may have brought it meanwhile.
            let Some((id, content, part)) = self.missing(num, &range)? else { return Ok(()) };
            let fetcher = self.inner.shared.fetcher.read().clone().ok_or(Errno::NETUNREACH)?;
            let file = self.inner.shared.files.obtain(num).map_err(errno)?;
            if file.metadata().map_err(errno)?.len() != content.size {
                file.set_len(content.size).map_err(errno)?;
            }
            let brought = match part.is_empty() {
                true => part.clone(),
                false => fetcher.fetch(id, &content, part.clone(), &file)?,
            };
            if brought.start > part.start || brought.end <= part.start && !part.is_empty() {
                tracing::error!("bytes {part:?} of object {num} were wanted, {brought:?} were brought");
                return Err(Errno::IO);
            }
            // What is said to be here lasts.
            file.sync_data().map_err(errno)?;
            let complete = self.change(|core, _| core.brought(num, &content, brought, &file))?;
            self.inner.shared.space.poke();
            if complete && let Some(caches) = self.inner.shared.caches.get() {
                caches.object_changed(num);
            }
        }
    }

    /// The first part of a range that is not here, with what it is a part of.
    fn missing(
        &self,
        num: u64,
        range: &Range<u64>,
    ) -> Result<Option<(ObjectId, Content, Range<u64>)>, Errno> {
        self.read(|core| {
            let node = core.node(num)?;
            if node.state == State::Complete || !node.is_regular() {
                return Ok(None);
            }
            let content = core.content(num)?;
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

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Core {
    /// Ranges of a file that are here, in order, with something between any two.
    fn present(&self, num: u64) -> Done<Vec<Range<u64>>> {
        let mut query =
            self.db.prepare_cached("SELECT first, past FROM present WHERE num = ?1 ORDER BY first")?;
        let rows = query.query_map([num as i64], |row| Ok(number(row.get(0)?)..number(row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn forget_present(&mut self, num: u64) -> Done<()> {
        self.begin()?;
        let query = "SELECT coalesce(sum(past - first), 0) FROM present WHERE num = ?1";
        let sum: i64 = self.db.prepare_cached(query)?.query_row([num as i64], |row| row.get(0))?;
        self.here = self.here.saturating_sub(number(sum));
        self.db.prepare_cached("DELETE FROM present WHERE num = ?1")?.execute([num as i64])?;
        Ok(())
    }

    /// A range of a content is here. Whether all of it is.
    fn brought(&mut self, num: u64, content: &Content, range: Range<u64>, into: &File) -> Done<bool> {
        let mut node = self.node(num)?;
        // It may have been replaced meanwhile, or have left: its file with it.
        let is_gone = rustix::fs::fstat(into)?.st_nlink == 0;
        if is_gone || node.state == State::Complete || !self.content(num)?.is_same(content) {
            return Ok(false);
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
        self.forget_present(num)?;
        if matches!(merged[..], [ref only] if only.start == 0 && only.end >= content.size) {
            node.state = State::Complete;
        } else {
            let mut insert = self.db.prepare_cached("INSERT INTO present VALUES (?1, ?2, ?3)")?;
            for range in &merged {
                insert.execute(params![num as i64, range.start as i64, range.end as i64])?;
                self.here = self.here.saturating_add(range.end - range.start);
            }
            node.state = State::Partial;
        }
        let complete = node.state == State::Complete;
        self.save(node);
        Ok(complete)
    }
}
