//! Contents that come from a store.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::before::Before;
use super::error::errno;
use super::fetch::{Fetcher, Whole, one_by_one};
use crate::content::{ContentError, ContentStore, Local, Quality, touched};
use crate::id::ObjectId;
use crate::object::{Content, Layout, Piece};
use crate::silence::SILENT;
use crate::store::MetaStore;

/// Pieces that are remembered, of the files that were wanted last.
const PIECES: usize = 1 << 18;

/// Out of reach once, out of reach for so long, or for as long as it took to find out, up to [`SILENT`]: nobody waits for
/// each file anew.
const GONE: Duration = Duration::from_secs(2);

/// The pieces of a content, by its digest.
type Known = ([u8; 32], Arc<Vec<Piece>>);

/// Brings what is wanted from where a volume is.
pub struct FromStore {
    /// Knows where chunks are.
    meta: Arc<dyn MetaStore>,
    /// Has them.
    contents: ContentStore,
    /// Pieces by digest, the last wanted last.
    pieces: Mutex<Vec<Known>>,
    reachable: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Not asked until then, if it does not come into reach once more.
    gone_until: Mutex<Option<(Instant, u64)>>,
}

impl FromStore {
    /// `meta` knows where the chunks are that `contents` has.
    pub fn new(meta: Arc<dyn MetaStore>, contents: ContentStore) -> Self {
        Self {
            meta,
            contents,
            pieces: Mutex::default(),
            reachable: Box::new(|| Some(0)),
            gone_until: Mutex::default(),
        }
    }

    /// Says who knows whether the store is to be asked, and how often it has come into reach.
    pub fn reachable_as(mut self, reachable: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        self.reachable = Box::new(reachable);
        self
    }

    /// How good the way to the store is.
    pub fn quality(&self) -> Quality {
        self.contents.link().quality()
    }

    /// Asks the store something small, to know how long that takes.
    pub fn probe(&self) {
        for _ in 0..2 {
            let asked = Instant::now();
            if self.meta.head().is_ok() {
                self.contents.link().answered(asked.elapsed());
            }
        }
    }

    fn pieces(&self, content: &Content) -> Result<Arc<Vec<Piece>>, ContentError> {
        let mut known = self.pieces.lock();
        if let Some(n) = known.iter().position(|(digest, _)| *digest == content.digest) {
            let found = known.remove(n);
            known.push(found.clone());
            return Ok(found.1);
        }
        drop(known);
        let pieces = Arc::new(self.contents.pieces(&*self.meta, content)?);
        // Short lists are with the metadata.
        if matches!(content.layout, Layout::Indirect(_)) {
            let mut known = self.pieces.lock();
            known.push((content.digest, pieces.clone()));
            while known.len() > 1 && known.iter().map(|(_, pieces)| pieces.len()).sum::<usize>() > PIECES {
                known.remove(0);
            }
        }
        Ok(pieces)
    }

    fn bring(
        &self,
        content: &Content,
        range: Range<u64>,
        into: &File,
        local: Option<&Local>,
    ) -> Result<Range<u64>, ContentError> {
        if let Layout::Inline(bytes) = &content.layout {
            into.write_all_at(bytes, 0).map_err(ContentError::Io)?;
            return Ok(0..content.size);
        }
        let pieces = self.pieces(content)?;
        self.contents.fetch(&*self.meta, &pieces, range, into, local, &|_| {})
    }

    /// The pieces of what a file held before. Its store may not have the list of them any more: then all comes anew.
    fn local<'a>(&self, before: &'a Before) -> Result<Option<&'a Local>, ContentError> {
        before.local(|content, file| match self.pieces(content) {
            Ok(pieces) => Ok(Some(Local::new(file.clone(), &pieces))),
            Err(error) if error.is_unreachable() => Err(error),
            Err(error) => {
                tracing::info!("what a file held before is of no use: {error}");
                Ok(None)
            }
        })
    }

    /// Now, for what is about to be asked.
    fn asks(&self) -> (Instant, Option<u64>) {
        (Instant::now(), (self.reachable)())
    }

    /// Of what was asked for at a time.
    fn errno(
        &self,
        what: &dyn std::fmt::Debug,
        (asked, coming): (Instant, Option<u64>),
        error: ContentError,
    ) -> Errno {
        match error {
            error if error.is_unreachable() => {
                tracing::info!("contents of {what:?} are wanted: {error}");
                // If it has come back meanwhile, that is over already.
                if let Some(coming) = coming {
                    let until = Instant::now() + asked.elapsed().clamp(GONE, SILENT);
                    *self.gone_until.lock() = Some((until, coming));
                }
                Errno::NETUNREACH
            }
            ContentError::Io(error) => errno(error),
            error => {
                tracing::error!("contents of {what:?}: {error}");
                Errno::IO
            }
        }
    }

    fn together(&self, files: &[Whole]) -> Result<(), ContentError> {
        let mut wanted = Vec::new();
        for file in files {
            match &file.content.layout {
                Layout::Inline(bytes) => file.into.write_all_at(bytes, 0).map_err(ContentError::Io)?,
                _ => wanted.push((self.pieces(&file.content)?, &file.into)),
            }
        }
        let wanted: Vec<_> = wanted.iter().map(|(pieces, into)| (&pieces[..], *into)).collect();
        self.contents.fetch_together(&*self.meta, &wanted)
    }
}

impl Fetcher for FromStore {
    fn fetch(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno> {
        let asked = self.asks();
        self.bring(content, range, into, None).map_err(|error| self.errno(&id, asked, error))
    }

    fn fetch_changed(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
        before: &Before,
    ) -> Result<Range<u64>, Errno> {
        let asked = self.asks();
        let brought = self.local(before).and_then(|local| self.bring(content, range, into, local));
        brought.map_err(|error| self.errno(&id, asked, error))
    }

    fn extent(&self, content: &Content, range: Range<u64>) -> Result<Range<u64>, Errno> {
        if let Layout::Inline(_) = content.layout {
            return Ok(0..content.size);
        }
        let asked = self.asks();
        let pieces = self.pieces(content).map_err(|error| self.errno(&"a file", asked, error))?;
        let (mut first, mut past) = (None, range.end);
        for (at, _) in touched(&pieces, &range) {
            first.get_or_insert(at.start);
            past = at.end;
        }
        Ok(first.unwrap_or(range.start)..past)
    }

    fn fetch_together(&self, files: &[Whole]) -> Vec<Result<(), Errno>> {
        let asked = self.asks();
        match self.together(files) {
            Ok(()) => vec![Ok(()); files.len()],
            Err(error) if error.is_unreachable() => {
                vec![Err(self.errno(&"files", asked, error)); files.len()]
            }
            // One of them is to blame: each by itself.
            Err(_) => one_by_one(self, files),
        }
    }

    fn is_reachable(&self) -> bool {
        let Some(coming) = (self.reachable)() else { return false };
        let gone = *self.gone_until.lock();
        gone.is_none_or(|(until, of)| of != coming || until <= Instant::now())
    }

    fn is_fast(&self) -> bool {
        !self.quality().is_slow
    }
}
