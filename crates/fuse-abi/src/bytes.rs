//! Structures of the protocol as bytes, and bytes as structures.

use bytemuck::{Pod, bytes_of, try_pod_read_unaligned};

/// A value that is sent as the bytes that it has in memory. Reading copies it, so that alignment does not matter.
pub trait Wire: Pod {
    /// Returns the value as it is sent.
    fn as_bytes(&self) -> &[u8] {
        bytes_of(self)
    }

    /// Reads a value from all of `bytes`; none if their number is not the size of the value.
    fn read_from_bytes(bytes: &[u8]) -> Option<Self> {
        try_pod_read_unaligned(bytes).ok()
    }

    /// Reads a value from the start of `bytes`, and returns the bytes after it; none if there are too few.
    fn read_from_prefix(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (value, rest) = bytes.split_at_checked(size_of::<Self>())?;
        Some((Self::read_from_bytes(value)?, rest))
    }
}

impl<T: Pod> Wire for T {}
