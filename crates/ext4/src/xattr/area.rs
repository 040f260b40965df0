//! Encoding and decoding of attribute lists in inodes and attribute blocks.

use zerocopy::IntoBytes;

use super::{Value, walk};
use crate::error::{Corruption, Result};
use crate::layout::{XATTR_MAGIC, XattrEntry, XattrHeader};

/// An attribute in its stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// Index of the name's prefix.
    pub(crate) index: u8,
    /// Rest of the name.
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

const HEADER_BYTES: usize = size_of::<XattrHeader>();

/// Size of the word that terminates a list of entries, and of the magic before the entries in an inode.
const WORD_BYTES: usize = 4;

impl Attribute {
    fn needed(&self) -> usize {
        size_of::<XattrEntry>() + self.name.len().next_multiple_of(4) + self.value.len().next_multiple_of(4)
    }

    /// Sort key of entries in a block.
    fn order(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }

    /// Hash over the name, then the words of the value, padded with zeros.
    fn hash(&self) -> u32 {
        let of_name = self.name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
        self.value.chunks(4).fold(of_name, |hash, bytes| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// Decodes a list.
fn decode(entries: &[u8], values: &[u8]) -> Result<Vec<Attribute>> {
    let mut list = Vec::new();
    walk(entries, values, |raw| {
        let Value::Here(value) = raw.value else {
            return Err(Corruption::new("extended attribute: its value is in an inode").into());
        };
        list.push(Attribute { index: raw.index, name: raw.name.to_vec(), value: value.to_vec() });
        Ok(None::<()>)
    })?;
    Ok(list)
}

/// Decodes the attributes behind the fields of an inode.
pub(super) fn decode_tail(tail: &[u8]) -> Result<Vec<Attribute>> {
    match tail.split_at_checked(WORD_BYTES) {
        Some((magic, entries)) if magic == XATTR_MAGIC.to_le_bytes() => decode(entries, entries),
        _ => Ok(Vec::new()),
    }
}

/// Decodes the attributes of a verified block.
pub(super) fn decode_block(block: &[u8]) -> Result<Vec<Attribute>> {
    decode(&block[HEADER_BYTES..], block)
}

/// Reports whether a list fits into this number of bytes behind the fields of an inode.
pub(super) fn fits_tail(list: &[Attribute], bytes: usize) -> bool {
    list.is_empty() || 2 * WORD_BYTES + list.iter().map(Attribute::needed).sum::<usize>() <= bytes
}

/// Reports whether a list fits into a block of this size.
pub(super) fn fits_block(list: &[Attribute], bytes: usize) -> bool {
    HEADER_BYTES + WORD_BYTES + list.iter().map(Attribute::needed).sum::<usize>() <= bytes
}

/// Writes entries from `start` on and their values at the end of a zeroed area that has room for them; offsets count from `base`.
fn encode(bytes: &mut [u8], start: usize, base: usize, list: &[&Attribute], hashed: bool) {
    let (mut at, mut end) = (start, bytes.len());
    for attribute in list {
        let Attribute { index, name, value } = attribute;
        end -= value.len().next_multiple_of(4);
        bytes[end..end + value.len()].copy_from_slice(value);
        let entry = XattrEntry {
            name_len: name.len() as u8,
            name_index: *index,
            // In a block of 64 KiB, an empty value at the very end would have an offset that does not fit 16 bits.
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

/// Encodes the attributes behind the fields of an inode.
pub(super) fn encode_tail(list: &[Attribute], bytes: usize) -> Vec<u8> {
    let mut tail = vec![0; bytes];
    if !list.is_empty() {
        tail[..WORD_BYTES].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
        encode(&mut tail, WORD_BYTES, WORD_BYTES, &list.iter().collect::<Vec<_>>(), false);
    }
    tail
}

/// Encodes an attribute block for one inode, without its checksum.
pub(super) fn encode_block(list: &[Attribute], bytes: usize) -> Vec<u8> {
    let mut list: Vec<_> = list.iter().collect();
    list.sort_by_key(|attribute| attribute.order());
    let hash = list.iter().fold(0_u32, |hash, attribute| hash.rotate_left(16) ^ attribute.hash());
    let header = XattrHeader {
        magic: XATTR_MAGIC.into(),
        refcount: 1.into(),
        blocks: 1.into(),
        // A block hash of 0 means that the block must not be shared, as does a hash of 0 of any entry.
        hash: if list.iter().any(|attribute| attribute.hash() == 0) { 0 } else { hash }.into(),
        checksum: 0.into(),
        reserved: [0.into(); 3],
    };
    let mut block = vec![0; bytes];
    block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    encode(&mut block, HEADER_BYTES, 0, &list, true);
    block
}
