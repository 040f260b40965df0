//! Encoding of values stored as blobs: `postcard`, whose format is fixed. The store versions the types.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

/// Encodes a value as postcard, the format of everything that stores and messages contain.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    // Infallible: into memory, of types with known lengths.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// Decodes a value; `what` names it in the error.
///
/// # Errors
/// [`StoreError::Damaged`] if the bytes do not begin with a value of this type.
pub fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|error| StoreError::Damaged(format!("cannot decode {what}: {error}")))
}
