//! The list of entries in one block.

use zerocopy::FromBytes;

use super::Entry;
use crate::error::Corruption;
use crate::inode::Kind;
use crate::layout::{DirEntry, DirTail, Incompat, TAIL_TYPE};
use crate::superblock::Geometry;

/// An entry as it lies in a block. An inode of 0 marks room that is free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    pub(crate) inode: u32,
    pub(crate) name: &'a [u8],
    pub(crate) kind: Option<Kind>,
    /// What the disk has for `kind`.
    pub(crate) file_type: u8,
    /// Where it begins in the block.
    pub(crate) start: u64,
    /// Where the next one does.
    pub(crate) end: u64,
}

/// The entries of a block, each checked before it is told. Ends after the first that is wrong.
pub(crate) struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    inodes: u32,
    typed: bool,
    /// The names were looked at before, or may be any bytes.
    verified: bool,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(block: &'a [u8], geometry: &Geometry) -> Self {
        let typed = geometry.incompat.contains(Incompat::FILETYPE);
        Self { block, at: 0, inodes: geometry.inodes, typed, verified: false }
    }

    /// The entries of a block whose names are encrypted: any bytes.
    pub(crate) fn of_encrypted(block: &'a [u8], geometry: &Geometry) -> Self {
        Self::of_verified(block, 0, geometry)
    }

    /// The entries from `at` on of a block that was verified. All that memory depends on is checked again; that a name
    /// can be a name is not, which is most of the work.
    pub(super) fn of_verified(block: &'a [u8], at: usize, geometry: &Geometry) -> Self {
        Self { at, verified: true, ..Self::new(block, geometry) }
    }

    /// Tells those in use from `offset` on, where the block begins at `base`, until `take` has enough and returns false;
    /// so does this.
    pub(crate) fn tell(
        self,
        base: u64,
        offset: u64,
        take: &mut impl FnMut(Entry) -> bool,
    ) -> Result<bool, Corruption> {
        for entry in self {
            let RawEntry { inode, name, kind, start, end, .. } = entry?;
            if inode == 0 || base + start < offset {
                continue;
            }
            if !take(Entry { name: name.to_vec(), inode, kind, next: base + end }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entry(&self) -> Result<RawEntry<'a>, Corruption> {
        let start = self.at;
        let wrong = |what: String| Err(Corruption::new(format!("directory entry at {start}: {what}")));
        let Ok((raw, rest)) = DirEntry::read_from_prefix(self.block.get(start..).unwrap_or_default()) else {
            return wrong("no room for it".into());
        };
        let length = record_length(raw.rec_len.get(), self.block.len());
        let head = size_of::<DirEntry>();
        let name = usize::from(raw.name_len);
        if !length.is_multiple_of(4) || length < head + name || length > self.block.len() - start {
            return wrong(format!("length {length} with a name of {name} bytes"));
        }
        let inode = raw.inode.get();
        if inode > self.inodes {
            return wrong(format!("there is no inode {inode}"));
        }
        let name = &rest[..name];
        if !self.verified && inode != 0 && (name.is_empty() || name.contains(&b'/') || name.contains(&0)) {
            return wrong(format!("the name {} cannot be", name.escape_ascii()));
        }
        let kind = if self.typed { Kind::of_entry(raw.file_type) } else { None };
        let (start, end) = (start as u64, (start + length) as u64);
        Ok(RawEntry { inode, name, kind, file_type: raw.file_type, start, end })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.block.len() {
            return None;
        }
        let entry = self.entry();
        self.at = entry.as_ref().map_or(self.block.len(), |entry| entry.end as usize);
        Some(entry)
    }
}

/// The length of a record. Blocks of 64 KiB need one more value than 16 bits have.
pub(super) fn record_length(raw: u16, block: usize) -> usize {
    match raw {
        0 | u16::MAX if block == 1 << 16 => block,
        // Two bits that alignment leaves free are the highest of larger lengths.
        raw if block > 1 << 15 => usize::from(raw & !3) | usize::from(raw & 3) << 16,
        raw => raw.into(),
    }
}

/// Inode and length of the record at `start`.
pub(super) fn head(block: &[u8], start: usize) -> Option<(u32, usize)> {
    let (entry, _) = DirEntry::read_from_prefix(block.get(start..)?).ok()?;
    Some((entry.inode.get(), record_length(entry.rec_len.get(), block.len())))
}

/// Sets the length of the record at `start`.
pub(super) fn set_length(block: &mut [u8], start: usize, length: usize) {
    let raw = match length {
        // Only in blocks of 64 KiB.
        0x1_0000 => u16::MAX,
        length => length as u16,
    };
    block[start + 4..start + 6].copy_from_slice(&raw.to_le_bytes());
}

/// Bytes of the tail of a leaf.
pub(super) const TAIL: usize = size_of::<DirTail>();

/// The checksum at the end of a leaf, where there is one.
pub(super) fn tail_sum(block: &[u8]) -> Option<u32> {
    let tail = DirTail::ref_from_bytes(&block[block.len() - TAIL..]).ok()?;
    let is_tail = tail.reserved_zero1.get() == 0
        && tail.rec_len.get() == 12
        && tail.reserved_zero2 == 0
        && tail.reserved_ft == TAIL_TYPE;
    is_tail.then(|| tail.checksum.get())
}
