//! Downloads chunks from packs. Adjacent chunks are requested together, up to six requests run concurrently, and each chunk is
//! verified.
//!
//! Locations in the metadata are validated before they are used, since any writer of the volume can commit them. On an error,
//! running requests are cancelled and awaited, so nothing is written after a call has returned.

use std::borrow::Cow;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::collect_bytes;
use parking_lot::Mutex;
use shunt_volume_store::ChunkLocation;
use shunt_volume_types::runtime::runtime;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::blobs::Parts;
use crate::chunk_decoder::{ChunkRequest, ChunkStreamDecoder, damaged};
use crate::compression::{MAX_ACCEPTED_CHUNK_BYTES, decode};
use crate::pack::PACK_TARGET_BYTES;
use crate::{ContentError, ContentStore};

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 6;
/// Maximum number of bytes of one request for adjacent chunks: any pack.
const MAX_REQUEST_BYTES: u64 = (PACK_TARGET_BYTES + PACK_TARGET_BYTES / 4) as u64;
/// Upper bound on the size of a pack, far above any real one.
const MAX_PACK_BYTES: u64 = 1 << 30;
/// Upper bound on the length of a pack's key.
const MAX_KEY_BYTES: usize = 256;
/// Minimum number of bytes per decoding step: a thread is woken for each.
const MIN_DECODE_BYTES: usize = 512 << 10;

/// Validates a chunk location: locations in a store may come from any node with write access.
fn is_valid(location: &ChunkLocation) -> bool {
    let is_key = location.key.starts_with("packs/")
        && location.key.len() <= MAX_KEY_BYTES
        && location.key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte));
    let end = location.offset.checked_add(u64::from(location.stored));
    is_key
        && (1..=2 * MAX_ACCEPTED_CHUNK_BYTES).contains(&(location.stored as usize))
        && location.length as usize <= MAX_ACCEPTED_CHUNK_BYTES
        && end.is_some_and(|end| end <= MAX_PACK_BYTES)
}

/// The chunks of one request: adjacent, or nearly so, in one stored object.
type Run = Vec<ChunkRequest>;

/// Returns the byte range of a run in the stored object.
fn extent(run: &[ChunkRequest]) -> Range<u64> {
    let end = |location: &ChunkLocation| location.offset.saturating_add(u64::from(location.stored));
    run.first().map_or(0, |first| first.location.offset)..run.last().map_or(0, |last| end(&last.location))
}

fn length(run: &[ChunkRequest]) -> u64 {
    let Range { start, end } = extent(run);
    end.saturating_sub(start)
}

/// Checks that all bytes of a run were received. A cancelled request falls short, and its bytes must not count as a
/// measurement.
fn check_complete(run: &[ChunkRequest], received: u64) -> Result<(), ContentError> {
    match run.first() {
        Some(ChunkRequest { id, location, .. }) if received < length(run) => Err(damaged(*id, location)),
        _ => Ok(()),
    }
}

/// Cancellation: becomes true, or closed, once the result is no longer needed.
type Cancelled = watch::Receiver<bool>;

impl ContentStore {
    /// Downloads and verifies chunks. `work` is called with each verified chunk, on any thread; its results are passed to
    /// `take` on this thread, in any order. No `work` is running when this returns, even with an error.
    ///
    /// # Errors
    /// [`ContentError`] of the object store, of `work` or of `take`.
    pub(super) fn download<T: Send + 'static>(
        &self,
        chunks: Vec<ChunkRequest>,
        work: impl Fn(u64, Cow<'_, [u8]>) -> Result<T, ContentError> + Send + Sync + 'static,
        take: impl FnMut(u64, T) -> Result<(), ContentError>,
    ) -> Result<(), ContentError> {
        self.download_stored(chunks, 0, move |at, _, bytes| work(at, bytes), take)
    }

    /// Downloads and verifies chunks like [`download`](Self::download), but passes the stored form to `work` as well. Chunks of
    /// a pack with at most `apart` bytes between them are requested together.
    pub(super) fn download_stored<T: Send + 'static>(
        &self,
        chunks: Vec<ChunkRequest>,
        apart: u64,
        work: impl Fn(u64, &[u8], Cow<'_, [u8]>) -> Result<T, ContentError> + Send + Sync + 'static,
        take: impl FnMut(u64, T) -> Result<(), ContentError>,
    ) -> Result<(), ContentError> {
        let work = Arc::new(work);
        let by_run = |run: Run, is_over: Cancelled| {
            let (store, work) = (self.clone(), work.clone());
            async move {
                let start = extent(&run).start;
                store.link.begin();
                let got = store.request_whole(&run, is_over).await;
                store.link.end(got.as_ref().map_or(0, |bytes| bytes.len() as u64));
                let bytes = got?;
                let opened = spawn_blocking(move || {
                    run.iter()
                        .map(|ChunkRequest { id, location, at }| {
                            let from = location.offset.saturating_sub(start) as usize;
                            let stored = bytes.get(from..from.saturating_add(location.stored as usize));
                            let stored = stored.unwrap_or_default();
                            let bytes = decode(&store.keys, *id, stored, location.length as usize)
                                .ok_or_else(|| damaged(*id, location))?;
                            Ok((*at, work(*at, stored, bytes)?))
                        })
                        .collect()
                });
                opened.await.map_err(panicked)?
            }
        };
        self.for_each_run(chunks, apart, by_run, take)
    }

    /// Downloads chunks and writes them to their destination part by part as they arrive: `write` receives the chunk's `at` and
    /// the offset within the chunk. `take` is called for each complete, verified chunk with its length; before that, and after
    /// an error, the written bytes are arbitrary, so the destination must not be visible to readers. No `write` is running when
    /// this returns, even with an error: a late write could overwrite data of users or of a later version.
    ///
    /// # Errors
    /// [`ContentError`] of the object store; [`ContentError::Io`] of `write`.
    pub(super) fn download_into(
        &self,
        chunks: Vec<ChunkRequest>,
        write: impl Fn(u64, u64, &[u8]) -> std::io::Result<()> + Send + Sync + 'static,
        mut take: impl FnMut(u64, u64),
    ) -> Result<(), ContentError> {
        let write = Arc::new(write);
        let by_run = |run: Run, is_over: Cancelled| {
            let (store, write) = (self.clone(), write.clone());
            async move {
                let mut work =
                    DecodePipeline::new(ChunkStreamDecoder::new(run.clone(), store.keys.clone(), write));
                store.link.begin();
                // The running decoding step is awaited even if the request fails or panics.
                let got = AssertUnwindSafe(store.pass_on(&run, is_over, &mut work)).catch_unwind().await;
                let got = got.unwrap_or_else(|_| Err(ContentError::Unreachable("a request panicked".into())));
                store.link.end(got.as_ref().map_or(0, |()| work.received_bytes));
                work.end(got).await
            }
        };
        self.for_each_run(chunks, 0, by_run, |at, length| {
            take(at, length);
            Ok(())
        })
    }

    /// Requests the byte range of a run. The stream ends early on cancellation; its result is then discarded.
    async fn request(&self, run: &[ChunkRequest], mut is_over: Cancelled) -> Result<Parts<'_>, ContentError> {
        let key = run.first().map_or("", |first| &first.location.key);
        let over = async move { drop(is_over.wait_for(|is_over| *is_over).await) }.boxed().shared();
        tokio::select! {
            biased;
            () = over.clone() => Err(ContentError::Unreachable("the download was cancelled".into())),
            parts = self.blobs.parts(key, extent(run)) => Ok(parts?.take_until(over).boxed()),
        }
    }

    /// Requests a run and reads all of it.
    async fn request_whole(&self, run: &[ChunkRequest], is_over: Cancelled) -> Result<Bytes, ContentError> {
        let length = length(run);
        let bytes = collect_bytes(self.request(run, is_over).await?, Some(length)).await?;
        check_complete(run, bytes.len() as u64).map(|()| bytes)
    }

    /// Requests a run and passes its parts to the decoder as they arrive.
    async fn pass_on(
        &self,
        run: &[ChunkRequest],
        is_over: Cancelled,
        work: &mut DecodePipeline,
    ) -> Result<(), ContentError> {
        let mut parts = self.request(run, is_over).await?;
        while let Some(part) = parts.try_next().await? {
            work.push(part).await?;
        }
        check_complete(run, work.received_bytes)
    }

    /// Runs `by_run` for each run, several concurrently.
    fn for_each_run<T: Send + 'static, F>(
        &self,
        chunks: Vec<ChunkRequest>,
        apart: u64,
        by_run: impl Fn(Run, Cancelled) -> F,
        mut take: impl FnMut(u64, T) -> Result<(), ContentError>,
    ) -> Result<(), ContentError>
    where
        F: Future<Output = Result<Vec<(u64, T)>, ContentError>> + Send + 'static,
    {
        if let Some(ChunkRequest { id, .. }) = chunks.iter().find(|chunk| !is_valid(&chunk.location)) {
            return Err(ContentError::Damaged(format!("chunk {id:?} has an invalid location")));
        }
        let (over, is_over) = watch::channel(false);
        let requests = futures::stream::iter(runs(chunks, apart)).map(|run| {
            // Spawned: they progress while this thread processes results.
            let task = runtime().spawn(by_run(run, is_over.clone()));
            async { task.await.map_err(|error| ContentError::Unreachable(error.to_string()))? }
        });
        let mut answers = requests.buffer_unordered(MAX_CONCURRENT_REQUESTS);
        let mut done = Ok(());
        while let Some(answer) = runtime().block_on(answers.next()) {
            if done.is_err() {
                continue;
            }
            done = answer.and_then(|answer| answer.into_iter().try_for_each(|(at, of)| take(at, of)));
            if done.is_err() {
                over.send_replace(true);
            }
        }
        done
    }
}

fn panicked(error: JoinError) -> ContentError {
    ContentError::Damaged(error.to_string())
}

/// Decodes received parts on a blocking thread, one step at a time, while further parts arrive.
struct DecodePipeline {
    decoder: Arc<Mutex<ChunkStreamDecoder>>,
    pending: Vec<Bytes>,
    /// Number of bytes in `pending`.
    pending_bytes: usize,
    running: Option<JoinHandle<Result<(), ContentError>>>,
    /// Number of bytes received.
    received_bytes: u64,
}

impl DecodePipeline {
    fn new(arrival: ChunkStreamDecoder) -> Self {
        let arrival = Arc::new(Mutex::new(arrival));
        Self { decoder: arrival, pending: Vec::new(), pending_bytes: 0, running: None, received_bytes: 0 }
    }

    async fn push(&mut self, part: Bytes) -> Result<(), ContentError> {
        self.received_bytes += part.len() as u64;
        self.pending_bytes += part.len();
        self.pending.push(part);
        // Without waiting for the previous step: a request holds at most one pack, and backpressure would let the speed of the
        // disk distort the measured rate.
        if self.pending_bytes >= MIN_DECODE_BYTES && self.running.as_ref().is_none_or(JoinHandle::is_finished)
        {
            self.begin().await?;
        }
        Ok(())
    }

    /// Starts a decoding step for the held parts, after the previous one is finished.
    async fn begin(&mut self) -> Result<(), ContentError> {
        if let Some(work) = self.running.take() {
            work.await.map_err(panicked)??;
        }
        let (arrival, parts) = (self.decoder.clone(), std::mem::take(&mut self.pending));
        self.pending_bytes = 0;
        self.running =
            Some(spawn_blocking(move || parts.into_iter().try_for_each(|part| arrival.lock().push(&part))));
        Ok(())
    }

    /// Finishes decoding and returns the complete chunks; no step is running when this returns.
    async fn end(mut self, got: Result<(), ContentError>) -> Result<Vec<(u64, u64)>, ContentError> {
        let done = match &got {
            Ok(()) => self.begin().await,
            Err(_) => Ok(()),
        };
        let last = match self.running.take() {
            Some(work) => work.await.map_err(panicked)?,
            None => Ok(()),
        };
        got.and(done).and(last)?;
        self.decoder.lock().end()
    }
}

fn runs(chunks: Vec<ChunkRequest>, apart: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for next in chunks {
        if let Some(run) = runs.last_mut()
            && let (Some(first), Some(last)) = (run.first(), run.last())
            && last.location.key == next.location.key
            && let Some(end) = last.location.offset.checked_add(u64::from(last.location.stored))
            && next.location.offset.checked_sub(end).is_some_and(|between| between <= apart)
            && (next.location.offset.saturating_sub(first.location.offset))
                .saturating_add(u64::from(next.location.stored))
                <= MAX_REQUEST_BYTES
        {
            run.push(next);
        } else {
            runs.push(vec![next]);
        }
    }
    runs
}
