//! A directory as an object store whose completed puts are durable. It wraps [`LocalFileSystem`], which renames a file into place
//! without an fsync, and fsyncs the file and all directories on its path after each put.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use shunt_volume_types::failpoint::{Failpoint, point};

/// Wraps [`LocalFileSystem`], which renames a file into place without an fsync.
#[derive(Debug)]
pub(super) struct FsyncObjectStore {
    store: LocalFileSystem,
    root: Arc<Path>,
}

impl FsyncObjectStore {
    pub fn new(root: &Path) -> Result<Self> {
        Ok(Self { store: LocalFileSystem::new_with_prefix(root)?, root: root.into() })
    }
}

impl std::fmt::Display for FsyncObjectStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

/// Fsyncs a file and all directories on its path.
fn fsync_with_parents(root: &Path, path: &Path) -> std::io::Result<()> {
    point(Failpoint::PackStored)?;
    File::open(path)?.sync_all()?;
    let mut at = path.parent();
    while let Some(directory) = at {
        File::open(directory)?.sync_all()?;
        if directory == root {
            break;
        }
        at = directory.parent();
    }
    Ok(())
}

/// Reports whether the path is invalid: no such file can exist, independent of the content of the directory.
fn is_invalid_path(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::InvalidFilename))
}

fn not_implemented(operation: &str) -> object_store::Error {
    object_store::Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "directory".to_owned(),
    }
}

#[async_trait]
impl ObjectStore for FsyncObjectStore {
    async fn put_opts(&self, at: &Key, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let done = self.store.put_opts(at, payload, options).await;
        // Also an existing object: the process that put it may have ended before the fsync.
        if matches!(done, Ok(_) | Err(object_store::Error::AlreadyExists { .. })) {
            let (root, path) = (self.root.clone(), self.root.join(at.as_ref()));
            let failed = |source: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic {
                store: "directory",
                source,
            };
            tokio::task::spawn_blocking(move || fsync_with_parents(&root, &path))
                .await
                .map_err(|error| failed(error.into()))?
                .map_err(|error| failed(error.into()))?;
        }
        done
    }

    async fn put_multipart_opts(
        &self,
        _at: &Key,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // Packs are put in one request.
        Err(not_implemented("put_multipart"))
    }

    async fn get_opts(&self, at: &Key, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(at, options).await.map_err(|error| match is_invalid_path(&error) {
            true => object_store::Error::NotFound { path: at.to_string(), source: error.into() },
            false => error,
        })
    }

    fn delete_stream(&self, these: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        self.store.delete_stream(these)
    }

    fn list(&self, below: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        // An object deleted during the listing is skipped.
        let is_there =
            |found: &Result<ObjectMeta>| !matches!(found, Err(object_store::Error::NotFound { .. }));
        self.store.list(below).filter(move |found| std::future::ready(is_there(found))).boxed()
    }

    async fn list_with_delimiter(&self, below: Option<&Key>) -> Result<ListResult> {
        self.store.list_with_delimiter(below).await
    }

    async fn copy_opts(&self, _from: &Key, _to: &Key, _options: CopyOptions) -> Result<()> {
        Err(not_implemented("copy"))
    }
}
