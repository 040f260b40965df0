//! No-key names: the form in which names of encrypted directories are presented without their key, as in Linux since 5.11.
//!
//! A stored name is arbitrary bytes. Its no-key form is the base64url encoding (RFC 4648, no padding) of: the directory hash and
//! a secondary hash, four bytes each, little-endian; the first 149 bytes of the stored name; and, if it is longer, the SHA-256 of
//! the rest. A no-key name therefore identifies one entry.

use sha2::{Digest as _, Sha256};

/// Minimum length of a stored name in bytes: shorter names are padded before encryption.
const MIN_STORED_NAME_BYTES: usize = 16;

/// Size of the two hashes in bytes.
const HASHES_BYTES: usize = 8;

/// Number of bytes of a stored name that are included unhashed.
const MAX_UNHASHED_BYTES: usize = 149;

/// Size of a digest in bytes.
const DIGEST_BYTES: usize = 32;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes a stored name; `None` if it is too short to be one.
pub(crate) fn show([major, minor]: [u32; 2], stored: &[u8]) -> Option<Vec<u8>> {
    if stored.len() < MIN_STORED_NAME_BYTES {
        return None;
    }
    let (whole, rest) = stored.split_at(stored.len().min(MAX_UNHASHED_BYTES));
    let mut bytes = [&major.to_le_bytes(), &minor.to_le_bytes(), whole].concat();
    if !rest.is_empty() {
        bytes.extend(Sha256::digest(rest));
    }
    Some(encode(&bytes))
}

/// A parsed no-key name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(super) hash: u32,
    start: Vec<u8>,
    digest: Option<[u8; DIGEST_BYTES]>,
}

impl Shown {
    /// Parses a no-key name; `None` if it is invalid.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let bytes = decode(name)?;
        let (hash, rest) = bytes.split_first_chunk()?;
        let (_, stored) = rest.split_first_chunk::<4>()?;
        let (start, digest) = stored.split_at(stored.len().min(MAX_UNHASHED_BYTES));
        let digest = match digest {
            [] => None,
            digest => Some(digest.try_into().ok()?),
        };
        let hash = u32::from_le_bytes(*hash);
        (!start.is_empty()).then(|| Self { hash, start: start.to_vec(), digest })
    }

    /// Returns the stored name if the no-key name contains all of it.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.digest.is_none().then_some(&self.start)
    }

    /// Reports whether a stored name has this no-key form.
    pub(crate) fn is(&self, stored: &[u8]) -> bool {
        match (stored.strip_prefix(&*self.start), &self.digest) {
            (Some([]), None) => true,
            (Some(rest), Some(digest)) => !rest.is_empty() && Sha256::digest(rest)[..] == digest[..],
            _ => false,
        }
    }
}

fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity((bytes.len() * 4).div_ceil(3));
    for part in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| word << 8 | u32::from(*part.get(at).unwrap_or(&0)));
        text.extend((0..=part.len()).map(|at| ALPHABET[(word >> (18 - 6 * at) & 63) as usize]));
    }
    text
}

/// Decodes base64url; `None` if [`encode`] could not have produced the text.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() > ((HASHES_BYTES + MAX_UNHASHED_BYTES + DIGEST_BYTES) * 4).div_ceil(3)
        || text.len() % 4 == 1
    {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for part in text.chunks(4) {
        let mut word = 0;
        for at in 0..4 {
            let value = match part.get(at) {
                Some(letter) => ALPHABET.iter().position(|known| known == letter)? as u32,
                None => 0,
            };
            word = word << 6 | value;
        }
        let (all, count) = (word.to_be_bytes(), part.len() * 3 / 4);
        // Unused bits must be zero.
        if all[1 + count..].iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend(&all[1..=count]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_the_rfc() {
        for (bytes, text) in [
            (&b""[..], &b""[..]),
            (b"f", b"Zg"),
            (b"fo", b"Zm8"),
            (b"foo", b"Zm9v"),
            (b"foobar", b"Zm9vYmFy"),
        ] {
            assert_eq!((encode(bytes), decode(text)), (text.to_vec(), Some(bytes.to_vec())));
        }
        assert_eq!(encode(&[0xfb, 0xff]), b"-_8");
        for wrong in [&b"Z"[..], b"Zg==", b"Zh", b"Zm9", b"a/b+", &[b'A'; 253]] {
            assert_eq!(decode(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn no_key_name_resolves_to_its_entry() {
        for length in [16, 17, 148, 149, 150, 200, 255] {
            let stored: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let shown = show([5, 6], &stored).unwrap();
            assert!(shown.len() <= 252);
            let parsed = Shown::parse(&shown).unwrap();
            assert_eq!((parsed.hash, parsed.whole()), (5, (length <= 149).then_some(&*stored)));
            assert!(parsed.is(&stored));
            let mut other = stored.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!parsed.is(&other) && !parsed.is(&stored[..length - 1]) && !parsed.is(&[]));
        }
        assert_eq!(show([0; 2], &[1; 15]), None);
        for never in [&b""[..], b"AAAAAAAAAAA", b"name", &encode(&[1; 8 + 150]), &encode(&[1; 190])] {
            assert_eq!(Shown::parse(never), None, "{}", never.escape_ascii());
        }
    }
}
