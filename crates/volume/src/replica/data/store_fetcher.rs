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
    /// The metadata store, which locates chunks.
    meta: Arc<dyn MetaStore>,
    /// The object store.
    contents: ContentStore,
    /// Chunks by digest, most recently used last.
    segments: Mutex<Vec<CachedSegments>>,
    reachable: Reachable,
    /// The outage that was detected, so that not every request waits for its own timeout.
    outage: Arc<Outage>,
    /// The end of an outage is detected by background probes.
    probes_outage: bool,
}

impl StoreFetcher {
    /// Creates a fetcher; `meta` locates the chunks in `contents`.
    pub fn new(meta: Arc<dyn MetaStore>, contents: ContentStore) -> Self {
        Self {
            meta,
            contents,
            segments: Mutex::default(),
            reachable: Arc::new(|| Some(0)),
            outage: Arc::default(),
            probes_outage: false,
        }
    }

    /// Sets the source of reachability: the number of times the store became reachable, or `None` if no request may be sent.
    /// After an outage, no request is sent until that number changes.
    pub fn with_reachability(mut self, reachable: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        self.reachable = Arc::new(reachable);
        self
    }

    /// Enables background probes, which detect the end of an outage too.
    pub fn with_probing(mut self) -> Self {
        self.probes_outage = true;
        self
    }

    /// Reports whether an outage is in progress.
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
            let started = Instant::now();
            if self.meta.head().is_ok() {
                self.contents.link().record_latency(started.elapsed());
            }
        }
    }

    fn segments(&self, content: &Content) -> Result<Arc<Vec<Segment>>, ContentError> {
        let mut cache = self.segments.lock();
        if let Some(n) = cache.iter().position(|(digest, _)| *digest == content.digest) {
            let found = cache.remove(n);
            cache.push(found.clone());
            return Ok(found.1);
        }
        drop(cache);
        let segments = Arc::new(self.contents.segments(&*self.meta, content)?);
        // Short lists are part of the metadata.
        if matches!(content.layout, Layout::Indirect(_)) {
            let mut cache = self.segments.lock();
            cache.push((content.digest, segments.clone()));
            while cache.len() > 1
                && cache.iter().map(|(_, segments)| segments.len()).sum::<usize>() > MAX_CACHED_SEGMENTS
            {
                cache.remove(0);
            }
        }
        Ok(segments)
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
        let segments = self.segments(content)?;
        self.contents.fetch(&*self.meta, &segments, range, into, local, &|_| {})
    }

    /// Returns the chunks of a basis file. If the store no longer has their list, everything is downloaded.
    fn local<'a>(&self, before: &'a BasisFile) -> Result<Option<&'a BasisSource>, ContentError> {
        before.local(|content, file| match self.segments(content) {
            Ok(segments) => Ok(Some(BasisSource::new(file.clone(), &segments))),
            Err(error) if error.is_unreachable() => Err(error),
            Err(error) => {
                tracing::info!(
                    "cannot reuse the previous content of a file: {error}; fetching all of the new content"
                );
                Ok(None)
            }
        })
    }

    /// Makes a request for the content `content` of `object`. A request that was lost on the way is repeated if the store answers
    /// a probe.
    fn request<T>(
        &self,
        object: &dyn std::fmt::Debug,
        content: &Content,
        request: impl Fn() -> Result<T, ContentError>,
    ) -> Result<T, Errno> {
        let reconnects = (self.reachable)();
        let probe = Probe::of(&self.meta, &self.contents, content).filter(|_| self.probes_outage);
        let is_lost = |error: &ContentError| {
            error.is_unreachable() && probe.as_ref().is_some_and(Probe::is_reachable_now)
        };
        let answer = match request() {
            Err(error) if is_lost(&error) => {
                tracing::info!("fetch of the content of {object:?} failed, retrying: {error}");
                request()
            }
            answer => answer,
        };
        answer.map_err(|error| match error {
            error if error.is_unreachable() => {
                tracing::info!("cannot fetch the content of {object:?} now: {error}");
                // If the store became reachable meanwhile, this outage is over already.
                if let Some(reconnects) = reconnects {
                    let is_known = self.outage.lock().replace(reconnects).is_some();
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
                tracing::error!("cannot fetch the content of {object:?}: {error}");
                Errno::IO
            }
        })
    }

    fn request_batch(&self, files: &[WholeFile]) -> Result<(), ContentError> {
        let mut files_to_fetch = Vec::new();
        for file in files {
            match self.contents.inline(&file.content)? {
                Some(bytes) => file.into.write_all_at(bytes, 0).map_err(ContentError::Io)?,
                None => files_to_fetch.push((self.segments(&file.content)?, &file.into)),
            }
        }
        let requests: Vec<_> = files_to_fetch.iter().map(|(segments, into)| (&segments[..], *into)).collect();
        self.contents.fetch_batch(&*self.meta, &requests)
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
        let segments = self.request(&"a file", content, || self.segments(content))?;
        let (mut first, mut past) = (None, range.end);
        for (at, _) in segments_in(&segments, &range) {
            first.get_or_insert(at.start);
            past = at.end;
        }
        Ok(first.unwrap_or(range.start)..past)
    }

    fn fetch_batch(&self, files: &[WholeFile]) -> Vec<Result<(), Errno>> {
        let Some(first) = files.iter().find(|file| !matches!(file.content.layout, Layout::Inline(_))) else {
            return one_by_one(self, files);
        };
        let fetch_all = || match self.request_batch(files) {
            // One of the files caused the error: fetch each by itself.
            Err(error) if !error.is_unreachable() => Ok(false),
            result => result.map(|()| true),
        };
        match self.request(&"files", &first.content, fetch_all) {
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
                    "cannot verify the content of {id:?}: {error}; restore the file from its \
                        history or a backup"
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
        let Some(reconnects) = (self.reachable)() else { return false };
        *self.outage.lock() != Some(reconnects)
    }

    fn is_fast(&self) -> bool {
        !self.quality().is_slow
    }
}
