//! What files hold: cut into pieces, named by what is in them, stored in packs.
//!
//! Calls block, and must not be made by a task of an asynchronous runtime.

mod bandwidth;
mod basis_source;
mod blobs;
mod chunk_decoder;
mod chunk_keys;
mod chunker;
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
pub(crate) use blobs::fault;
pub use blobs::{Blob, Blobs, choose_tls};
pub use chunk_keys::ChunkKeys;
pub use chunker::{Chunking, FIXED, MAX_CONTENT_DEFINED_BYTES};
pub use read::{Progress, touched};
pub(crate) use repack::{Carried, Repacked, repack};
pub use upload::{Upload, UploadedContent};

use crate::object::{Content, Layout};
use crate::runtime::runtime;
use crate::store::{MetaStore, StoreError};

/// Why bytes did not come or go.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The store cannot be reached, or does not let us read.
    #[error("the contents cannot be reached: {0}")]
    Unreachable(String),
    /// It is there, and lets us store nothing.
    #[error("nothing may be stored: {0}")]
    Denied(String),
    /// It says nothing sensible where it is.
    #[error("{0}")]
    Address(String),
    /// It does not have what the metadata speak of.
    #[error("a piece is not in the store: {0}")]
    Missing(String),
    /// What it has are other bytes.
    #[error("a piece in the store is damaged: {0}")]
    Damaged(String),
    /// A file of more pieces than a content can name: 16 TiB.
    #[error("the file is too large for a volume")]
    TooLarge,
    /// The file here cannot be read or written.
    #[error(transparent)]
    Io(std::io::Error),
    /// Where pieces are cannot be told.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ContentError {
    /// Whether it may come back by itself.
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
    /// Of what is stored somewhere, by the keys of the volume.
    pub fn new(blobs: Blobs, keys: ChunkKeys) -> Self {
        Self { blobs, keys: Arc::new(keys), link: Arc::default() }
    }

    /// Where it is stored.
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// How good the way there is.
    pub fn link(&self) -> &BandwidthEstimator {
        &self.link
    }

    /// Whether something can be stored there at all.
    ///
    /// # Errors
    /// Why not.
    pub fn probe(&self) -> Result<(), ContentError> {
        let key = format!("probe/{:032x}", rand::random::<u128>());
        runtime().block_on(async {
            self.blobs.put(&key, b"can be stored".to_vec()).await?;
            self.blobs.delete(&key).await
        })
    }

    /// Whether contents are encrypted: the stores are not trusted with them.
    pub fn encrypts(&self) -> bool {
        self.keys.encrypts()
    }

    /// What gives a content its digest: all of its bytes go in.
    pub fn hasher(&self) -> blake3::Hasher {
        self.keys.hasher()
    }

    /// Begins to send files: see [`Upload`].
    pub fn upload<'a>(&'a self, meta: &'a dyn MetaStore) -> Upload<'a> {
        Upload::new(self, meta)
    }

    /// The bytes of a content that is with the metadata; `None` of one that is not.
    ///
    /// # Errors
    /// [`ContentError::Damaged`] where the volume is encrypted: who has its key puts no bytes there, who has not may.
    pub fn inline<'c>(&self, content: &'c Content) -> Result<Option<&'c [u8]>, ContentError> {
        let Layout::Inline(bytes) = &content.layout else { return Ok(None) };
        if bytes.len() as u64 != content.size {
            return Err(ContentError::Damaged("content of another size than said".into()));
        }
        if self.keys.encrypts() && !bytes.is_empty() {
            return Err(ContentError::Damaged(
                "content that was not encrypted by the key of the volume".into(),
            ));
        }
        Ok(Some(bytes))
    }
}
