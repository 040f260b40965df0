//! Encoding of values stored as blobs: `postcard`, whose format is fixed. The store versions the types.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::StoreError;

pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    // Infallible: into memory, of types with known lengths.
    postcard::to_stdvec(value).unwrap_or_default()
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|error| StoreError::Damaged(format!("cannot decode {what}: {error}")))
}
