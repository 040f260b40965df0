//! Attributes as they lie in an inode or a block: taken apart, and put together.

use zerocopy::IntoBytes;

use super::{Value, walk};
use crate::error::{Corruption, Result};
use crate::layout::{XATTR_MAGIC, XattrEntry, XattrHeader};

/// An attribute as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// What stands for the first part of the name.
    pub(crate) index: u8,
    /// The rest of the name.
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

const HEADER: usize = size_of::<XattrHeader>();

/// The word that ends a list of entries, and the magic before those in an inode.
const WORD: usize = 4;

impl Attribute {
    fn needed(&self) -> usize {
        size_of::<XattrEntry>() + self.name.len().next_multiple_of(4) + self.value.len().next_multiple_of(4)
    }

    /// Blocks keep their entries in this order.
    fn order(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }

    /// Over the name, then the value's words, filled up with zeros.
    fn hash(&self) -> u32 {
        let of_name = self.name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
        self.value.chunks(4).fold(of_name, |hash, bytes| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// Takes a list apart.
fn decode(entries: &[u8], values: &[u8]) -> Result<Vec<Attribute>> {
    let mut list = Vec::new();
    walk(entries, values, |raw| {
        let Value::Here(value) = raw.value else {
            return Err(Corruption::new("extended attribute: its value lies in an inode").into());
        };
        list.push(Attribute { index: raw.index, name: raw.name.to_vec(), value: value.to_vec() });
        Ok(None::<()>)
    })?;
    Ok(list)
}

/// The attributes behind the fields of an inode.
pub(super) fn decode_tail(tail: &[u8]) -> Result<Vec<Attribute>> {
    match tail.split_at_checked(WORD) {
        Some((magic, entries)) if magic == XATTR_MAGIC.to_le_bytes() => decode(entries, entries),
        _ => Ok(Vec::new()),
    }
}

/// The attributes of a verified block.
pub(super) fn decode_block(block: &[u8]) -> Result<Vec<Attribute>> {
    decode(&block[HEADER..], block)
}

/// Whether a list fits a room of so many bytes behind the fields of an inode.
pub(super) fn fits_tail(list: &[Attribute], bytes: usize) -> bool {
    list.is_empty() || 2 * WORD + list.iter().map(Attribute::needed).sum::<usize>() <= bytes
}

/// Whether a list fits a block of so many bytes.
pub(super) fn fits_block(list: &[Attribute], bytes: usize) -> bool {
    HEADER + WORD + list.iter().map(Attribute::needed).sum::<usize>() <= bytes
}

/// Writes entries from `start` on and their values at the end, all into zeros; offsets count from `base`. They must fit.
fn encode(bytes: &mut [u8], start: usize, base: usize, list: &[&Attribute], hashed: bool) {
    let (mut at, mut end) = (start, bytes.len());
    for attribute in list {
        let Attribute { index, name, value } = attribute;
        end -= value.len().next_multiple_of(4);
        bytes[end..end + value.len()].copy_from_slice(value);
        let entry = XattrEntry {
            name_len: name.len() as u8,
            name_index: *index,
            // A block of 64 KiB has room for a value at its very end, which must have no bytes then.
            value_offs: if value.is_empty() { 0 } else { (end - base) as u16 }.into(),
            value_inum: 0.into(),
            value_size: (value.len() as u32).into(),
            hash: if hashed { attribute.hash() } else { 0 }.into(),
        };
        let head = size_of_val(&entry);
        bytes[at..at + head].copy_from_slice(entry.as_bytes());
        bytes[at + head..at + head + name.len()].copy_from_slice(name);
        at += head + name.len().next_multiple_of(4);
    }
}

/// What lies behind the fields of an inode.
pub(super) fn encode_tail(list: &[Attribute], bytes: usize) -> Vec<u8> {
    let mut tail = vec![0; bytes];
    if !list.is_empty() {
        tail[..WORD].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
        encode(&mut tail, WORD, WORD, &list.iter().collect::<Vec<_>>(), false);
    }
    tail
}

/// A block of attributes for one inode, its checksum not filled in.
pub(super) fn encode_block(list: &[Attribute], bytes: usize) -> Vec<u8> {
    let mut list: Vec<_> = list.iter().collect();
    list.sort_by_key(|attribute| attribute.order());
    let hash = list.iter().fold(0_u32, |hash, attribute| hash.rotate_left(16) ^ attribute.hash());
    let header = XattrHeader {
        magic: XATTR_MAGIC.into(),
        refcount: 1.into(),
        blocks: 1.into(),
        // A hash of 0 says that the block is not to be shared, as that of one entry does.
        hash: if list.iter().any(|attribute| attribute.hash() == 0) { 0 } else { hash }.into(),
        checksum: 0.into(),
        reserved: [0.into(); 3],
    };
    let mut block = vec![0; bytes];
    block[..HEADER].copy_from_slice(header.as_bytes());
    encode(&mut block, HEADER, 0, &list, true);
    block
}
