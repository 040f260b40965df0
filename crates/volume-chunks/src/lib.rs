//! Contents of files: split into chunks, named by keyed hashes, and stored in packs.
//!
//! Calls block, and must not be made by a task of an asynchronous runtime.

mod bandwidth;
mod basis_source;
mod blobs;
mod chunk_decoder;
mod chunk_keys;
mod chunker;
mod cloud;
mod compression;
mod download;
mod fsync_store;
mod hole;
mod indirect;
mod pack;
pub mod priority;
mod read;
mod repack;
mod upload;
mod verify;

use std::sync::Arc;

pub use bandwidth::{BandwidthEstimator, LinkQuality};
pub use basis_source::BasisSource;
pub use blobs::fault;
pub use blobs::{Blob, Blobs, choose_tls};
pub use chunk_keys::ChunkKeys;
pub(crate) use chunker::Chunking;
pub use read::{Progress, segments_in};
pub use repack::{NewPack, StoredChunk, repack};
pub use upload::{Upload, UploadedContent};

use shunt_volume_store::{MetaStore, StoreError};
use shunt_volume_types::object::{Content, Layout};
use shunt_volume_types::runtime::runtime;

/// An error of transferring contents.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The object store cannot be reached, or denies reading.
    #[error("the object store cannot be reached: {0}")]
    Unreachable(String),
    /// The object store denies writing.
    #[error("the object store denies writing: {0}")]
    Denied(String),
    /// Its address or configuration is invalid.
    #[error("{0}")]
    Address(String),
    /// The object store lacks a chunk that the metadata reference.
    #[error("missing from the object store: {0}")]
    Missing(String),
    /// A stored chunk does not have the bytes that its name implies.
    #[error("corrupt data in the object store: {0}")]
    Damaged(String),
    /// The file has more chunks than a content can reference: 16 TiB.
    #[error("the file is too large: a volume holds files of up to 16 TiB")]
    TooLarge,
    /// The local file cannot be read or written.
    #[error(transparent)]
    Io(std::io::Error),
    /// The metadata store cannot locate chunks.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ContentError {
    /// Reports whether the error may be temporary.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Store(StoreError::Unreachable(_)))
    }
}

/// The contents of a volume.
#[derive(Debug, Clone)]
pub struct ContentStore {
    blobs: Blobs,
    keys: Arc<ChunkKeys>,
    link: Arc<BandwidthEstimator>,
}

impl ContentStore {
    /// Combines an object store with the keys of the volume.
    pub fn new(blobs: Blobs, keys: ChunkKeys) -> Self {
        Self { blobs, keys: Arc::new(keys), link: Arc::default() }
    }

    /// Returns the object store.
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Returns the bandwidth estimator of the link to the object store.
    pub fn link(&self) -> &BandwidthEstimator {
        &self.link
    }

    /// Checks that the object store is writable, by writing and deleting an object.
    ///
    /// # Errors
    /// [`ContentError`] for a failed request, such as [`ContentError::Denied`].
    pub fn probe(&self) -> Result<(), ContentError> {
        let key = format!("probe/{:032x}", rand::random::<u128>());
        runtime().block_on(async {
            self.blobs.put(&key, b"can be stored".to_vec()).await?;
            self.blobs.delete(&key).await
        })
    }

    /// Reports whether contents are encrypted.
    pub fn encrypts(&self) -> bool {
        self.keys.encrypts()
    }

    /// Returns the hasher for the digest of a content, which covers all of its bytes.
    pub fn hasher(&self) -> blake3::Hasher {
        self.keys.hasher()
    }

    /// Begins an upload of files: see [`Upload`].
    pub fn upload<'a>(&'a self, meta: &'a dyn MetaStore) -> Upload<'a> {
        Upload::new(self, meta)
    }

    /// Returns the bytes of a content stored inline in the metadata; `None` for other contents.
    ///
    /// # Errors
    /// [`ContentError::Damaged`] if the size does not match, or if the volume is encrypted: holders of its key store no bytes
    /// inline, others could.
    pub fn inline<'c>(&self, content: &'c Content) -> Result<Option<&'c [u8]>, ContentError> {
        let Layout::Inline(bytes) = &content.layout else { return Ok(None) };
        if bytes.len() as u64 != content.size {
            return Err(ContentError::Damaged("inline content does not have the recorded size".into()));
        }
        if self.keys.encrypts() && !bytes.is_empty() {
            return Err(ContentError::Damaged(
                "content that was not encrypted with the key of the volume".into(),
            ));
        }
        Ok(Some(bytes))
    }
}
