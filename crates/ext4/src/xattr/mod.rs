//! Extended attributes in inodes and attribute blocks.

mod acl;
mod area;
mod change;
mod shared_blocks;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use acl::Acl;
pub(crate) use area::Attribute;
pub(crate) use change::Lists;
pub use change::SetMode;
pub(crate) use shared_blocks::release;
pub(crate) use write::{CREDITS, follow_mode, load, set_new};

use zerocopy::FromBytes;

use crate::buffer::{BlockKind, MetadataCache};
use crate::checksum::{crc32c, crc32c_without};
use crate::error::{Corruption, Error, Result};
use crate::inode::Inode;
use crate::layout::{Incompat, XATTR_MAGIC, XattrEntry, XattrHeader};
use crate::superblock::Geometry;

/// Prefix indexes of attribute names. The content of inline files is an attribute with a name of its own.
const PREFIXES: [(u8, &str); 8] = [
    (1, "user."),
    (2, "system.posix_acl_access"),
    (3, "system.posix_acl_default"),
    (4, "trusted."),
    (6, "security."),
    (7, "system."),
    (8, "system.richacl"),
    (9, "encryption."),
];

const SYSTEM_PREFIX: u8 = 7;

/// Prefix of the encryption context of an inode, which is hidden from users.
const ENCRYPTION_PREFIX: u8 = 9;

/// Maximum length of a value in bytes: the limit of `setxattr(2)`.
const MAX_VALUE_BYTES: u32 = 64 << 10;

/// An attribute in its stored form.
struct Raw<'a> {
    index: u8,
    name: &'a [u8],
    value: Value<'a>,
}

enum Value<'a> {
    Here(&'a [u8]),
    /// In a separate inode (`ea_inode`): number and size in bytes.
    Inode(u32, u32),
}

/// Iterates over entries from the start of `entries`, with values in `values`, until `take` returns a result.
fn walk<'a, T>(
    entries: &'a [u8],
    values: &'a [u8],
    mut take: impl FnMut(Raw<'a>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let wrong = |what: String| Err(Corruption::new(format!("extended attribute: {what}")).into());
    let mut rest = entries;
    loop {
        // Four zero bytes, or the end of the area, terminate the list.
        if rest.len() < 4 || rest[..4] == [0; 4] {
            return Ok(None);
        }
        let Ok((raw, after)) = XattrEntry::read_from_prefix(rest) else {
            return wrong("does not fit its area".into());
        };
        let length = usize::from(raw.name_len);
        let Some(name) = after.get(..length) else { return wrong("the name does not fit".into()) };
        let size = raw.value_size.get();
        let value = if raw.value_inum.get() != 0 {
            Value::Inode(raw.value_inum.get(), size)
        } else {
            let start = usize::from(raw.value_offs.get());
            match start.checked_add(size as usize).and_then(|end| values.get(start..end)) {
                Some(value) => Value::Here(value),
                None => return wrong(format!("the value of {size} bytes at {start} does not fit")),
            }
        };
        if let Some(found) = take(Raw { index: raw.name_index, name, value })? {
            return Ok(Some(found));
        }
        // Names are padded to a multiple of four bytes.
        rest = after.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Reader of the extended attributes of an inode.
#[derive(Clone, Copy)]
pub(crate) struct Xattrs<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) store: &'a MetadataCache,
    pub(crate) inode: &'a Inode,
}

impl Xattrs<'_> {
    fn each<T>(&self, mut take: impl FnMut(Raw<'_>) -> Result<Option<T>>) -> Result<Option<T>> {
        let of_inode = |error: Error| error.of_inode(self.inode.number);
        if let Some(entries) = self.inode.tail.strip_prefix(&XATTR_MAGIC.to_le_bytes()) {
            if let Some(found) = walk(entries, entries, &mut take).map_err(of_inode)? {
                return Ok(Some(found));
            }
        }
        let number = self.inode.xattr_block;
        if number == 0 {
            return Ok(None);
        }
        self.store.check_file_blocks(number, 1).map_err(|corruption| corruption.inode(self.inode.number))?;
        let verify =
            |bytes: &[u8]| Ok(verify(self.geometry, number, bytes).map_err(|wrong| wrong.block(number))?);
        let block = self.store.get(number, BlockKind::Xattrs, verify).map_err(of_inode)?;
        walk(&block[size_of::<XattrHeader>()..], &block, take).map_err(of_inode)
    }

    /// Returns the content of an inline file beyond the inode's own 60 bytes.
    pub(crate) fn inline_rest(&self) -> Result<Vec<u8>> {
        let found = self.each(|raw| match (raw.index, raw.name, raw.value) {
            (SYSTEM_PREFIX, b"data", Value::Here(value)) => Ok(Some(value.to_vec())),
            _ => Ok(None),
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the names of all attributes.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.each(|raw| {
            names.extend(full_name(raw.index, raw.name));
            Ok(None::<()>)
        })?;
        Ok(names)
    }

    /// Returns the value of an attribute. `read` reads a value stored in a separate inode.
    pub(crate) fn get(
        &self,
        name: &[u8],
        read: impl Fn(u32, u32) -> Result<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.each(|raw| {
            if full_name(raw.index, raw.name).as_deref() != Some(name) {
                return Ok(None);
            }
            let value = match raw.value {
                Value::Here(value) => value.to_vec(),
                Value::Inode(inode, size) => {
                    if !self.geometry.incompat.contains(Incompat::EA_INODE) || size > MAX_VALUE_BYTES {
                        return Err(Corruption::new(format!(
                            "extended attribute: invalid value of {size} bytes in inode {inode}"
                        ))
                        .into());
                    }
                    read(inode, size)?
                }
            };
            Ok(Some(if matches!(raw.index, 2 | 3) { acl::to_xattr(&value)? } else { value }))
        })
    }
}

/// Returns the name as in `getxattr(2)`; `None` for internal attributes.
fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    if index == SYSTEM_PREFIX && name == b"data" || index == ENCRYPTION_PREFIX {
        return None;
    }
    let (_, prefix) = PREFIXES.iter().find(|(number, _)| *number == index)?;
    Some([prefix.as_bytes(), name].concat())
}

/// Fills in the checksum of an attribute block.
pub(crate) fn fill_sum(seed: u32, number: u64, bytes: &mut [u8]) {
    let sum = crc32c_without(crc32c(seed, &number.to_le_bytes()), bytes, 16);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) fn verify(geometry: &Geometry, number: u64, bytes: &[u8]) -> std::result::Result<(), Corruption> {
    let wrong = |what: String| Err(Corruption::new(format!("attribute block: {what}")));
    let Ok((header, _)) = XattrHeader::read_from_prefix(bytes) else { return wrong("too short".into()) };
    if header.magic.get() != XATTR_MAGIC || header.blocks.get() != 1 {
        return wrong(format!("invalid magic {:#010x} or count of {} blocks", header.magic, header.blocks));
    }
    if let Some(seed) = geometry.checksum_seed {
        let computed = crc32c_without(crc32c(seed, &number.to_le_bytes()), bytes, 16);
        if header.checksum.get() != computed {
            return wrong(format!("checksum {:#010x}, computed {computed:#010x}", header.checksum));
        }
    }
    Ok(())
}
