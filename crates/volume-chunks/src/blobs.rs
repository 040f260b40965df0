//! Access to the object store that holds the packs: a directory, an S3 bucket, one of the [stores](crate::cloud) that need a
//! feature, or one behind a gateway.
//!
//! A put is durable when it returns. Requests to a remote store time out when no bytes arrive, are retried for a limited time, and then fail
//! as [`ContentError::Unreachable`]; missing and damaged objects are distinguished from an unreachable store.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutPayload, RetryConfig, collect_bytes,
};
use shunt_volume_types::backoff::jittered;
use shunt_volume_types::keepalive::USER_TIMEOUT;

use crate::ContentError;
use crate::fsync_store::FsyncObjectStore;
use crate::pack::PACK_TARGET_BYTES;

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request: enough for a pack at 1 Mbit/s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Seven eighths of a full pack. A request for at least this much of an object from its beginning is made without a range:
/// servers that send files without copying (`sendfile`) copy the bytes of a range.
const MIN_UNRANGED_BYTES: u64 = (PACK_TARGET_BYTES / 8 * 7) as u64;
/// Maximum number of superfluous bytes transferred in that case: an index, or unneeded chunks. If there were more, the range is
/// requested after all.
const MAX_SUPERFLUOUS_BYTES: u64 = 512 << 10;
/// Time for which a request is retried before the store counts as unreachable.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bound of the first pause of a node, which is always the same: the library's own would be 100 ms for all nodes.
const MAX_FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Selects the TLS library shared by this process for object stores. Must be called before one is created.
pub fn choose_tls() {
    // An error means that a provider was installed earlier; it is the same one.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}

/// Timeouts of a remote store. `allow_http` is `true` as text if its address may be without TLS.
pub(super) fn client_options(allow_http: Option<String>) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(allow_http.as_deref() == Some("true"))
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout(REQUEST_TIMEOUT)
}

/// Retries of a remote store. The library chooses each pause at random, from the first one up to twice the one before.
pub(super) fn retry_config() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: jittered(MAX_FIRST_RETRY_PAUSE), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: 5, retry_timeout: RETRY_TIMEOUT }
}

/// An object store with a key prefix.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    prefix: Key,
    /// Maximum time without any bytes received.
    silent: Option<Duration>,
    /// Requests most of an object without a range.
    takes_whole: bool,
}

/// An object, or a range of it, as a stream of parts.
pub(super) type Parts<'a> = BoxStream<'a, Result<bytes::Bytes, ContentError>>;

/// The end of an object.
pub(super) struct Tail {
    pub bytes: bytes::Bytes,
    /// Number of bytes before it.
    pub offset: u64,
}

/// A stored object, in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Key of the object.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Time since it was written, by the clock of the store.
    pub age: Duration,
}

impl Blobs {
    /// Opens a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`ContentError::Unreachable`] if it cannot be opened or created.
    pub fn directory(path: &Path) -> Result<Self, ContentError> {
        let unreachable =
            |error: &dyn std::fmt::Display| ContentError::Unreachable(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(path).map_err(|error| unreachable(&error))?;
        let path = path.canonicalize().map_err(|error| unreachable(&error))?;
        let store = FsyncObjectStore::new(&path).map_err(|error| unreachable(&error))?;
        Ok(Self { store: Arc::new(store), prefix: Key::default(), silent: None, takes_whole: false })
    }

    /// Configures a bucket with a prefix. Endpoint and credentials are read from the usual variables `AWS_ENDPOINT_URL`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`.
    ///
    /// # Errors
    /// [`ContentError::Address`] if these are invalid. No request is made yet.
    pub fn s3(bucket: &str, prefix: &str) -> Result<Self, ContentError> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Ok(endpoint) =
            std::env::var("AWS_ENDPOINT_URL_S3").or_else(|_| std::env::var("AWS_ENDPOINT_URL"))
        {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        Self::over_s3(builder, prefix)
    }

    /// Configures a bucket from a builder, for tests.
    ///
    /// # Errors
    /// As for [`s3`](Self::s3).
    pub fn over_s3(builder: AmazonS3Builder, prefix: &str) -> Result<Self, ContentError> {
        let allow_http = builder.get_config_value(&object_store::aws::AmazonS3ConfigKey::Client(
            object_store::ClientConfigKey::AllowHttp,
        ));
        let builder = builder
            .with_client_options(client_options(allow_http))
            .with_retry(retry_config())
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Not all servers support deletion of several objects at once.
            .with_disable_bulk_delete(true);
        Self::remote(|| builder.build(), prefix)
    }

    /// Wraps a store that is reached by HTTP.
    pub(super) fn remote<S: ObjectStore>(
        build: impl FnOnce() -> object_store::Result<S>,
        prefix: &str,
    ) -> Result<Self, ContentError> {
        choose_tls();
        let store = build().map_err(|error| ContentError::Address(error.to_string()))?;
        let prefix = Key::from(prefix);
        Ok(Self { store: Arc::new(store), prefix, silent: Some(USER_TIMEOUT), takes_whole: true })
    }

    /// Wraps another object store whose completed puts are durable, such as a gateway's. It detects stalled transfers itself.
    pub fn over(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, prefix: Key::default(), silent: None, takes_whole: false }
    }

    /// Returns the objects below the prefix, for a gateway to serve.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::new(object_store::prefix::PrefixStore::new(self.store.clone(), self.prefix.clone()))
    }

    fn key(&self, key: &str) -> Key {
        self.prefix.parts().chain(Key::from(key).parts()).collect()
    }

    /// Stores a new object, which is durable when this returns.
    pub async fn put(&self, key: &str, bytes: Vec<u8>) -> Result<(), ContentError> {
        let at = self.key(key);
        match self.store.put_opts(&at, PutPayload::from(bytes), PutMode::Create.into()).await {
            Ok(_) => {}
            // Keys are random: an earlier attempt of this put succeeded and its answer was lost.
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(
                object_store::Error::PermissionDenied { source, .. }
                | object_store::Error::Unauthenticated { source, .. },
            ) => {
                return Err(ContentError::Denied(source.to_string()));
            }
            // The bucket does not exist; some servers report this for unknown clients.
            Err(error) => return Err(ContentError::Unreachable(error.to_string())),
        }
        Ok(())
    }

    /// Reads a range of an object.
    pub(super) async fn get(&self, key: &str, range: Range<u64>) -> Result<bytes::Bytes, ContentError> {
        let length = range.end.saturating_sub(range.start);
        collect_bytes(self.parts(key, range).await?, Some(length)).await
    }

    /// Reads a range of an object as a stream, which is shorter or fails if the object ends before.
    pub(super) async fn parts(&self, key: &str, range: Range<u64>) -> Result<Parts<'_>, ContentError> {
        if range.is_empty() {
            return Err(ContentError::Damaged(format!("{key}: empty range")));
        }
        let at = self.key(key);
        if self.takes_whole && range.start == 0 && range.end >= MIN_UNRANGED_BYTES {
            // Probably most of the object.
            let whole = self.begin_at(&at, None).await?;
            if whole.meta.size < range.end {
                return Err(ContentError::Damaged(format!("{key} is truncated")));
            }
            if whole.meta.size - range.end <= MAX_SUPERFLUOUS_BYTES {
                // Read to the end: a connection abandoned before cannot be reused.
                let mut left = range.end;
                let within = self.parts_of(whole).map_ok(move |mut part| {
                    part.truncate(left.min(part.len() as u64) as usize);
                    left -= part.len() as u64;
                    part
                });
                return Ok(within.boxed());
            }
        }
        Ok(self.parts_of(self.begin_at(&at, Some(GetRange::Bounded(range))).await?))
    }

    /// Reads at most `max_bytes` bytes of an object's end.
    pub(super) async fn get_end(&self, key: &str, max_bytes: u64) -> Result<Tail, ContentError> {
        let key = self.key(key);
        let size = self.in_time(self.store.head(&key)).await?.size;
        let offset = size.saturating_sub(max_bytes);
        let bytes = self.bytes(&key, offset..size).await?;
        Ok(Tail { bytes, offset })
    }

    async fn bytes(&self, key: &Key, range: Range<u64>) -> Result<bytes::Bytes, ContentError> {
        self.end(self.begin_at(key, Some(GetRange::Bounded(range))).await?).await
    }

    /// Returns the metadata of an object.
    pub async fn stat(&self, key: &str) -> Result<ObjectMeta, ContentError> {
        self.in_time(self.store.head(&self.key(key))).await
    }

    /// Requests an object, or a range of it; returns when the response begins.
    pub async fn begin(&self, key: &str, range: Option<Range<u64>>) -> Result<GetResult, ContentError> {
        self.begin_at(&self.key(key), range.map(GetRange::Bounded)).await
    }

    async fn begin_at(&self, key: &Key, range: Option<GetRange>) -> Result<GetResult, ContentError> {
        let options = GetOptions { range, ..GetOptions::default() };
        self.in_time(self.store.get_opts(key, options)).await
    }

    /// Reads the body of a response.
    pub async fn end(&self, got: GetResult) -> Result<bytes::Bytes, ContentError> {
        let length = got.range.end.saturating_sub(got.range.start);
        collect_bytes(self.parts_of(got), Some(length)).await
    }

    fn parts_of(&self, got: GetResult) -> Parts<'_> {
        if matches!(got.payload, GetResultPayload::File(..)) {
            return futures::stream::once(async { got.bytes().await.map_err(fault) }).boxed();
        }
        let parts = futures::stream::try_unfold(got.into_stream(), |mut stream| async {
            let part = self.in_time(stream.try_next()).await?;
            Ok(part.map(|part| (part, stream)))
        });
        parts.boxed()
    }

    async fn in_time<T>(
        &self,
        what: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ContentError> {
        match self.silent {
            Some(limit) => tokio::time::timeout(limit, what).await.map_err(|_| {
                ContentError::Unreachable(format!("no response from the object store within {limit:?}"))
            })?,
            None => what.await,
        }
        .map_err(fault)
    }

    /// Deletes an object. One that does not exist counts as deleted.
    pub async fn delete(&self, key: &str) -> Result<(), ContentError> {
        match self.store.delete(&self.key(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(fault(error)),
        }
    }

    /// Lists all objects below a key, in no order; calls `each` with them as they arrive.
    pub async fn list(&self, below: &str, mut each: impl FnMut(Blob)) -> Result<(), ContentError> {
        let prefix = self.key(below);
        let depth = self.prefix.parts().count();
        let now = std::time::SystemTime::now();
        let mut found = self.store.list(Some(&prefix)).map_err(fault).boxed();
        while let Some(meta) = found.try_next().await? {
            let key: Key = meta.location.parts().skip(depth).collect();
            let age = now.duration_since(meta.last_modified.into()).unwrap_or_default();
            each(Blob { key: key.to_string(), size: meta.size, age });
        }
        Ok(())
    }
}

/// Maps an error of the object store to a [`ContentError`].
pub fn fault(error: object_store::Error) -> ContentError {
    match error {
        object_store::Error::NotFound { path, .. } => ContentError::Missing(path),
        // A range outside the object: the object is not what was stored.
        error => match error.to_string() {
            message if RANGE_ERROR_TEXTS.iter().any(|text| message.contains(text)) => {
                ContentError::Damaged(message)
            }
            message => ContentError::Unreachable(message),
        },
    }
}

/// Messages of the library for an invalid range, for buckets and directories. `object_store` exports no error type for it, and
/// gateways pass on messages.
const RANGE_ERROR_TEXTS: [&str; 2] = ["status code: 416", "Requested range was invalid"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_key_are_no_status() {
        let error = |message: &str| object_store::Error::Generic { store: "S3", source: message.into() };
        let away = "Error performing GET http://s3/bucket/packs/4f/02c416d4 in 939.7804ms - \
            HTTP error: error sending request";
        assert!(matches!(fault(error(away)), ContentError::Unreachable(_)));
    }

    #[tokio::test]
    async fn most_of_an_object_comes_as_its_range_would() {
        let store = Arc::new(object_store::memory::InMemory::new());
        let whole = Blobs { takes_whole: true, ..Blobs::over(store) };
        for spare in [0, 1, MAX_SUPERFLUOUS_BYTES, MAX_SUPERFLUOUS_BYTES + 1] {
            let bytes: Vec<u8> = (0..MIN_UNRANGED_BYTES + spare).map(|n| (n / 251) as u8).collect();
            let key = format!("packs/{spare}");
            whole.put(&key, bytes.clone()).await.unwrap();
            for range in [0..MIN_UNRANGED_BYTES - 1, 0..MIN_UNRANGED_BYTES, 1..MIN_UNRANGED_BYTES] {
                let got = whole.get(&key, range.clone()).await.unwrap();
                assert!(got == bytes[range.start as usize..range.end as usize], "{spare} {range:?}");
            }
        }
        let error = whole.get("packs/away", 0..MIN_UNRANGED_BYTES).await.unwrap_err();
        assert!(matches!(error, ContentError::Missing(_)), "{error:?}");
        let error = whole.get("packs/0", 0..MIN_UNRANGED_BYTES + 1).await.unwrap_err();
        assert!(matches!(error, ContentError::Damaged(_)), "{error:?}");
    }

    #[tokio::test]
    async fn missing_object_is_not_reported_as_unreachable_store() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::directory(dir.path()).unwrap();
        blobs.put("packs/file", b"text".to_vec()).await.unwrap();
        blobs.put("packs/none", Vec::new()).await.unwrap();
        // A gateway passes on the message.
        let passed_on = |error: ContentError| {
            fault(object_store::Error::Generic { store: "gateway", source: error.to_string().into() })
        };
        for (key, range) in [
            ("packs/none", 0..1),
            ("packs/file", 4..9),
            ("packs/file", u64::MAX - 1..u64::MAX),
            ("packs/file", u64::MAX..u64::MAX),
        ] {
            let error = blobs.get(key, range.clone()).await.unwrap_err();
            assert!(matches!(error, ContentError::Damaged(_)), "{key} {range:?}: {error:?}");
            if !range.is_empty() {
                assert!(matches!(passed_on(error), ContentError::Damaged(_)), "{key} {range:?}");
            }
        }
        for key in ["packs/away", "packs", "packs/file/below", &format!("packs/{}", "x".repeat(300))] {
            let error = blobs.get(key, 0..1).await.unwrap_err();
            assert!(matches!(error, ContentError::Missing(_)), "{key}: {error:?}");
        }
        assert_eq!(blobs.get("packs/file", 2..9).await.unwrap(), &b"xt"[..]);
    }
}
