//! POSIX ACLs: conversion between the compact on-disk form and that of the system calls, validation, and inheritance.

use crate::error::{Corruption, Error, Result};

/// Version of the on-disk form.
const STORED_VERSION: u32 = 1;
/// Version of the `getxattr(2)` form.
const SYSCALL_VERSION: u32 = 2;

/// Tags of entries that name a user or a group.
const NAMED_TAGS: [u16; 2] = [0x02, 0x08];
/// Tags of entries without a user or group ID.
const UNNAMED_TAGS: [u16; 4] = [0x01, 0x04, 0x10, 0x20];
/// ID of an entry without one.
const UNDEFINED_ID: u32 = u32::MAX;

/// Converts an ACL from the on-disk form to that of `getxattr(2)`.
pub(super) fn to_xattr(stored: &[u8]) -> Result<Vec<u8>> {
    let wrong = || Corruption::new("invalid ACL").into();
    let Some((version, mut rest)) = stored.split_first_chunk() else { return Err(wrong()) };
    if u32::from_le_bytes(*version) != STORED_VERSION {
        return Err(wrong());
    }
    let mut shown = SYSCALL_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let Some((&[t0, t1, p0, p1], after)) = rest.split_first_chunk() else { return Err(wrong()) };
        rest = after;
        let tag = u16::from_le_bytes([t0, t1]);
        let id = if NAMED_TAGS.contains(&tag) {
            let Some((id, after)) = rest.split_first_chunk() else { return Err(wrong()) };
            rest = after;
            u32::from_le_bytes(*id)
        } else if UNNAMED_TAGS.contains(&tag) {
            UNDEFINED_ID
        } else {
            return Err(wrong());
        };
        shown.extend([t0, t1, p0, p1]);
        shown.extend(id.to_le_bytes());
    }
    Ok(shown)
}

/// Entry tags, in their required order.
mod tag {
    pub(super) const USER_OBJ: u16 = 0x01;
    pub(super) const GROUP_OBJ: u16 = 0x04;
    pub(super) const MASK: u16 = 0x10;
    pub(super) const OTHER: u16 = 0x20;
}

/// An entry of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A complete access control list: the three entries of the mode, entries of users and groups, and a mask if there are any of
/// these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Parses the `setxattr(2)` form; `None` for a list without entries, which stands for no ACL.
    ///
    /// # Errors
    /// [`Error::Invalid`] if order, tags or permissions are invalid as by `acl_valid(3)`. [`Error::Unsupported`] for another
    /// version.
    pub(crate) fn from_xattr(shown: &[u8]) -> Result<Option<Self>> {
        let Some((version, rest)) = shown.split_first_chunk() else { return Err(Error::Invalid) };
        if u32::from_le_bytes(*version) != SYSCALL_VERSION {
            return Err(Error::Unsupported("this version of ACLs".into()));
        }
        let entry = |bytes: &[u8]| {
            let &[t0, t1, p0, p1, i0, i1, i2, i3] = bytes else { return Err(Error::Invalid) };
            Ok(Entry {
                tag: u16::from_le_bytes([t0, t1]),
                permissions: u16::from_le_bytes([p0, p1]),
                id: u32::from_le_bytes([i0, i1, i2, i3]),
            })
        };
        let acl = Self(rest.chunks(8).map(entry).collect::<Result<_>>()?);
        if acl.0.is_empty() {
            return Ok(None);
        }
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Error::Invalid) }
    }

    /// Parses the on-disk form.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn from_stored(stored: &[u8]) -> Result<Self> {
        let wrong = || Corruption::new("invalid ACL").into();
        match Self::from_xattr(&to_xattr(stored)?) {
            Ok(acl) => acl.ok_or_else(wrong),
            Err(_) => Err(wrong()),
        }
    }

    fn is_valid(&self) -> bool {
        let known = |entry: &Entry| {
            let named = NAMED_TAGS.contains(&entry.tag);
            entry.permissions <= 7
                && (named || UNNAMED_TAGS.contains(&entry.tag))
                && (!named || entry.id != UNDEFINED_ID)
        };
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let named = self.0.iter().any(|entry| NAMED_TAGS.contains(&entry.tag));
        self.0.iter().all(known)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER].map(count) == [1; 3]
            && count(tag::MASK) <= 1
            && (!named || count(tag::MASK) == 1)
    }

    /// Encodes the on-disk form.
    pub(crate) fn to_stored(&self) -> Vec<u8> {
        let mut stored = STORED_VERSION.to_le_bytes().to_vec();
        for Entry { tag, permissions, id } in &self.0 {
            stored.extend(tag.to_le_bytes());
            stored.extend(permissions.to_le_bytes());
            if NAMED_TAGS.contains(tag) {
                stored.extend(id.to_le_bytes());
            }
        }
        stored
    }

    fn permissions(&mut self, tag: u16) -> Option<&mut u16> {
        self.0.iter_mut().find(|entry| entry.tag == tag).map(|entry| &mut entry.permissions)
    }

    /// Returns the entry that the group bits of a mode correspond to.
    fn class(&mut self) -> Option<&mut u16> {
        let mask = self.0.iter().any(|entry| entry.tag == tag::MASK);
        self.permissions(if mask { tag::MASK } else { tag::GROUP_OBJ })
    }

    /// Returns the equivalent permission bits, and whether they represent the ACL completely.
    pub(crate) fn mode(&self) -> (u16, bool) {
        let mut acl = self.clone();
        let bits = |entry: Option<&mut u16>| entry.map_or(0, |bits| *bits);
        let (user, group, other) =
            (bits(acl.permissions(tag::USER_OBJ)), bits(acl.class()), bits(acl.permissions(tag::OTHER)));
        (user << 6 | group << 3 | other, self.0.len() == 3)
    }

    /// Updates the ACL for `chmod(2)`.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        for (tag, shift) in [(tag::USER_OBJ, 6), (tag::OTHER, 0)] {
            if let Some(bits) = self.permissions(tag) {
                *bits = mode >> shift & 7;
            }
        }
        if let Some(bits) = self.class() {
            *bits = mode >> 3 & 7;
        }
    }

    /// Derives the access ACL of a new inode from a directory's default ACL, limited to the permissions in `mode`. Also returns
    /// the mode, with the permission bits of the ACL.
    pub(crate) fn inherit(mut self, mode: u16) -> (Self, u16) {
        let (own, _) = self.mode();
        self.set_mode(own & mode);
        (self, mode & !0o777 | own & mode & 0o777)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = SYSCALL_VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const NAMES: [(u16, u16, u32); 5] = [
        (1, 7, UNDEFINED_ID),
        (2, 5, 1234),
        (4, 6, UNDEFINED_ID),
        (0x10, 4, UNDEFINED_ID),
        (0x20, 0, UNDEFINED_ID),
    ];

    #[test]
    fn both_forms_say_the_same() {
        let bytes = shown(&NAMES);
        let acl = Acl::from_xattr(&bytes).unwrap().unwrap();
        let stored = acl.to_stored();
        assert_eq!(stored.len(), 4 + 4 * 4 + 8);
        assert_eq!(to_xattr(&stored).unwrap(), bytes);
        assert_eq!(Acl::from_stored(&stored).unwrap(), acl);
    }

    #[test]
    fn invalid_acl_is_refused() {
        let refused = |entries: &[_]| matches!(Acl::from_xattr(&shown(entries)), Err(Error::Invalid));
        let mut swapped = NAMES;
        swapped.swap(0, 1);
        assert!(refused(&swapped));
        assert!(refused(&NAMES[..4]), "no entry for others");
        let without_mask: Vec<_> = NAMES.into_iter().filter(|entry| entry.0 != 0x10).collect();
        assert!(refused(&without_mask));
        assert!(
            refused(&[(1, 8, UNDEFINED_ID), (4, 0, UNDEFINED_ID), (0x20, 0, UNDEFINED_ID)]),
            "an invalid permission"
        );
        assert!(refused(&[
            (1, 7, UNDEFINED_ID),
            (3, 0, UNDEFINED_ID),
            (4, 0, UNDEFINED_ID),
            (0x20, 0, UNDEFINED_ID)
        ]));
        assert!(Acl::from_xattr(&shown(&[])).unwrap().is_none());
        assert!(Acl::from_xattr(&shown(&NAMES)[..11]).is_err());
    }

    #[test]
    fn modes_and_acls_follow_each_other() {
        let mut acl = Acl::from_xattr(&shown(&NAMES)).unwrap().unwrap();
        assert_eq!(acl.mode(), (0o740, false));
        acl.set_mode(0o611);
        assert_eq!(acl.mode(), (0o611, false));
        let plain =
            Acl::from_xattr(&shown(&[(1, 6, UNDEFINED_ID), (4, 4, UNDEFINED_ID), (0x20, 1, UNDEFINED_ID)]));
        assert_eq!(plain.unwrap().unwrap().mode(), (0o641, true));
        let (inherited, mode) = Acl::from_xattr(&shown(&NAMES)).unwrap().unwrap().inherit(0o4664);
        assert_eq!((mode, inherited.mode()), (0o4640, (0o640, false)));
    }
}
