//! Fetches contents from the store of a volume.
//!
//! Chunk lists of recent files are cached. A detected outage fails further requests at once, until the store is reachable
//! again.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::chunks::{BasisSource, ContentError, ContentStore, LinkQuality, segments_in};
use crate::id::ObjectId;
use crate::object::{Content, Layout, Segment};
use crate::replica::data::fetch::{Fetcher, WholeFile, one_by_one};
use crate::replica::data::probe::{Outage, Probe, Reachable};
use crate::replica::db::basis_cache::BasisFile;
use crate::replica::error::errno;
use crate::runtime::runtime;
use crate::store::MetaStore;

/// Maximum number of cached chunk descriptors, of the most recently used files.
const MAX_CACHED_SEGMENTS: usize = 1 << 18;

/// In a volume with a sealed log, larger files are not read again after the download to verify their digest: the reader of
/// the end would wait for that.
const MAX_VERIFIED_BYTES: u64 = 256 << 20;

/// The chunks of a content, by its digest.
type CachedSegments = ([u8; 32], Arc<Vec<Segment>>);

/// Downloads contents from the store of a volume.
pub struct StoreFetcher {
    /// Knows the locations of chunks.
    meta: Arc<dyn MetaStore>,
    /// Stores the chunks.
    contents: ContentStore,
    /// Chunks by digest, most recently used last.
    pieces: Mutex<Vec<CachedSegments>>,
    reachable: Reachable,
    /// The outage that was detected, so that not every request waits for its own timeout.
    outage: Arc<Outage>,
    /// The end of an outage is detected by background probes.
    probes_outage: bool,
}

impl StoreFetcher {
    /// Creates a fetcher; `meta` knows the locations of the chunks in `contents`.
    pub fn new(meta: Arc<dyn MetaStore>, contents: ContentStore) -> Self {
        Self {
            meta,
            contents,
            pieces: Mutex::default(),
            reachable: Arc::new(|| Some(0)),
            outage: Arc::default(),
            probes_outage: false,
        }
    }

    /// Sets the source of reachability: the number of times the store became reachable, or `None` if it must not be asked.
    /// After an outage, the store is not asked until that number changes.
    pub fn with_reachability(mut self, reachable: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        self.reachable = Arc::new(reachable);
        self
    }

    /// Enables background probes, which detect the end of an outage too.
    pub fn with_probing(mut self) -> Self {
        self.probes_outage = true;
        self
    }

    /// Reports whether an outage was detected, and its end was not.
    pub fn has_outage(&self) -> bool {
        self.outage.lock().is_some()
    }

    /// Returns the quality of the connection to the store.
    pub fn quality(&self) -> LinkQuality {
        self.contents.link().quality()
    }

    /// Measures the latency of the store by small requests.
    pub fn probe(&self) {
        for _ in 0..2 {
            let asked = Instant::now();
            if self.meta.head().is_ok() {
                self.contents.link().record_latency(asked.elapsed());
            }
        }
    }

    fn pieces(&self, content: &Content) -> Result<Arc<Vec<Segment>>, ContentError> {
        let mut known = self.pieces.lock();
        if let Some(n) = known.iter().position(|(digest, _)| *digest == content.digest) {
            let found = known.remove(n);
            known.push(found.clone());
            return Ok(found.1);
        }
        drop(known);
        let pieces = Arc::new(self.contents.pieces(&*self.meta, content)?);
        // Short lists are part of the metadata.
        if matches!(content.layout, Layout::Indirect(_)) {
            let mut known = self.pieces.lock();
            known.push((content.digest, pieces.clone()));
            while known.len() > 1
                && known.iter().map(|(_, pieces)| pieces.len()).sum::<usize>() > MAX_CACHED_SEGMENTS
            {
                known.remove(0);
            }
        }
        Ok(pieces)
    }

    fn fetch_segments(
        &self,
        content: &Content,
        range: Range<u64>,
        into: &File,
        local: Option<&BasisSource>,
    ) -> Result<Range<u64>, ContentError> {
        if let Some(bytes) = self.contents.inline(content)? {
            into.write_all_at(bytes, 0).map_err(ContentError::Io)?;
            return Ok(0..content.size);
        }
        let pieces = self.pieces(content)?;
        self.contents.fetch(&*self.meta, &pieces, range, into, local, &|_| {})
    }

    /// Returns the chunks of a basis file. If the store no longer has their list, everything is downloaded.
    fn local<'a>(&self, before: &'a BasisFile) -> Result<Option<&'a BasisSource>, ContentError> {
        before.local(|content, file| match self.pieces(content) {
            Ok(pieces) => Ok(Some(BasisSource::new(file.clone(), &pieces))),
            Err(error) if error.is_unreachable() => Err(error),
            Err(error) => {
                tracing::info!(
                    "cannot reuse the previous content of a file: {error}; fetching all of the new content"
                );
                Ok(None)
            }
        })
    }

    /// Makes a request for `what`, with content `wanted`. A request that was lost on the way is repeated if the store answers
    /// a probe.
    fn request<T>(
        &self,
        what: &dyn std::fmt::Debug,
        wanted: &Content,
        ask: impl Fn() -> Result<T, ContentError>,
    ) -> Result<T, Errno> {
        let coming = (self.reachable)();
        let probe = Probe::of(&self.meta, &self.contents, wanted).filter(|_| self.probes_outage);
        let is_lost = |error: &ContentError| {
            error.is_unreachable() && probe.as_ref().is_some_and(Probe::is_reachable_now)
        };
        let answer = match ask() {
            Err(error) if is_lost(&error) => {
                tracing::info!("fetch of the content of {what:?} failed, retrying: {error}");
                ask()
            }
            answer => answer,
        };
        answer.map_err(|error| match error {
            error if error.is_unreachable() => {
                tracing::info!("cannot fetch the content of {what:?} now: {error}");
                // If the store became reachable meanwhile, this outage is over already.
                if let Some(coming) = coming {
                    let is_known = self.outage.lock().replace(coming).is_some();
                    if let Some(probe) = probe.filter(|_| !is_known) {
                        runtime().spawn(
                            probe.wait_until_reachable(Arc::downgrade(&self.outage), self.reachable.clone()),
                        );
                    }
                }
                Errno::NETUNREACH
            }
            ContentError::Io(error) => errno(error),
            error => {
                tracing::error!("cannot fetch the content of {what:?}: {error}");
                Errno::IO
            }
        })
    }

    fn request_batch(&self, files: &[WholeFile]) -> Result<(), ContentError> {
        let mut wanted = Vec::new();
        for file in files {
            match self.contents.inline(&file.content)? {
                Some(bytes) => file.into.write_all_at(bytes, 0).map_err(ContentError::Io)?,
                None => wanted.push((self.pieces(&file.content)?, &file.into)),
            }
        }
        let wanted: Vec<_> = wanted.iter().map(|(pieces, into)| (&pieces[..], *into)).collect();
        self.contents.fetch_batch(&*self.meta, &wanted)
    }
}

impl Fetcher for StoreFetcher {
    fn fetch(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
    ) -> Result<Range<u64>, Errno> {
        self.request(&id, content, || self.fetch_segments(content, range.clone(), into, None))
    }

    fn fetch_with_basis(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
        before: &BasisFile,
    ) -> Result<Range<u64>, Errno> {
        self.request(&id, content, || self.fetch_segments(content, range.clone(), into, self.local(before)?))
    }

    fn extent(&self, content: &Content, range: Range<u64>) -> Result<Range<u64>, Errno> {
        if let Layout::Inline(_) = content.layout {
            return Ok(0..content.size);
        }
        let pieces = self.request(&"a file", content, || self.pieces(content))?;
        let (mut first, mut past) = (None, range.end);
        for (at, _) in segments_in(&pieces, &range) {
            first.get_or_insert(at.start);
            past = at.end;
        }
        Ok(first.unwrap_or(range.start)..past)
    }

    fn fetch_batch(&self, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
        let Some(wanted) = files.iter().find(|file| !matches!(file.content.layout, Layout::Inline(_))) else {
            return one_by_one(self, files);
        };
        let together = || match self.request_batch(files) {
            // One of them is to blame: each by itself.
            Err(error) if !error.is_unreachable() => Ok(false),
            brought => brought.map(|()| true),
        };
        match self.request(&"files", &wanted.content, together) {
            Ok(true) => vec![Ok(()); files.len()],
            Ok(false) => one_by_one(self, files),
            Err(errno) => vec![Err(errno); files.len()],
        }
    }

    fn needs_verification(&self) -> bool {
        self.contents.encrypts()
    }

    fn verify(&self, id: ObjectId, content: &Content, file: &File) -> Result<(), Errno> {
        // The seal of the commit authenticates the chunks, and each chunk was verified.
        if content.size > MAX_VERIFIED_BYTES && self.meta.sealed_log().is_some() {
            return Ok(());
        }
        self.contents.verify_file(content, file).map_err(|error| match error {
            ContentError::Io(error) => errno(error),
            error => {
                tracing::error!(
                    "cannot verify the content of {id:?}: {error}; restore the file from its history or a backup"
                );
                Errno::IO
            }
        })
    }

    fn allows_inline(&self, id: ObjectId, content: &Content) -> bool {
        match self.contents.inline(content) {
            Ok(_) => true,
            Err(error) => {
                tracing::error!("invalid inline content of {id:?}: {error}");
                false
            }
        }
    }

    fn is_reachable(&self) -> bool {
        let Some(coming) = (self.reachable)() else { return false };
        *self.outage.lock() != Some(coming)
    }

    fn is_fast(&self) -> bool {
        !self.quality().is_slow
    }
}
