//! A volume: its descriptor, and its two stores once they are open. [`crate::open`] opens and creates one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::address::DataAddress;
use crate::chunks::{ChunkKeys, ContentStore};
use crate::crypto::VolumeKey;
use crate::gateway::ServedVolume;
use crate::id::VolumeName;
use crate::object::Time;
use crate::store::admin::StoreAdmin;
use crate::store::descriptor_format::{ENCRYPTED_NAMES, PLAIN_NAMES, SEALED_LOG};
use crate::store::seal::{Sealed, Sealer};
use crate::store::{EncryptedStore, MetaStore, MetadataCipher, StoreError, codec};

/// The key that was given is not the one that the volume needs.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The volume is encrypted, and no key was given.
    #[error("volume {0} is encrypted: give its key with --key-file FILE")]
    Missing(VolumeName),
    /// The volume is encrypted with another key.
    #[error("wrong key for volume {0}: give the key that it was created with")]
    Wrong(VolumeName),
    /// The volume is not encrypted, and a key was given.
    #[error("volume {0} is not encrypted: omit the key")]
    NotEncrypted(VolumeName),
}

/// The descriptor of a volume: stored with its metadata, and read before the volume is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDescriptor {
    /// The name that users give.
    pub name: VolumeName,
    /// Unique, and never changed, even if the volume is renamed.
    pub id: u128,
    /// The time of its creation, by the clock of the node that created it.
    pub made: Time,
    /// The store of its contents.
    pub data: DataAddress,
    /// The key of the hash that names chunks, unless the volume is encrypted: then it is derived from the volume's key.
    pub names: [u8; 32],
    /// A hash of the key of an encrypted volume, to recognise a wrong key.
    pub mark: Option<[u8; 32]>,
    /// Names are encrypted before they are stored. Not stored as a field: it follows from the format number.
    #[serde(skip)]
    pub hides_names: bool,
    /// The first sealed entry of its log; `None` if the log is not sealed.
    #[serde(skip)]
    pub sealed: Option<Sealed>,
}

impl VolumeDescriptor {
    /// The stored form, which [`from_bytes`](Self::from_bytes) reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let format = match (self.hides_names, self.sealed) {
            (_, Some(_)) => SEALED_LOG,
            (true, None) => ENCRYPTED_NAMES,
            (false, None) => PLAIN_NAMES,
        };
        let sealed = self.sealed.as_ref().map(codec::encode).unwrap_or_default();
        [&format.to_le_bytes()[..], &codec::encode(self), &sealed].concat()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Damaged`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let damaged = || StoreError::Damaged("the volume descriptor is truncated".into());
        let (format, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
        match u32::from_le_bytes(*format) {
            format @ (PLAIN_NAMES | ENCRYPTED_NAMES) => {
                let described: Self = codec::decode("the volume descriptor", rest)?;
                Ok(Self { hides_names: format == ENCRYPTED_NAMES, ..described })
            }
            SEALED_LOG => {
                let (described, sealed): (Self, Sealed) = codec::decode("the volume descriptor", rest)?;
                Ok(Self { hides_names: true, sealed: Some(sealed), ..described })
            }
            found => Err(StoreError::Format {
                found: found.to_string(),
                known: SEALED_LOG,
                advice: "use the version of shunt that created it",
            }),
        }
    }

    fn mark_of(&self, secret: &VolumeKey) -> [u8; 32] {
        if self.sealed.is_some() { secret.mark_of_sealed() } else { secret.mark() }
    }

    /// The keys of its chunks.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn keys(&self, secret: Option<&VolumeKey>) -> Result<ChunkKeys, KeyError> {
        match (self.mark, secret) {
            (None, None) => Ok(ChunkKeys::open(self.names)),
            (Some(mark), Some(secret)) if self.mark_of(secret) == mark => Ok(ChunkKeys::sealed(secret)),
            (None, Some(_)) => Err(KeyError::NotEncrypted(self.name.clone())),
            (Some(_), None) => Err(KeyError::Missing(self.name.clone())),
            _ => Err(KeyError::Wrong(self.name.clone())),
        }
    }
}

/// An open volume: metadata store, object store and descriptor.
#[derive(Clone)]
pub struct Volume {
    /// The metadata.
    pub meta: Arc<dyn MetaStore>,
    /// The privileged half of the metadata store; `None` through a gateway.
    pub(crate) admin: Option<Arc<dyn StoreAdmin>>,
    /// The contents of files.
    pub content: ContentStore,
    /// The descriptor that its metadata store keeps.
    pub described: VolumeDescriptor,
}

impl Volume {
    /// Decrypts names with the key, if the volume encrypts them, and verifies the log if it is sealed.
    ///
    /// # Errors
    /// [`StoreError::Tampered`] where the descriptor's seal was not made with this key.
    pub(crate) fn decrypted_by(mut self, secret: Option<&VolumeKey>) -> Result<Self, StoreError> {
        if let Some(secret) = secret.filter(|_| self.described.hides_names) {
            let encrypted = EncryptedStore::new(self.meta, MetadataCipher::new(secret));
            self.meta = Arc::new(match self.described.sealed {
                Some(sealed) => encrypted.sealed(Sealer::new(secret, self.described.id, sealed)?),
                None => encrypted,
            });
        }
        Ok(self)
    }

    /// The privileged half of the metadata store, which sees names as they are stored: encrypted where the volume is.
    ///
    /// # Errors
    /// [`StoreError::Denied`] through a gateway.
    pub fn admin(&self) -> Result<&dyn StoreAdmin, StoreError> {
        let why = "not possible through a gateway: run the command where the stores of the volume are";
        self.admin.as_deref().ok_or_else(|| StoreError::Denied(why.to_owned()))
    }
}

impl From<&Volume> for ServedVolume {
    fn from(volume: &Volume) -> Self {
        Self {
            name: volume.described.name.clone(),
            descriptor: volume.described.to_bytes(),
            hides_names: volume.described.hides_names,
            meta: volume.meta.clone(),
            blobs: volume.content.blobs().clone(),
        }
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("name", &self.described.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_a_newer_format_or_cut_short_is_refused() {
        let mut described = [4u32.to_le_bytes().to_vec(), vec![0; 9]].concat();
        assert!(matches!(VolumeDescriptor::from_bytes(&described), Err(StoreError::Format { .. })));
        described[0] = 1;
        assert!(matches!(VolumeDescriptor::from_bytes(&described), Err(StoreError::Damaged(_))));
    }
}
