//! An object store behind an unreliable network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkMode {
    Open,
    Cut,
    /// The next request fails.
    CutOnce,
    /// Requests arrive, and their replies are lost.
    Silent,
    /// Every second request is lost, and the others are answered late.
    Uneven(bool),
    /// Every second reply breaks off, and the others arrive slowly.
    Broken(bool),
}

#[derive(Debug)]
pub struct FaultyObjectStore {
    pub objects: Arc<dyn ObjectStore>,
    pub mode: Mutex<NetworkMode>,
    /// Bytes that were requested and delivered.
    pub fetched_bytes: AtomicU64,
}

impl FaultyObjectStore {
    pub fn over(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, mode: Mutex::new(NetworkMode::Open), fetched_bytes: AtomicU64::new(0) }
    }

    fn pass(&self) -> Result<Duration> {
        let mut mode = self.mode.lock();
        match *mode {
            NetworkMode::Uneven(is_lost) => {
                *mode = NetworkMode::Uneven(!is_lost);
                if is_lost { Err(lost()) } else { Ok(REPLY_DELAY) }
            }
            NetworkMode::Cut => Err(lost()),
            NetworkMode::CutOnce => {
                *mode = NetworkMode::Open;
                Err(lost())
            }
            _ => Ok(Duration::ZERO),
        }
    }
}

pub const REPLY_DELAY: Duration = Duration::from_millis(300);

/// Length of a network read, which cuts the data at arbitrary offsets.
const RESPONSE_PART_BYTES: usize = 200_001;
/// Number of parts before a reply breaks off.
const PARTS_BEFORE_FAILURE: usize = 12;

fn in_parts(bytes: Bytes) -> Vec<Result<Bytes>> {
    let part = |at| bytes.slice(at..bytes.len().min(at + RESPONSE_PART_BYTES));
    (0..bytes.len()).step_by(RESPONSE_PART_BYTES).map(|at| Ok(part(at))).collect()
}

fn lost() -> Error {
    Error::Generic { store: "objects", source: "the network is bad".into() }
}

impl std::fmt::Display for FaultyObjectStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.objects.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for FaultyObjectStore {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.pass()?;
        let done = self.objects.put_opts(at, payload, options).await?;
        if *self.mode.lock() == NetworkMode::Silent { Err(lost()) } else { Ok(done) }
    }

    async fn put_multipart_opts(
        &self,
        _at: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("objects are put as a whole")
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        tokio::time::sleep(self.pass()?).await;
        let got = self.objects.get_opts(at, options).await?;
        self.fetched_bytes.fetch_add(got.range.end - got.range.start, Ordering::Relaxed);
        let (meta, range) = (got.meta.clone(), got.range.clone());
        let (attributes, extensions) = (got.attributes.clone(), got.extensions.clone());
        let mut parts = in_parts(got.bytes().await?);
        let mut pause = Duration::ZERO;
        if let NetworkMode::Broken(breaks) = &mut *self.mode.lock() {
            match *breaks {
                true => parts = parts.into_iter().take(PARTS_BEFORE_FAILURE).chain([Err(lost())]).collect(),
                false => pause = REPLY_DELAY / 20,
            }
            *breaks = !*breaks;
        }
        let parts = stream::iter(parts).then(move |part| async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            part
        });
        let payload = GetResultPayload::Stream(parts.boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(&self, these: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(these)
    }

    fn list(&self, below: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(below)
    }

    async fn list_with_delimiter(&self, below: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(below).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        unimplemented!("nobody copies objects")
    }
}
