//! A directory of a WebDAV server (RFC 4918) as an object store.
//!
//! It wraps [`HttpStore`], which neither creates an object only if there is none, nor lists directories of servers that refuse
//! `Depth: infinity`, as most do. A new object is looked for before it is put: two nodes that put the same key at the same moment
//! may both succeed. Keys of packs are random, so this concerns only two volumes that are created in one directory at once. A put
//! is as durable as the server makes it.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, HeaderMap, HeaderValue, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use reqwest::Url;

use crate::ContentError;
use crate::blobs::{Blobs, client_options, retry_config};

/// User and password of a server.
pub(super) type Login = (String, String);

/// The login that the environment gives.
pub(super) fn login() -> Option<Login> {
    let user = std::env::var("SHUNT_HTTP_USER").ok()?;
    Some((user, std::env::var("SHUNT_HTTP_PASSWORD").unwrap_or_default()))
}

/// The directory at a URL.
pub(super) fn over(url: &str, login: Option<Login>) -> std::result::Result<Blobs, ContentError> {
    let wrong =
        |why: &dyn std::fmt::Display| ContentError::Address(format!("cannot use address `{url}`: {why}"));
    let mut root = Url::parse(url).map_err(|error| wrong(&error))?;
    // The library lists objects by their path from the root of the server.
    let prefix = Key::from_url_path(root.path()).map_err(|error| wrong(&error))?;
    root.set_path("/");
    let mut client = client_options(Some((root.scheme() == "http").to_string()));
    if let Some((user, password)) = login {
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let mut value = HeaderValue::try_from(format!("Basic {text}")).map_err(|error| wrong(&error))?;
        value.set_sensitive(true);
        client = client.with_default_headers(HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, value)]));
    }
    let builder = HttpBuilder::new().with_url(root).with_client_options(client).with_retry(retry_config());
    Blobs::remote(|| Ok(WebDav(Arc::new(builder.build()?))), prefix.as_ref())
}

#[derive(Debug)]
struct WebDav(Arc<HttpStore>);

impl std::fmt::Display for WebDav {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebDAV")
    }
}

#[async_trait]
impl ObjectStore for WebDav {
    async fn put_opts(&self, at: &Key, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if options.mode != PutMode::Create {
            return self.0.put_opts(at, payload, options).await;
        }
        match self.0.head(at).await {
            Ok(_) => Err(object_store::Error::AlreadyExists {
                path: at.to_string(),
                source: "the server has such an object".into(),
            }),
            Err(object_store::Error::NotFound { .. }) => {
                self.0.put_opts(at, payload, PutOptions { mode: PutMode::Overwrite, ..options }).await
            }
            Err(error) => Err(error),
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Key, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(at, options).await
    }

    fn delete_stream(&self, these: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        self.0.delete_stream(these)
    }

    /// Lists directory by directory.
    fn list(&self, below: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, left) = (self.0.clone(), vec![below.cloned()]);
        let directories = stream::try_unfold((store, left), |(store, mut left)| async move {
            let Some(directory) = left.pop() else { return Ok::<_, object_store::Error>(None) };
            let found = store.list_with_delimiter(directory.as_ref()).await?;
            left.extend(found.common_prefixes.into_iter().map(Some));
            Ok(Some((stream::iter(found.objects.into_iter().map(Ok)), (store, left))))
        });
        directories.try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, below: Option<&Key>) -> Result<ListResult> {
        self.0.list_with_delimiter(below).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
