//! Values in the blobs of a store: `postcard`, whose format is fixed. What the values are is versioned by the store.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::StoreError;

pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    // Into memory, and of types whose lengths are known: there is no error to have.
    postcard::to_stdvec(value).unwrap_or_default()
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes)
        .map_err(|error| StoreError::Damaged(format!("{what} cannot be read: {error}")))
}
