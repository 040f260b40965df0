//! Chunks on their way from the store: parallel requests, each of chunks that lie together.

use std::borrow::Cow;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::collect_bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::content::blobs::Parts;
use crate::content::chunk_decoder::{ChunkRequest, ChunkStreamDecoder, damaged};
use crate::content::pack::{CHUNK_MAX, FULL, decode};
use crate::content::{ContentError, ContentStore};
use crate::runtime::runtime;
use crate::store::ChunkLocation;

/// Requests at once.
const REQUESTS: usize = 6;
/// Chunks that lie together come by one request of at most so many bytes: those of any pack.
const TOGETHER: u64 = (FULL + FULL / 4) as u64;
/// No pack is so long, by far.
const PACK_MAX: u64 = 1 << 30;
/// Nor has one a key so long.
const KEY_MAX: usize = 256;
/// What came is worked on once it is so much: a thread is woken for it.
const WORTH: usize = 512 << 10;

/// Whether a pack may hold something there: what a store says of places came from any node that writes.
fn is_sound(place: &ChunkLocation) -> bool {
    let is_key = place.key.starts_with("packs/")
        && place.key.len() <= KEY_MAX
        && place.key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte));
    let end = place.offset.checked_add(u64::from(place.stored));
    is_key
        && (1..=2 * CHUNK_MAX).contains(&(place.stored as usize))
        && place.length as usize <= CHUNK_MAX
        && end.is_some_and(|end| end <= PACK_MAX)
}

/// Chunks of one request: next to each other in one stored object, or nearly.
type Run = Vec<ChunkRequest>;

/// Where in the stored object they are.
fn extent(run: &[ChunkRequest]) -> Range<u64> {
    let end = |place: &ChunkLocation| place.offset.saturating_add(u64::from(place.stored));
    run.first().map_or(0, |first| first.place.offset)..run.last().map_or(0, |last| end(&last.place))
}

fn length(run: &[ChunkRequest]) -> u64 {
    let Range { start, end } = extent(run);
    end.saturating_sub(start)
}

/// Whether so many bytes are all of a run. Of one that is over they are not, and say nothing of the way either.
fn is_all(run: &[ChunkRequest], came: u64) -> Result<(), ContentError> {
    match run.first() {
        Some(ChunkRequest { id, place, .. }) if came < length(run) => Err(damaged(*id, place)),
        _ => Ok(()),
    }
}

/// Becomes true once nobody wants any more what was asked for, or is gone where whoever asked is no more.
type IsOver = watch::Receiver<bool>;

impl ContentStore {
    /// Gets chunks and checks them. `work` is done with each where it was checked, on any thread; what comes of it is handed
    /// over one by one in any order, on this thread. None is at work once this has returned, whatever it returns.
    ///
    /// # Errors
    /// Those of the store, and of `work` and `take`.
    pub(super) fn download<T: Send + 'static>(
        &self,
        wanted: Vec<ChunkRequest>,
        work: impl Fn(u64, Cow<'_, [u8]>) -> Result<T, ContentError> + Send + Sync + 'static,
        take: impl FnMut(u64, T) -> Result<(), ContentError>,
    ) -> Result<(), ContentError> {
        self.bring_stored(wanted, 0, move |at, _, bytes| work(at, bytes), take)
    }

    /// The same, where `work` is given the bytes as they are stored, too. Chunks of a pack between which are at most `apart`
    /// bytes come together.
    pub(super) fn bring_stored<T: Send + 'static>(
        &self,
        wanted: Vec<ChunkRequest>,
        apart: u64,
        work: impl Fn(u64, &[u8], Cow<'_, [u8]>) -> Result<T, ContentError> + Send + Sync + 'static,
        take: impl FnMut(u64, T) -> Result<(), ContentError>,
    ) -> Result<(), ContentError> {
        let work = Arc::new(work);
        let by_run = |run: Run, is_over: IsOver| {
            let (store, work) = (self.clone(), work.clone());
            async move {
                let start = extent(&run).start;
                store.link.begin();
                let got = store.request_whole(&run, is_over).await;
                store.link.end(got.as_ref().map_or(0, |bytes| bytes.len() as u64));
                let bytes = got?;
                let opened = spawn_blocking(move || {
                    run.iter()
                        .map(|ChunkRequest { id, place, at }| {
                            let from = place.offset.saturating_sub(start) as usize;
                            let stored = bytes.get(from..from.saturating_add(place.stored as usize));
                            let stored = stored.unwrap_or_default();
                            let bytes = decode(&store.keys, *id, stored, place.length as usize)
                                .ok_or_else(|| damaged(*id, place))?;
                            Ok((*at, work(*at, stored, bytes)?))
                        })
                        .collect()
                });
                opened.await.map_err(died)?
            }
        };
        self.by_runs(wanted, apart, by_run, take)
    }

    /// Gets chunks, and has them written where they belong as they come, by parts: `write` is told of which chunk, and from
    /// which of its bytes on. `take` is called for those that are there and what their name says, with their length; until
    /// then, and after an error, what was written may be anything, so nothing may be there that anybody reads. Nothing is
    /// written any more once this has returned, whatever it returns: it would take the place of what users write there by
    /// then, or of a later version.
    ///
    /// # Errors
    /// Those of the store, and of writing.
    pub(super) fn bring_into(
        &self,
        wanted: Vec<ChunkRequest>,
        write: impl Fn(u64, u64, &[u8]) -> std::io::Result<()> + Send + Sync + 'static,
        mut take: impl FnMut(u64, u64),
    ) -> Result<(), ContentError> {
        let write = Arc::new(write);
        let by_run = |run: Run, is_over: IsOver| {
            let (store, write) = (self.clone(), write.clone());
            async move {
                let mut work =
                    DecodePipeline::new(ChunkStreamDecoder::new(run.clone(), store.keys.clone(), write));
                store.link.begin();
                // What is at work is waited for, whatever becomes of the request.
                let got = AssertUnwindSafe(store.pass_on(&run, is_over, &mut work)).catch_unwind().await;
                let got = got.unwrap_or_else(|_| Err(ContentError::Unreachable("a request panicked".into())));
                store.link.end(got.as_ref().map_or(0, |()| work.came));
                work.end(got).await
            }
        };
        self.by_runs(wanted, 0, by_run, |at, length| {
            take(at, length);
            Ok(())
        })
    }

    /// Asks for all that lies where the chunks of a run do. What comes ends early once it is over; nobody looks at it then.
    async fn request(&self, run: &[ChunkRequest], mut is_over: IsOver) -> Result<Parts<'_>, ContentError> {
        let key = run.first().map_or("", |first| &first.place.key);
        let over = async move { drop(is_over.wait_for(|is_over| *is_over).await) }.boxed().shared();
        tokio::select! {
            biased;
            () = over.clone() => Err(ContentError::Unreachable("given up".into())),
            parts = self.blobs.parts(key, extent(run)) => Ok(parts?.take_until(over).boxed()),
        }
    }

    /// The same, and waits for all of it.
    async fn request_whole(&self, run: &[ChunkRequest], is_over: IsOver) -> Result<Bytes, ContentError> {
        let length = length(run);
        let bytes = collect_bytes(self.request(run, is_over).await?, Some(length)).await?;
        is_all(run, bytes.len() as u64).map(|()| bytes)
    }

    /// The same, and has it worked on as it comes.
    async fn pass_on(
        &self,
        run: &[ChunkRequest],
        is_over: IsOver,
        work: &mut DecodePipeline,
    ) -> Result<(), ContentError> {
        let mut parts = self.request(run, is_over).await?;
        while let Some(part) = parts.try_next().await? {
            work.push(part).await?;
        }
        is_all(run, work.came)
    }

    /// Has something done for each run, for several at once.
    fn by_runs<T: Send + 'static, F>(
        &self,
        wanted: Vec<ChunkRequest>,
        apart: u64,
        by_run: impl Fn(Run, IsOver) -> F,
        mut take: impl FnMut(u64, T) -> Result<(), ContentError>,
    ) -> Result<(), ContentError>
    where
        F: Future<Output = Result<Vec<(u64, T)>, ContentError>> + Send + 'static,
    {
        if let Some(ChunkRequest { id, .. }) = wanted.iter().find(|wanted| !is_sound(&wanted.place)) {
            return Err(ContentError::Damaged(format!("{id:?} has an impossible place")));
        }
        let (over, is_over) = watch::channel(false);
        let requests = futures::stream::iter(runs(wanted, apart)).map(|run| {
            // Each by itself: they go on while this thread does something with what came.
            let task = runtime().spawn(by_run(run, is_over.clone()));
            async { task.await.map_err(|error| ContentError::Unreachable(error.to_string()))? }
        });
        let mut answers = requests.buffer_unordered(REQUESTS);
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

fn died(error: JoinError) -> ContentError {
    ContentError::Damaged(error.to_string())
}

/// What is done with parts while others come: one thing at a time, by a thread that may wait.
struct DecodePipeline {
    arrival: Arc<Mutex<ChunkStreamDecoder>>,
    held: Vec<Bytes>,
    /// Bytes that are held.
    worth: usize,
    at_work: Option<JoinHandle<Result<(), ContentError>>>,
    /// Bytes that came.
    came: u64,
}

impl DecodePipeline {
    fn new(arrival: ChunkStreamDecoder) -> Self {
        let arrival = Arc::new(Mutex::new(arrival));
        Self { arrival, held: Vec::new(), worth: 0, at_work: None, came: 0 }
    }

    async fn push(&mut self, part: Bytes) -> Result<(), ContentError> {
        self.came += part.len() as u64;
        self.worth += part.len();
        self.held.push(part);
        // Without waiting for it: no request holds more than a pack, and how fast bytes come says nothing of the disk.
        if self.worth >= WORTH && self.at_work.as_ref().is_none_or(JoinHandle::is_finished) {
            self.begin().await?;
        }
        Ok(())
    }

    /// Has what is held worked on, once what was before it is done.
    async fn begin(&mut self) -> Result<(), ContentError> {
        if let Some(work) = self.at_work.take() {
            work.await.map_err(died)??;
        }
        let (arrival, parts) = (self.arrival.clone(), std::mem::take(&mut self.held));
        self.worth = 0;
        self.at_work =
            Some(spawn_blocking(move || parts.into_iter().try_for_each(|part| arrival.lock().push(&part))));
        Ok(())
    }

    /// What arrived, if all did; returns once nothing is at work.
    async fn end(mut self, got: Result<(), ContentError>) -> Result<Vec<(u64, u64)>, ContentError> {
        let done = match &got {
            Ok(()) => self.begin().await,
            Err(_) => Ok(()),
        };
        let last = match self.at_work.take() {
            Some(work) => work.await.map_err(died)?,
            None => Ok(()),
        };
        got.and(done).and(last)?;
        self.arrival.lock().end()
    }
}

fn runs(wanted: Vec<ChunkRequest>, apart: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for next in wanted {
        if let Some(run) = runs.last_mut()
            && let (Some(first), Some(last)) = (run.first(), run.last())
            && last.place.key == next.place.key
            && let Some(end) = last.place.offset.checked_add(u64::from(last.place.stored))
            && next.place.offset.checked_sub(end).is_some_and(|between| between <= apart)
            && (next.place.offset.saturating_sub(first.place.offset))
                .saturating_add(u64::from(next.place.stored))
                <= TOGETHER
        {
            run.push(next);
        } else {
            runs.push(vec![next]);
        }
    }
    runs
}
