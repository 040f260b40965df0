//! Hides what a volume calls things from its stores: names, targets of symbolic links, extended attributes.
//!
//! The same name in the same directory is always hidden as the same bytes, so that a store can look it up and see that there
//! is one of it: the nonce is a keyed hash of where it is and what it says. So a store sees when a name comes back, how long
//! names are and which directory they are in, and nothing else of them; the same name elsewhere looks different. What was
//! changed or moved elsewhere is told from what was hidden.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

use super::values::NAME_MAX;
use super::{Entry, Item, Mutation, Page, Precondition, StoreError};
use crate::content::Secret;
use crate::id::ObjectId;
use crate::object::{Field, LinkName, Object, Stored, StoredLink};

const NONCE: usize = 24;

/// Attributes of this prefix are settings of the volume, which are set without its key.
const SETTINGS: &[u8] = b"system.shunt.";

/// What is hidden: one never stands for another.
#[derive(Clone, Copy)]
enum What {
    Name = 1,
    Target,
    XattrName,
    XattrValue,
}

/// Hides, and shows again.
#[derive(Clone)]
pub struct Veil {
    nonces: [u8; 32],
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for Veil {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Veil")
    }
}

/// What was shown, or was not hidden by this.
type Shown<T> = Result<T, StoreError>;

fn damaged() -> StoreError {
    StoreError::Damaged("a name in it was not hidden by the key of this volume".to_owned())
}

impl Veil {
    /// By the key of a volume.
    pub fn new(secret: &Secret) -> Self {
        let cipher = secret.derive("shunt volume 2: sealing of names");
        Self {
            nonces: secret.derive("shunt volume 2: nonces of names"),
            cipher: XChaCha20Poly1305::new(Key::from_slice(&cipher)),
        }
    }

    fn context(what: What, of: ObjectId, more: &[u8]) -> Vec<u8> {
        [&[what as u8], &of.to_bytes()[..], more].concat()
    }

    fn seal(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new_keyed(&self.nonces);
        // Where one ends and the other begins is part of it.
        hasher.update(&(context.len() as u64).to_le_bytes()).update(context).update(plain);
        let nonce = hasher.finalize();
        let nonce = &nonce.as_bytes()[..NONCE];
        let payload = Payload { msg: plain, aad: context };
        // It fails only for more bytes than memory holds.
        let sealed = self.cipher.encrypt(XNonce::from_slice(nonce), payload).unwrap_or_default();
        [nonce, &sealed].concat()
    }

    fn unseal(&self, context: &[u8], hidden: &[u8]) -> Shown<Vec<u8>> {
        let (nonce, sealed) = hidden.split_at_checked(NONCE).ok_or_else(damaged)?;
        let payload = Payload { msg: sealed, aad: context };
        self.cipher.decrypt(XNonce::from_slice(nonce), payload).map_err(|_| damaged())
    }

    /// For where not all bytes are allowed.
    fn seal_text(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        URL_SAFE_NO_PAD.encode(self.seal(context, plain)).into_bytes()
    }

    fn unseal_text(&self, context: &[u8], hidden: &[u8]) -> Shown<Vec<u8>> {
        self.unseal(context, &URL_SAFE_NO_PAD.decode(hidden).map_err(|_| damaged())?)
    }

    pub(super) fn hide_name(&self, at: &LinkName) -> LinkName {
        let name = self.seal_text(&Self::context(What::Name, at.parent, b""), &at.name);
        LinkName { parent: at.parent, name }
    }

    pub(super) fn show_name(&self, at: LinkName) -> Shown<LinkName> {
        let name = self.unseal_text(&Self::context(What::Name, at.parent, b""), &at.name)?;
        // It was made by a node: what others do not trust they look at.
        let is_dot = name == b"." || name == b"..";
        if is_dot || name.is_empty() || name.len() > NAME_MAX || name.contains(&0) || name.contains(&b'/') {
            return Err(damaged());
        }
        Ok(LinkName { parent: at.parent, name })
    }

    fn hide_xattr_name(&self, id: ObjectId, name: &[u8]) -> Vec<u8> {
        match name.starts_with(SETTINGS) {
            true => name.to_vec(),
            false => self.seal_text(&Self::context(What::XattrName, id, b""), name),
        }
    }

    fn show_xattr_name(&self, id: ObjectId, name: &[u8]) -> Shown<Vec<u8>> {
        match name.starts_with(SETTINGS) {
            true => Ok(name.to_vec()),
            false => self.unseal_text(&Self::context(What::XattrName, id, b""), name),
        }
    }

    /// By the name as users know it.
    fn hide_value(&self, id: ObjectId, name: &[u8], value: &[u8]) -> Vec<u8> {
        match name.starts_with(SETTINGS) {
            true => value.to_vec(),
            false => self.seal(&Self::context(What::XattrValue, id, name), value),
        }
    }

    fn show_value(&self, id: ObjectId, name: &[u8], value: &[u8]) -> Shown<Vec<u8>> {
        match name.starts_with(SETTINGS) {
            true => Ok(value.to_vec()),
            false => self.unseal(&Self::context(What::XattrValue, id, name), value),
        }
    }

    fn hide_field(&self, id: ObjectId, field: &Field) -> Field {
        match field {
            Field::Xattr(name) => Field::Xattr(self.hide_xattr_name(id, name)),
            field => field.clone(),
        }
    }

    fn show_field(&self, id: ObjectId, field: Field) -> Shown<Field> {
        Ok(match field {
            Field::Xattr(name) => Field::Xattr(self.show_xattr_name(id, &name)?),
            field => field,
        })
    }

    fn hide_object(&self, object: &Object) -> Object {
        let id = object.id;
        let target = match object.target.is_empty() {
            true => Vec::new(),
            false => self.seal_text(&Self::context(What::Target, id, b""), &object.target),
        };
        let hide = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            (self.hide_xattr_name(id, name), self.hide_value(id, name, value))
        };
        Object { target, xattrs: object.xattrs.iter().map(hide).collect(), ..object.clone() }
    }

    fn show_object(&self, mut object: Object) -> Shown<Object> {
        let id = object.id;
        if !object.target.is_empty() {
            object.target = self.unseal_text(&Self::context(What::Target, id, b""), &object.target)?;
        }
        let mut xattrs = BTreeMap::new();
        for (name, value) in &object.xattrs {
            let name = self.show_xattr_name(id, name)?;
            let value = self.show_value(id, &name, value)?;
            xattrs.insert(name, value);
        }
        object.xattrs = xattrs;
        Ok(object)
    }

    pub(super) fn show_stored(&self, stored: Stored) -> Shown<Stored> {
        let id = stored.object.id;
        let set = stored.set.into_iter().map(|(field, seq)| Ok((self.show_field(id, field)?, seq)));
        let set = set.collect::<Shown<_>>()?;
        Ok(Stored { object: self.show_object(stored.object)?, set, ..stored })
    }

    pub(super) fn show_link(&self, link: StoredLink) -> Shown<StoredLink> {
        Ok(StoredLink { at: self.show_name(link.at)?, ..link })
    }

    pub(super) fn show_page(&self, page: Page) -> Shown<Page> {
        Ok(Page {
            objects: page.objects.into_iter().map(|stored| self.show_stored(stored)).collect::<Shown<_>>()?,
            links: page.links.into_iter().map(|link| self.show_link(link)).collect::<Shown<_>>()?,
            next: page.next,
        })
    }

    pub(super) fn show_entry(&self, entry: Entry) -> Shown<Entry> {
        let change = entry.change.into_iter().map(|change| self.show_change(change)).collect::<Shown<_>>()?;
        Ok(Entry { change, ..entry })
    }

    pub(super) fn hide_item(&self, item: &Item) -> Item {
        Item {
            when: item.when.iter().map(|when| self.hide_condition(when)).collect(),
            change: item.change.iter().map(|change| self.hide_change(change)).collect(),
            chunks: item.chunks.clone(),
        }
    }

    fn hide_condition(&self, when: &Precondition) -> Precondition {
        match when {
            Precondition::Field(id, field, seq) => {
                Precondition::Field(*id, self.hide_field(*id, field), *seq)
            }
            Precondition::Link(at, leads) => Precondition::Link(self.hide_name(at), *leads),
            Precondition::Exists(_) | Precondition::Empty(_) => when.clone(),
        }
    }

    fn hide_change(&self, change: &Mutation) -> Mutation {
        match change {
            Mutation::Make(object) => Mutation::Make(self.hide_object(object)),
            Mutation::SetXattr(id, name, value) => {
                let value = value.as_ref().map(|value| self.hide_value(*id, name, value));
                Mutation::SetXattr(*id, self.hide_xattr_name(*id, name), value)
            }
            Mutation::Link(at, child) => Mutation::Link(self.hide_name(at), *child),
            Mutation::Unlink(at) => Mutation::Unlink(self.hide_name(at)),
            Mutation::SetContent(..)
            | Mutation::SetMode(..)
            | Mutation::SetOwner(..)
            | Mutation::SetGroup(..)
            | Mutation::SetModified(..) => change.clone(),
        }
    }

    fn show_change(&self, change: Mutation) -> Shown<Mutation> {
        Ok(match change {
            Mutation::Make(object) => Mutation::Make(self.show_object(object)?),
            Mutation::SetXattr(id, name, value) => {
                let name = self.show_xattr_name(id, &name)?;
                let value = value.map(|value| self.show_value(id, &name, &value)).transpose()?;
                Mutation::SetXattr(id, name, value)
            }
            Mutation::Link(at, child) => Mutation::Link(self.show_name(at)?, child),
            Mutation::Unlink(at) => Mutation::Unlink(self.show_name(at)?),
            change => change,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::values::{STORED_NAME_MAX, STORED_TARGET_MAX, STORED_XATTR_MAX};

    #[test]
    fn what_is_hidden_is_shown_where_it_was_and_by_its_key_only() {
        let (veil, other) = (Veil::new(&Secret::random()), Veil::new(&Secret::random()));
        let at = |parent: u128, name: &[u8]| LinkName { parent: ObjectId(parent), name: name.to_vec() };
        let plain = at(7, b"secret plan");
        let hidden = veil.hide_name(&plain);
        assert_eq!(veil.hide_name(&plain), hidden, "a store finds it again");
        assert!(!hidden.name.windows(6).any(|window| window == b"secret"));
        assert_eq!(veil.show_name(hidden.clone()).unwrap(), plain);
        assert!(other.show_name(hidden.clone()).is_err());
        assert!(veil.show_name(at(8, &hidden.name)).is_err(), "it was moved to another directory");
        assert_ne!(veil.hide_name(&at(8, b"secret plan")).name, hidden.name);
        assert!(veil.show_name(at(7, b"plain")).is_err());
        for n in 0..hidden.name.len() {
            assert!(veil.show_name(at(7, &hidden.name[..n])).is_err());
        }
        assert!(veil.show_name(veil.hide_name(&at(7, b"a/b"))).is_err());
        let id = ObjectId(7);
        assert!(veil.show_xattr_name(id, &hidden.name).is_err(), "a name is no attribute");
    }

    #[test]
    fn what_is_longest_fits_into_stores() {
        let veil = Veil::new(&Secret::random());
        let at = LinkName { parent: ObjectId(1), name: vec![b'x'; 255] };
        assert_eq!(veil.hide_name(&at).name.len(), STORED_NAME_MAX);
        let value = veil.hide_value(ObjectId(1), b"user.a", &[0; 65_536]);
        assert_eq!(value.len(), STORED_XATTR_MAX);
        assert_eq!(veil.seal_text(b"", &[b'x'; 4095]).len(), STORED_TARGET_MAX);
        assert_eq!(veil.hide_value(ObjectId(1), b"system.shunt.quota", b"x"), b"x");
    }
}
