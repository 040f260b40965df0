//! Setting and removing attributes, and choosing between inode and attribute block.

use super::area::{self, Attribute};
use super::{MAX_VALUE_BYTES, PREFIXES};
use crate::error::{Error, Result};

/// Behaviour if an attribute exists, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetMode {
    /// Set it in either case.
    #[default]
    Either,
    /// Fail if it exists: `XATTR_CREATE`.
    Create,
    /// Fail if it does not exist: `XATTR_REPLACE`.
    Replace,
}

/// Maximum length of a name in bytes, without its prefix.
const MAX_NAME_BYTES: usize = 255;

/// Splits a full name into prefix index and rest.
///
/// # Errors
/// [`Error::Unsupported`] for a namespace that cannot be written, [`Error::Invalid`] if nothing follows the prefix,
/// [`Error::OutOfRange`] for a name that is too long.
pub(crate) fn split_name(full: &[u8]) -> Result<(u8, &[u8])> {
    let writable = PREFIXES.iter().filter(|(index, _)| matches!(index, 1..=4 | 6));
    let found = writable.filter_map(|(index, prefix)| Some((*index, full.strip_prefix(prefix.as_bytes())?)));
    // ACL names are complete; all others continue behind the dot.
    for (index, name) in found {
        match (index, name) {
            (2 | 3, []) => return Ok((index, name)),
            (2 | 3, _) => {}
            (_, []) => return Err(Error::Invalid),
            (_, name) if name.len() > MAX_NAME_BYTES => return Err(Error::OutOfRange),
            found => return Ok(found),
        }
    }
    Err(Error::Unsupported(format!("namespace of extended attribute {}", full.escape_ascii())))
}

/// The attributes of an inode, by location.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) own: Vec<Attribute>,
    pub(crate) block: Vec<Attribute>,
}

/// Space for attributes in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Behind the fields of the inode.
    pub(crate) own: usize,
    /// In an attribute block.
    pub(crate) block: usize,
}

/// Locations whose attributes have changed and must be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) own: bool,
    pub(crate) block: bool,
}

fn take(list: &mut Vec<Attribute>, index: u8, name: &[u8]) -> Option<Attribute> {
    let position = list.iter().position(|xattr| xattr.index == index && xattr.name == name)?;
    Some(list.remove(position))
}

impl Lists {
    /// Decodes the attributes behind the fields of an inode, and those of its attribute block if it has one.
    pub(crate) fn decode(tail: &[u8], block: Option<&[u8]>) -> Result<Self> {
        Ok(Self { own: area::decode_tail(tail)?, block: block.map_or(Ok(Vec::new()), area::decode_block)? })
    }

    /// Encodes the attributes behind the fields of the inode.
    pub(crate) fn encode_tail(&self, bytes: usize) -> Vec<u8> {
        area::encode_tail(&self.own, bytes)
    }

    /// Encodes the attribute block; `None` if it would be empty.
    pub(crate) fn encode_block(&self, bytes: usize) -> Option<Vec<u8>> {
        (!self.block.is_empty()).then(|| area::encode_block(&self.block, bytes))
    }

    /// Sets an attribute: in the inode if it fits, else in the block.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoAttribute`] according to `mode`; [`Error::TooBig`] for a value above the size limit;
    /// [`Error::NoSpace`] if it fits neither location. Nothing is changed on error.
    pub(crate) fn set(&mut self, new: Attribute, mode: SetMode, room: Room) -> Result<Changed> {
        if new.value.len() > MAX_VALUE_BYTES as usize {
            return Err(Error::TooBig);
        }
        let mut next = self.clone();
        let old_own = take(&mut next.own, new.index, &new.name);
        let old_block = take(&mut next.block, new.index, &new.name);
        let old = old_own.as_ref().or(old_block.as_ref());
        match (mode, old) {
            (SetMode::Create, Some(_)) => return Err(Error::Exists),
            (SetMode::Replace, None) => return Err(Error::NoAttribute),
            _ => {}
        }
        if old == Some(&new) {
            return Ok(Changed::default());
        }
        let mut changed = Changed { own: old_own.is_some(), block: old_block.is_some() };
        next.own.push(new);
        if area::fits_tail(&next.own, room.own) {
            changed.own = true;
        } else {
            next.block.extend(next.own.pop());
            if !area::fits_block(&next.block, room.block) {
                return Err(Error::NoSpace);
            }
            changed.block = true;
        }
        *self = next;
        Ok(changed)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`].
    pub(crate) fn remove(&mut self, index: u8, name: &[u8]) -> Result<Changed> {
        let own = take(&mut self.own, index, name).is_some();
        let block = take(&mut self.block, index, name).is_some();
        if own || block { Ok(Changed { own, block }) } else { Err(Error::NoAttribute) }
    }

    /// Returns the stored value of an attribute.
    pub(crate) fn get(&self, index: u8, name: &[u8]) -> Option<&[u8]> {
        let mut all = self.own.iter().chain(&self.block);
        all.find(|xattr| xattr.index == index && xattr.name == name).map(|xattr| &*xattr.value)
    }
}
