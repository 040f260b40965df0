//! The key of an encrypted volume, from which all others are derived. It is never stored with the volume.

/// The 256-bit key of an encrypted volume.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeKey([u8; 32]);

impl std::fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeKey")
    }
}

impl VolumeKey {
    /// A new random key, from the system's generator.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Reads 64 hexadecimal digits, with or without spaces around them; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The text that [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key for one purpose, which names it: BLAKE3 in its key derivation mode.
    pub fn derive(&self, what: &'static str) -> [u8; 32] {
        blake3::derive_key(what, &self.0)
    }

    /// A hash that recognises the key and reveals nothing else of it.
    pub fn mark(&self) -> [u8; 32] {
        blake3::derive_key("shunt volume 1: mark of the key", &self.0)
    }

    /// The hash for a volume whose log is sealed. It differs from [`mark`](Self::mark), so that a store cannot pass the
    /// volume off as one whose log is not sealed.
    pub fn mark_of_sealed(&self) -> [u8; 32] {
        blake3::derive_key("shunt volume 3: mark of the key", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_is_written() {
        let secret = VolumeKey::random();
        assert_eq!(VolumeKey::parse(&format!(" {}\n", secret.to_text())), Some(secret.clone()));
        for wrong in ["", "12", &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
            assert_eq!(VolumeKey::parse(wrong), None);
        }
        assert_ne!(secret.mark(), VolumeKey::random().mark());
    }
}
