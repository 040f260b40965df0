//! Contents that are not here, and how they come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::params;
use rustix::io::Errno;

use super::core::Core;
use super::error::{Done, Fail};
use super::node::{State, number};
use super::{Inner, Replica};
use crate::id::ObjectId;
use crate::object::Content;

/// Told of each range as it comes, in any order.
pub type Came<'a> = &'a (dyn Fn(Range<u64>) + Sync);

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
        came: Came<'_>,
    ) -> Result<Range<u64>, Errno>;
}

/// Of a file that is read from one end to the other, so many bytes are asked for ahead: at first, and at most.
const AHEAD: (u64, u64) = (8 << 20, 256 << 20);
/// More is asked for ahead where so much came within this time, and less where it took four times as long: who wants
/// something else of the file waits for it.
const QUICK: Duration = Duration::from_millis(500);
/// A reader that stopped is not read ahead for.
const PATIENCE: Duration = Duration::from_millis(200);
/// Readers whose places are remembered.
const READERS: usize = 1024;

/// Files that are on their way. One at a time brings the content of a file.
#[derive(Default)]
pub(super) struct Fetching {
    under_way: Mutex<HashMap<u64, UnderWay>>,
    changed: Condvar,
    /// Where the next read of a file is expected, and how much was brought before.
    expected: Mutex<HashMap<u64, (u64, u64)>>,
    ended: AtomicBool,
}

#[derive(Default)]
struct UnderWay {
    /// What is being brought.
    part: Range<u64>,
    /// What is in the backing file, in order, with something between any two. It may not last yet.
    came: Vec<Range<u64>>,
    /// How far readers asked.
    asked: u64,
    failed: Option<Errno>,
    /// Who waits for something that is not being brought.
    others: u32,
}

/// Whoever has it is the one who brings the content of a file.
pub(super) struct Turn<'a>(&'a Fetching, u64);

impl Fetching {
    /// The turn, where nobody has it.
    fn try_turn(&self, num: u64) -> Option<Turn<'_>> {
        match self.under_way.lock().entry(num) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                free.insert(UnderWay::default());
                Some(Turn(self, num))
            }
        }
    }

    /// Waits until nobody else brings the content of a file.
    pub(super) fn turn(&self, num: u64) -> Turn<'_> {
        loop {
            if let Some(turn) = self.try_turn(num) {
                return turn;
            }
            let mut all = self.under_way.lock();
            if let Some(under_way) = all.get_mut(&num) {
                under_way.others += 1;
                self.changed.notify_all();
                self.changed.wait(&mut all);
                if let Some(under_way) = all.get_mut(&num) {
                    under_way.others = under_way.others.saturating_sub(1);
                }
            }
        }
    }

    /// Reads no more ahead, and waits until nothing is on its way.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        let mut all = self.under_way.lock();
        while !all.is_empty() {
            self.changed.notify_all();
            self.changed.wait(&mut all);
        }
    }

    /// A reader is at a place.
    fn asked(&self, num: u64, range: &Range<u64>) {
        if let Some(under_way) = self.under_way.lock().get_mut(&num)
            && range.start <= under_way.part.end
            && under_way.asked < range.end
        {
            under_way.asked = range.end;
            self.changed.notify_all();
        }
    }

    /// Waits for what is on its way. `false`: it is not there, and nobody brings the file.
    fn arrives(&self, num: u64, range: &Range<u64>) -> Result<bool, Errno> {
        let mut all = self.under_way.lock();
        loop {
            let Some(under_way) = all.get_mut(&num) else { return Ok(false) };
            if under_way.came.iter().any(|came| came.start <= range.start && came.end >= range.end) {
                return Ok(true);
            }
            if let Some(errno) = under_way.failed {
                return Err(errno);
            }
            let is_other = range.start > under_way.part.end;
            under_way.others += u32::from(is_other);
            self.changed.notify_all();
            self.changed.wait(&mut all);
            if let Some(under_way) = all.get_mut(&num) {
                under_way.others = under_way.others.saturating_sub(u32::from(is_other));
            }
        }
    }

    /// How much is to be asked for, from a place on.
    fn ahead(&self, num: u64, wanted: &Range<u64>) -> u64 {
        let expected = self.expected.lock().get(&num).copied();
        match expected {
            Some((next, before)) if next == wanted.start => before,
            _ => 0,
        }
    }

    fn expect(&self, num: u64, next: u64, length: u64) {
        let mut expected = self.expected.lock();
        if expected.len() >= READERS {
            expected.clear();
        }
        expected.insert(num, (next, length));
    }
}

impl Turn<'_> {
    fn brings(&self, part: &Range<u64>) {
        if let Some(under_way) = self.0.under_way.lock().get_mut(&self.1) {
            under_way.part = part.clone();
        }
    }

    fn came(&self, range: Range<u64>) {
        if let Some(under_way) = self.0.under_way.lock().get_mut(&self.1) {
            merge(&mut under_way.came, range);
        }
        self.0.changed.notify_all();
    }

    fn failed(&self, errno: Errno) {
        if let Some(under_way) = self.0.under_way.lock().get_mut(&self.1) {
            under_way.failed = Some(errno);
        }
        self.0.changed.notify_all();
    }

    /// Whether a reader comes near the end of what was brought, and nobody wants anything else.
    fn goes_on(&self, part: &Range<u64>) -> bool {
        let middle = part.start + (part.end - part.start) / 2;
        let until = Instant::now() + PATIENCE;
        let mut all = self.0.under_way.lock();
        loop {
            match all.get(&self.1) {
                _ if self.0.ended.load(Ordering::Relaxed) => return false,
                Some(under_way) if under_way.others == 0 && under_way.asked < middle => {}
                Some(under_way) => return under_way.others == 0,
                None => return false,
            }
            if self.0.changed.wait_until(&mut all, until).timed_out() {
                return false;
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().remove(&self.1);
        self.0.changed.notify_all();
    }
}

/// Adds a range to others.
fn merge(all: &mut Vec<Range<u64>>, range: Range<u64>) {
    all.push(range);
    all.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(all.len());
    for range in all.drain(..) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    *all = merged;
}

impl Replica {
    /// Returns once a range of a file is in its backing file. Where reads follow one another, more is brought ahead.
    ///
    /// # Errors
    /// ENETUNREACH at once where it is not here and the store cannot be reached; ESTALE; EIO; ENOSPC.
    pub fn want(&self, num: u64, range: Range<u64>) -> Result<(), Errno> {
        let fetching = &self.inner.shared.fetching;
        loop {
            fetching.asked(num, &range);
            let Some((_, content, wanted)) = self.inner.missing(num, &range)? else { return Ok(()) };
            if fetching.arrives(num, &(range.start..range.end.min(content.size)))? {
                return Ok(());
            }
            let fetcher = self.inner.shared.fetcher.read().clone().ok_or(Errno::NETUNREACH)?;
            let length = fetching.ahead(num, &wanted);
            let end = wanted.end.max(wanted.start.saturating_add(length)).min(content.size);
            let part = wanted.start..end;
            // Where somebody else has the turn by now, that is waited for as any other.
            if end == wanted.end {
                if let Some(turn) = fetching.try_turn(num) {
                    self.inner.bring(part, &*fetcher, false, &turn)?;
                }
                continue;
            }
            let inner = self.inner.clone();
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let bring = move || {
                let turn = inner.shared.fetching.try_turn(num);
                tell.send(()).ok();
                if let Some(turn) = turn {
                    inner.bring(part, &*fetcher, true, &turn).ok();
                }
            };
            let thread = std::thread::Builder::new().name("fetch".into()).spawn(bring);
            thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
            told.recv().ok();
        }
    }
}

impl Inner {
    /// Brings a part of a file; where readers go on, what follows.
    fn bring(
        &self,
        part: Range<u64>,
        fetcher: &dyn Fetcher,
        ahead: bool,
        turn: &Turn<'_>,
    ) -> Result<(), Errno> {
        let done = self.bring_parts(part, fetcher, ahead, turn);
        if let Err(errno) = done {
            turn.failed(errno);
        }
        done
    }

    fn bring_parts(
        &self,
        mut part: Range<u64>,
        fetcher: &dyn Fetcher,
        ahead: bool,
        turn: &Turn<'_>,
    ) -> Result<(), Errno> {
        let num = turn.1;
        std::thread::scope(|scope| {
            let mut noting: Option<std::thread::ScopedJoinHandle<'_, Result<(), Errno>>> = None;
            let mut note = |next| match noting.take() {
                Some(before) => {
                    noting = next;
                    before.join().unwrap_or(Err(Errno::IO))
                }
                None => {
                    noting = next;
                    Ok(())
                }
            };
            // Somebody may have brought it meanwhile.
            while let Some((id, content, wanted)) = self.missing(num, &part)? {
                let file = Arc::new(self.shared.files.obtain(num).map_err(errno)?);
                if file.metadata().map_err(errno)?.len() != content.size {
                    file.set_len(content.size).map_err(errno)?;
                }
                turn.brings(&part);
                let begun = Instant::now();
                let brought = match wanted.is_empty() {
                    true => wanted.clone(),
                    false => fetcher.fetch(id, &content, wanted.clone(), &file, &|came| turn.came(came))?,
                };
                if brought.start > wanted.start || brought.end <= wanted.start && !wanted.is_empty() {
                    tracing::error!("bytes {wanted:?} of object {num} were wanted, {brought:?} were brought");
                    return Err(Errno::IO);
                }
                turn.came(brought.clone());
                let next = part.start.max(brought.end);
                let size = content.size;
                let keep = move || self.note_brought(num, &content, brought, &file);
                if !ahead {
                    keep()?;
                    if next >= part.end {
                        // Who goes on from here reads one after the other.
                        self.shared.fetching.expect(num, next, AHEAD.0);
                        break;
                    }
                    part.start = next;
                    continue;
                }
                note(Some(scope.spawn(keep)))?;
                if next < part.end {
                    part.start = next;
                    continue;
                }
                let length = part.end - part.start;
                let length = match begun.elapsed() {
                    took if took < QUICK => (length * 2).min(AHEAD.1),
                    took if took > QUICK * 4 => (length / 2).max(AHEAD.0),
                    _ => length,
                };
                self.shared.fetching.expect(num, next, length);
                if next >= size || !turn.goes_on(&part) {
                    break;
                }
                part = next..next.saturating_add(length).min(size);
            }
            note(None)
        })
    }

    /// What was brought is here from now on: it lasts.
    fn note_brought(
        &self,
        num: u64,
        content: &Content,
        brought: Range<u64>,
        file: &File,
    ) -> Result<(), Errno> {
        file.sync_data().map_err(errno)?;
        let complete = self.change(|core, _| core.brought(num, content, brought, file))?;
        self.shared.space.poke();
        if complete && let Some(caches) = self.shared.caches.get() {
            caches.object_changed(num);
        }
        Ok(())
    }

    /// The first part of a range that is not here, with what it is a part of.
    fn missing(
        &self,
        num: u64,
        range: &Range<u64>,
    ) -> Result<Option<(ObjectId, Content, Range<u64>)>, Errno> {
        let missing = |core: &mut Core| {
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
        };
        missing(&mut self.core.lock()).map_err(|fail: Fail| fail.errno)
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
        let mut merged = self.present(num)?;
        merge(&mut merged, range);
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
