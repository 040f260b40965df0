//! Encrypts names, targets of symbolic links and extended attributes before a store sees them.
//!
//! Encryption is deterministic: the nonce is a keyed hash of the location and the plain text (as in SIV mode), so equal names
//! in one directory have equal ciphertexts and the store can look them up and keep them unique. A store learns when a name
//! recurs, the lengths of names and their directories, and nothing else; the same name in another directory looks different.
//! Ciphertexts that were altered or moved elsewhere do not authenticate.
//!
//! A writer without the key can commit names that do not decrypt. They do no harm to the volume: such a name or target is shown
//! as a placeholder, by which the name can be removed, and such an attribute is not shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use parking_lot::Mutex;
use shunt_volume_types::crypto::VolumeKey;
use shunt_volume_types::id::ObjectId;
use shunt_volume_types::object::{Field, LinkName, Object, StoredLink, VersionedObject};

use super::validate::{MAX_NAME_BYTES, validate};
use super::{LogEntry, Mutation, Page, Precondition, Transaction};

const NONCE_BYTES: usize = 24;

/// Attributes of this prefix are settings of the volume, which are set without its key.
const SETTINGS_PREFIX: &[u8] = b"system.shunt.";

/// Prefix under which an undecryptable name is shown, followed by its stored form in base 64,
const UNREADABLE_PREFIX: &[u8] = b"unreadable-";
/// or by this and its hash, if that is too long for a name.
const LONG_NAME_PREFIX: u8 = b'~';
/// Maximum number of remembered names of the second kind; further ones cannot be removed.
const MAX_LONG_NAMES: usize = 1 << 16;

/// The kind of an encrypted value: one kind never decrypts as another.
#[derive(Clone, Copy)]
enum ValueKind {
    Name = 1,
    Target,
    XattrName,
    XattrValue,
}

/// Encrypts and decrypts the metadata of a volume.
#[derive(Clone)]
pub struct MetadataCipher {
    nonces: [u8; 32],
    cipher: XChaCha20Poly1305,
    undecryptable: Arc<UndecryptableValues>,
}

/// Undecryptable values that were read.
#[derive(Default)]
struct UndecryptableValues {
    /// Stored names, by the hashed form under which they are shown.
    long: Mutex<HashMap<LinkName, Vec<u8>>>,
    is_reported: AtomicBool,
}

impl std::fmt::Debug for MetadataCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetadataCipher")
    }
}

/// Returns the placeholder for an undecryptable name.
fn unreadable(stored: &[u8]) -> Vec<u8> {
    let whole = URL_SAFE_NO_PAD.encode(stored);
    match UNREADABLE_PREFIX.len() + whole.len() <= MAX_NAME_BYTES {
        true => [UNREADABLE_PREFIX, whole.as_bytes()].concat(),
        false => [UNREADABLE_PREFIX, &[LONG_NAME_PREFIX], blake3::hash(stored).to_hex().as_bytes()].concat(),
    }
}

impl MetadataCipher {
    /// Derives the cipher from the key of a volume.
    pub fn new(secret: &VolumeKey) -> Self {
        let cipher = secret.derive("shunt volume 2: sealing of names");
        Self {
            nonces: secret.derive("shunt volume 2: nonces of names"),
            cipher: XChaCha20Poly1305::new(Key::from_slice(&cipher)),
            undecryptable: Arc::default(),
        }
    }

    /// Logs, once, that a value was not encrypted with the key.
    fn report_once(&self, what: &str, of: ObjectId) {
        if !self.undecryptable.is_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{what} of {of:?} was not encrypted with the key of this volume; further ones are not logged"
            );
        }
    }

    fn context(what: ValueKind, of: ObjectId, more: &[u8]) -> Vec<u8> {
        [&[what as u8], &of.to_bytes()[..], more].concat()
    }

    fn seal(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new_keyed(&self.nonces);
        // The length separates context and plain text.
        hasher.update(&(context.len() as u64).to_le_bytes()).update(context).update(plain);
        let nonce = hasher.finalize();
        let nonce = &nonce.as_bytes()[..NONCE_BYTES];
        let payload = Payload { msg: plain, aad: context };
        // Fails only for more bytes than memory holds.
        let sealed = self.cipher.encrypt(XNonce::from_slice(nonce), payload).unwrap_or_default();
        [nonce, &sealed].concat()
    }

    /// Returns `None` for a value that was not encrypted by this key for this context.
    fn unseal(&self, context: &[u8], hidden: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = hidden.split_at_checked(NONCE_BYTES)?;
        let payload = Payload { msg: sealed, aad: context };
        self.cipher.decrypt(XNonce::from_slice(nonce), payload).ok()
    }

    /// Encrypts to base 64, where arbitrary bytes are not allowed.
    fn seal_text(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        URL_SAFE_NO_PAD.encode(self.seal(context, plain)).into_bytes()
    }

    fn unseal_text(&self, context: &[u8], hidden: &[u8]) -> Option<Vec<u8>> {
        self.unseal(context, &URL_SAFE_NO_PAD.decode(hidden).ok()?)
    }

    pub(super) fn encrypt_name(&self, at: &LinkName) -> LinkName {
        self.undecryptable_name(at).unwrap_or_else(|| LinkName {
            parent: at.parent,
            name: self.seal_text(&Self::context(ValueKind::Name, at.parent, b""), &at.name),
        })
    }

    pub(super) fn decrypt_name(&self, at: LinkName) -> LinkName {
        let name = self.try_decrypt_name(&at).unwrap_or_else(|| {
            self.report_once("a name", at.parent);
            unreadable(&at.name)
        });
        let shown = LinkName { parent: at.parent, name };
        if is_long(&shown.name) {
            let mut long = self.undecryptable.long.lock();
            if long.len() < MAX_LONG_NAMES {
                long.insert(shown.clone(), at.name);
            }
        }
        shown
    }

    /// Decrypts a stored name; `None` if it does not decrypt, or not to a valid name.
    fn try_decrypt_name(&self, at: &LinkName) -> Option<Vec<u8>> {
        let name = self.unseal_text(&Self::context(ValueKind::Name, at.parent, b""), &at.name)?;
        // Written by another node, which may be malicious: validate it.
        let is_dot = name == b"." || name == b"..";
        let is_name = !is_dot
            && !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && !name.contains(&0)
            && !name.contains(&b'/');
        is_name.then_some(name)
    }

    /// Returns the stored name behind a placeholder.
    fn undecryptable_name(&self, at: &LinkName) -> Option<LinkName> {
        let name = match at.name.strip_prefix(UNREADABLE_PREFIX)? {
            [LONG_NAME_PREFIX, ..] => self.undecryptable.long.lock().get(at).cloned()?,
            whole => URL_SAFE_NO_PAD.decode(whole).ok()?,
        };
        let stored = LinkName { parent: at.parent, name };
        // A user may have chosen a name of this form: that is an ordinary name.
        let is_it = validate(&Mutation::Unlink(stored.clone())).is_none()
            && unreadable(&stored.name) == at.name
            && self.try_decrypt_name(&stored).is_none();
        is_it.then_some(stored)
    }

    /// Reports whether a transaction uses a hashed placeholder whose stored name is not known yet.
    pub(super) fn lacks_name(&self, item: &Transaction) -> bool {
        let lacks = |at: &LinkName| is_long(&at.name) && !self.undecryptable.long.lock().contains_key(at);
        item.mutations.iter().any(|change| match change {
            Mutation::Link(at, _) | Mutation::Unlink(at) => lacks(at),
            _ => false,
        })
    }

    fn encrypt_xattr_name(&self, id: ObjectId, name: &[u8]) -> Vec<u8> {
        match name.starts_with(SETTINGS_PREFIX) {
            true => name.to_vec(),
            false => self.seal_text(&Self::context(ValueKind::XattrName, id, b""), name),
        }
    }

    fn decrypt_xattr_name(&self, id: ObjectId, name: &[u8]) -> Option<Vec<u8>> {
        let shown = match name.starts_with(SETTINGS_PREFIX) {
            true => Some(name.to_vec()),
            false => self.unseal_text(&Self::context(ValueKind::XattrName, id, b""), name),
        };
        shown.or_else(|| {
            self.report_once("an extended attribute", id);
            None
        })
    }

    /// `name` is the plain one.
    fn encrypt_value(&self, id: ObjectId, name: &[u8], value: &[u8]) -> Vec<u8> {
        match name.starts_with(SETTINGS_PREFIX) {
            true => value.to_vec(),
            false => self.seal(&Self::context(ValueKind::XattrValue, id, name), value),
        }
    }

    fn decrypt_value(&self, id: ObjectId, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let shown = match name.starts_with(SETTINGS_PREFIX) {
            true => Some(value.to_vec()),
            false => self.unseal(&Self::context(ValueKind::XattrValue, id, name), value),
        };
        shown.or_else(|| {
            self.report_once("the value of an extended attribute", id);
            None
        })
    }

    fn encrypt_field(&self, id: ObjectId, field: &Field) -> Field {
        match field {
            Field::Xattr(name) => Field::Xattr(self.encrypt_xattr_name(id, name)),
            field => field.clone(),
        }
    }

    fn decrypt_field(&self, id: ObjectId, field: Field) -> Option<Field> {
        Some(match field {
            Field::Xattr(name) => Field::Xattr(self.decrypt_xattr_name(id, &name)?),
            field => field,
        })
    }

    fn encrypt_object(&self, object: &Object) -> Object {
        let id = object.id;
        let target = match object.target.is_empty() {
            true => Vec::new(),
            false => self.seal_text(&Self::context(ValueKind::Target, id, b""), &object.target),
        };
        let hide = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            (self.encrypt_xattr_name(id, name), self.encrypt_value(id, name, value))
        };
        Object { target, xattrs: object.xattrs.iter().map(hide).collect(), ..object.clone() }
    }

    fn decrypt_target(&self, id: ObjectId, target: &[u8]) -> Vec<u8> {
        self.unseal_text(&Self::context(ValueKind::Target, id, b""), target).unwrap_or_else(|| {
            self.report_once("the target", id);
            unreadable(target)
        })
    }

    fn decrypt_object(&self, mut object: Object) -> Object {
        let id = object.id;
        if !object.target.is_empty() {
            object.target = self.decrypt_target(id, &object.target);
        }
        let show = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            let name = self.decrypt_xattr_name(id, name)?;
            let value = self.decrypt_value(id, &name, value)?;
            Some((name, value))
        };
        let xattrs: BTreeMap<_, _> = object.xattrs.iter().filter_map(show).collect();
        Object { xattrs, ..object }
    }

    pub(super) fn decrypt_stored(&self, stored: VersionedObject) -> VersionedObject {
        let id = stored.object.id;
        let set = stored
            .field_versions
            .into_iter()
            .filter_map(|(field, seq)| Some((self.decrypt_field(id, field)?, seq)));
        VersionedObject {
            field_versions: set.collect(),
            object: self.decrypt_object(stored.object),
            ..stored
        }
    }

    pub(super) fn decrypt_link(&self, link: StoredLink) -> StoredLink {
        StoredLink { at: self.decrypt_name(link.at), ..link }
    }

    pub(super) fn decrypt_page(&self, page: Page) -> Page {
        Page {
            objects: page.objects.into_iter().map(|stored| self.decrypt_stored(stored)).collect(),
            links: page.links.into_iter().map(|link| self.decrypt_link(link)).collect(),
            next: page.next,
        }
    }

    pub(super) fn decrypt_entry(&self, entry: LogEntry) -> LogEntry {
        let change = entry.change.into_iter().filter_map(|change| self.decrypt_mutation(change)).collect();
        LogEntry { change, ..entry }
    }

    pub(super) fn encrypt_item(&self, item: &Transaction) -> Transaction {
        Transaction {
            preconditions: item.preconditions.iter().map(|when| self.encrypt_precondition(when)).collect(),
            mutations: item.mutations.iter().map(|change| self.encrypt_mutation(change)).collect(),
            chunks: item.chunks.clone(),
        }
    }

    fn encrypt_precondition(&self, when: &Precondition) -> Precondition {
        match when {
            Precondition::Field(id, field, seq) => {
                Precondition::Field(*id, self.encrypt_field(*id, field), *seq)
            }
            Precondition::Link(at, leads) => Precondition::Link(self.encrypt_name(at), *leads),
            Precondition::Exists(_) | Precondition::Empty(_) => when.clone(),
        }
    }

    fn encrypt_mutation(&self, change: &Mutation) -> Mutation {
        match change {
            Mutation::Make(object) => Mutation::Make(self.encrypt_object(object)),
            Mutation::SetXattr(id, name, value) => {
                let value = value.as_ref().map(|value| self.encrypt_value(*id, name, value));
                Mutation::SetXattr(*id, self.encrypt_xattr_name(*id, name), value)
            }
            Mutation::Link(at, child) => Mutation::Link(self.encrypt_name(at), *child),
            Mutation::Unlink(at) => Mutation::Unlink(self.encrypt_name(at)),
            Mutation::SetContent(..)
            | Mutation::SetMode(..)
            | Mutation::SetOwner(..)
            | Mutation::SetGroup(..)
            | Mutation::SetModified(..)
            | Mutation::Seal(_) => change.clone(),
        }
    }

    /// Returns `None` for a change of an undecryptable attribute, and for a seal.
    fn decrypt_mutation(&self, change: Mutation) -> Option<Mutation> {
        Some(match change {
            Mutation::Make(object) => Mutation::Make(self.decrypt_object(object)),
            Mutation::SetXattr(id, name, value) => {
                let name = self.decrypt_xattr_name(id, &name)?;
                // The attribute replaces an earlier value even if the new one does not decrypt.
                let value = value.and_then(|value| self.decrypt_value(id, &name, &value));
                Mutation::SetXattr(id, name, value)
            }
            Mutation::Link(at, child) => Mutation::Link(self.decrypt_name(at), child),
            Mutation::Unlink(at) => Mutation::Unlink(self.decrypt_name(at)),
            // Covers the stored form.
            Mutation::Seal(_) => return None,
            change => change,
        })
    }
}

/// Reports whether a name may be a hashed placeholder.
fn is_long(name: &[u8]) -> bool {
    name.strip_prefix(UNREADABLE_PREFIX).is_some_and(|rest| rest.first() == Some(&LONG_NAME_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::{MAX_STORED_NAME_BYTES, MAX_STORED_TARGET_BYTES, MAX_STORED_XATTR_BYTES};

    #[test]
    fn encrypted_metadata_decrypts_only_in_place_and_with_its_key() {
        let (veil, other) =
            (MetadataCipher::new(&VolumeKey::random()), MetadataCipher::new(&VolumeKey::random()));
        let at = |parent: u128, name: &[u8]| LinkName { parent: ObjectId(parent), name: name.to_vec() };
        let plain = at(7, b"secret plan");
        let hidden = veil.encrypt_name(&plain);
        assert_eq!(veil.encrypt_name(&plain), hidden, "encryption is deterministic");
        assert!(!hidden.name.windows(6).any(|window| window == b"secret"));
        let read = |at: LinkName| veil.try_decrypt_name(&at);
        assert_eq!(veil.decrypt_name(hidden.clone()), plain);
        assert_eq!(other.try_decrypt_name(&hidden), None);
        assert_eq!(read(at(8, &hidden.name)), None, "a name moved to another directory is invalid");
        assert_ne!(veil.encrypt_name(&at(8, b"secret plan")).name, hidden.name);
        assert_eq!(read(at(7, b"plain")), None);
        for n in 0..hidden.name.len() {
            assert_eq!(read(at(7, &hidden.name[..n])), None);
        }
        assert_eq!(read(veil.encrypt_name(&at(7, b"a/b"))), None);
        let id = ObjectId(7);
        assert_eq!(
            veil.decrypt_xattr_name(id, &hidden.name),
            None,
            "a file name is not valid as the name of an attribute"
        );
    }

    #[test]
    fn undecryptable_name_maps_back_to_its_stored_name() {
        let veil = MetadataCipher::new(&VolumeKey::random());
        let at = |name: &[u8]| LinkName { parent: ObjectId(7), name: name.to_vec() };
        let elsewhere = LinkName { parent: ObjectId(8), name: b"elsewhere".to_vec() };
        for stored in
            [&b"plain"[..], &[b'x'; 183], &[200; 394], &veil.encrypt_name(&elsewhere).name, &[b'_'; 54]]
        {
            let shown = veil.decrypt_name(at(stored));
            assert!(
                shown.name.starts_with(UNREADABLE_PREFIX) && shown.name.len() <= MAX_NAME_BYTES,
                "{shown:?}"
            );
            assert_eq!(veil.encrypt_name(&shown), at(stored));
            assert_eq!(veil.decrypt_name(veil.encrypt_name(&shown)), shown);
        }
        // Names of this form chosen by users are encrypted and decrypted like others.
        let hidden = URL_SAFE_NO_PAD.encode(veil.encrypt_name(&at(b"text")).name);
        let names = [
            "unreadable-",
            "unreadable-text?",
            "unreadable-~",
            "unreadable-Lw",
            &format!("unreadable-{hidden}"),
        ];
        for name in names {
            let stored = veil.encrypt_name(&at(name.as_bytes()));
            assert_eq!(veil.try_decrypt_name(&stored).as_deref(), Some(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn longest_encrypted_values_fit_the_limits() {
        let veil = MetadataCipher::new(&VolumeKey::random());
        let at = LinkName { parent: ObjectId(1), name: vec![b'x'; 255] };
        assert_eq!(veil.encrypt_name(&at).name.len(), MAX_STORED_NAME_BYTES);
        let value = veil.encrypt_value(ObjectId(1), b"user.a", &[0; 65_536]);
        assert_eq!(value.len(), MAX_STORED_XATTR_BYTES);
        assert_eq!(veil.seal_text(b"", &[b'x'; 4095]).len(), MAX_STORED_TARGET_BYTES);
        assert_eq!(veil.encrypt_value(ObjectId(1), b"system.shunt.quota", b"x"), b"x");
    }
}
