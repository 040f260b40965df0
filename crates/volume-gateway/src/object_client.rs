//! The client half of the gateway protocol, as an object store. It shares the connections of the metadata
//! [client](super::client).

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Key;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use super::connections::{Connections, RequestError};
use super::protocol::{BlobStat, Failure, Request, Response};

/// The contents behind a gateway, as an object store. Objects are small enough to be put in one request, and are never copied
/// or overwritten: putting an object that exists leaves it unchanged.
#[derive(Clone)]
pub struct GatewayObjects(Arc<Connections>);

impl GatewayObjects {
    pub(super) fn new(connections: Arc<Connections>) -> Self {
        Self(connections)
    }

    async fn request(&self, request: Request, body: &[u8]) -> Result<(Response, Vec<u8>)> {
        let key = match &request {
            Request::PutBlob { key, .. } | Request::GetBlob { key, .. } | Request::StatBlob { key } => {
                key.clone()
            }
            _ => String::new(),
        };
        let generic = |source| Error::Generic { store: "gateway", source };
        self.0.request(&request, body).await.map_err(|error| match error {
            RequestError::Failed(Failure::NotFound) => {
                Error::NotFound { path: key, source: "not found".into() }
            }

            RequestError::Failed(Failure::Denied(why) | Failure::RoleRequired { reason: why, .. }) => {
                Error::PermissionDenied { path: key, source: why.into() }
            }
            RequestError::Failed(Failure::Unreachable(why) | Failure::Damaged(why) | Failure::Other(why)) => {
                generic(why.into())
            }
            RequestError::Failed(failure @ (Failure::Forgotten(_) | Failure::NoVolume)) => {
                generic(format!("{failure:?}").into())
            }
            RequestError::Io(error) => generic(Box::new(error)),
        })
    }
}

impl GatewayObjects {
    fn list_behind(
        &self,
        prefix: Option<&Key>,
        after: Option<&Key>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (blobs, prefix) = (self.clone(), prefix.map(Key::to_string));
        // `Some(None)`: from the beginning.
        stream::try_unfold(Some(after.map(Key::to_string)), move |position: Option<Option<String>>| {
            let (blobs, prefix) = (blobs.clone(), prefix.clone());
            async move {
                let Some(after) = position else { return Ok(None) };
                let (response, _) = blobs.request(Request::ListBlobs { prefix, after }, &[]).await?;
                let Response::Blobs { found, more } = response else { return Err(mismatched_response()) };
                let next = found.last().filter(|_| more).map(|last| Some(last.key.clone()));
                Ok(Some((stream::iter(found.into_iter().map(meta)), next)))
            }
        })
        .try_flatten()
        .boxed()
    }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "gateway".to_owned() }
}

fn mismatched_response() -> Error {
    Error::Generic { store: "gateway", source: "unexpected response from the gateway".into() }
}

fn meta(stat: BlobStat) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: Key::parse(stat.key)?,
        last_modified: DateTime::<Utc>::from_timestamp(stat.modified, 0).unwrap_or_default(),
        size: stat.size,
        e_tag: None,
        version: None,
    })
}

fn result(payload: GetResultPayload, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    GetResult { payload, meta, range, attributes: Attributes::new(), extensions: Extensions::default() }
}

impl std::fmt::Debug for GatewayObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GatewayObjects")
    }
}

impl std::fmt::Display for GatewayObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("gateway")
    }
}

#[async_trait]
impl ObjectStore for GatewayObjects {
    async fn put_opts(&self, location: &Key, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if !matches!(options.mode, PutMode::Create) {
            return Err(not_implemented("overwrite an object"));
        }
        let body: Bytes = payload.into();
        let request = Request::PutBlob { key: location.to_string(), length: body.len() as u64 };
        self.request(request, &body).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Extensions::default() })
    }

    async fn put_multipart_opts(
        &self,
        _location: &Key,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(not_implemented("put_multipart"))
    }

    async fn get_opts(&self, location: &Key, options: GetOptions) -> Result<GetResult> {
        let key = location.to_string();
        if options.head {
            let (Response::Stat(stat), _) = self.request(Request::StatBlob { key }, &[]).await? else {
                return Err(mismatched_response());
            };
            let meta = meta(stat)?;
            let payload = GetResultPayload::Stream(stream::empty().boxed());
            let range = 0..meta.size;
            return Ok(result(payload, meta, range));
        }
        let range = match options.range {
            None => None,
            Some(GetRange::Bounded(Range { start, end })) => Some((start, end)),
            Some(GetRange::Offset(start)) => Some((start, self.head(location).await?.size)),
            Some(GetRange::Suffix(length)) => {
                let size = self.head(location).await?.size;
                Some((size.saturating_sub(length), size))
            }
        };
        let (response, bytes) = self.request(Request::GetBlob { key, range }, &[]).await?;
        let Response::Blob { stat, start, .. } = response else { return Err(mismatched_response()) };
        let range = start..start.saturating_add(bytes.len() as u64);
        let payload = GetResultPayload::Stream(stream::once(async move { Ok(Bytes::from(bytes)) }).boxed());
        Ok(result(payload, meta(stat)?, range))
    }

    fn delete_stream(&self, these: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        let blobs = self.clone();
        let delete = move |location: Result<Key>| {
            let blobs = blobs.clone();
            async move {
                let location = location?;
                blobs.request(Request::DeleteBlob { key: location.to_string() }, &[]).await?;
                Ok(location)
            }
        };
        these.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_behind(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Key>, after: &Key) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_behind(prefix, Some(after))
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Key>) -> Result<ListResult> {
        Err(not_implemented("list_with_delimiter"))
    }

    async fn copy_opts(&self, _from: &Key, _to: &Key, _options: CopyOptions) -> Result<()> {
        Err(not_implemented("copy"))
    }
}
