//! The keys that name and encrypt the chunks of a volume.

use std::borrow::Cow;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use shunt_volume_types::crypto::VolumeKey;
use shunt_volume_types::object::ChunkId;

const NONCE_BYTES: usize = 24;

/// Names the chunks of a volume, and encrypts them if it has a key.
#[derive(Clone)]
pub struct ChunkKeys {
    names: [u8; 32],
    seal: Option<XChaCha20Poly1305>,
}

impl std::fmt::Debug for ChunkKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkKeys").field("encrypts", &self.encrypts()).finish_non_exhaustive()
    }
}

impl ChunkKeys {
    /// Returns the keys of an unencrypted volume. `names` is specific to the volume, so equal bytes get different names in
    /// different volumes.
    pub fn open(names: [u8; 32]) -> Self {
        Self { names, seal: None }
    }

    /// Returns the keys of an encrypted volume. Chunk names do not reveal the contents.
    pub fn sealed(secret: &VolumeKey) -> Self {
        let seal = secret.derive("shunt volume 1: sealing of chunks");
        Self {
            names: secret.derive("shunt volume 1: names of chunks"),
            seal: Some(XChaCha20Poly1305::new(Key::from_slice(&seal))),
        }
    }

    /// Reports whether contents are encrypted.
    pub fn encrypts(&self) -> bool {
        self.seal.is_some()
    }

    pub(super) fn name(&self, bytes: &[u8]) -> ChunkId {
        ChunkId(*blake3::keyed_hash(&self.names, bytes).as_bytes())
    }

    pub(super) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.names)
    }

    /// Encrypts bytes if the volume is encrypted. The nonce is random; its 24 bytes make a collision negligible.
    pub(super) fn seal(&self, id: ChunkId, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Some(cipher) = &self.seal else { return Some(bytes) };
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let sealed = cipher.encrypt(XNonce::from_slice(&nonce), Payload { msg: &bytes, aad: &id.0 }).ok()?;
        Some([&nonce[..], &sealed].concat())
    }

    /// Decrypts bytes; `None` if they were not encrypted under this name with this key.
    pub(super) fn unseal<'a>(&self, id: ChunkId, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let Some(cipher) = &self.seal else { return Some(Cow::Borrowed(bytes)) };
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
        cipher.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: &id.0 }).ok().map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_chunk_opens_only_with_its_name_and_key() {
        let (keys, other) =
            (ChunkKeys::sealed(&VolumeKey::random()), ChunkKeys::sealed(&VolumeKey::random()));
        let (id, another) = (keys.name(b"text"), keys.name(b"texts"));
        let sealed = keys.seal(id, b"text".to_vec()).unwrap();
        assert!(!sealed.windows(4).any(|window| window == b"text"));
        assert_ne!(keys.seal(id, b"text".to_vec()).unwrap(), sealed);
        assert_eq!(*keys.unseal(id, &sealed).unwrap(), *b"text");
        assert_eq!(keys.unseal(another, &sealed), None);
        assert_eq!(other.unseal(id, &sealed), None);
        for n in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[n] ^= 1;
            assert_eq!(keys.unseal(id, &changed), None);
            assert_eq!(keys.unseal(id, &sealed[..n]), None);
        }
        assert_ne!(other.name(b"text"), id);
    }
}
