//! The directory entries (`ext4_dir_entry_2`) of one block.

use zerocopy::FromBytes;

use super::Entry;
use crate::error::Corruption;
use crate::inode::Kind;
use crate::layout::{DirEntry, DirTail, Incompat, TAIL_TYPE};
use crate::superblock::Geometry;

/// A directory entry of a block. Inode 0 marks free space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    pub(crate) inode: u32,
    pub(crate) name: &'a [u8],
    pub(crate) kind: Option<Kind>,
    /// On-disk form of `kind`.
    pub(crate) file_type: u8,
    /// Offset of the entry in the block.
    pub(crate) start: u64,
    /// Offset of the next entry.
    pub(crate) end: u64,
}

/// Iterator over the entries of a block. Each is checked before it is returned; iteration ends after the first invalid one.
pub(crate) struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    inodes: u32,
    typed: bool,
    /// Skips checking names: they are verified already, or encrypted and therefore arbitrary bytes.
    verified: bool,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(block: &'a [u8], geometry: &Geometry) -> Self {
        let typed = geometry.incompat.contains(Incompat::FILETYPE);
        Self { block, at: 0, inodes: geometry.inodes, typed, verified: false }
    }

    /// Iterates over a block whose names are encrypted, and therefore arbitrary bytes.
    pub(crate) fn of_encrypted(block: &'a [u8], geometry: &Geometry) -> Self {
        Self::of_verified(block, 0, geometry)
    }

    /// Iterates over a verified block, starting at offset `at`. Everything that memory safety of parsing depends on is checked
    /// again; the validity of names, which is most of the work, is not.
    pub(super) fn of_verified(block: &'a [u8], at: usize, geometry: &Geometry) -> Self {
        Self { at, verified: true, ..Self::new(block, geometry) }
    }

    /// Passes the used entries from `offset` on to `take`, until it returns `false`. `base` is the offset of the block in the
    /// directory. Returns `false` if `take` ended the iteration.
    pub(crate) fn for_each_used(
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
            return wrong("does not fit the block".into());
        };
        let length = record_length(raw.rec_len.get(), self.block.len());
        let head = size_of::<DirEntry>();
        let name = usize::from(raw.name_len);
        if length % 4 != 0 || length < head + name || length > self.block.len() - start {
            return wrong(format!("invalid length {length} for a name of {name} bytes"));
        }
        let inode = raw.inode.get();
        if inode > self.inodes {
            return wrong(format!("inode number {inode} is out of range"));
        }
        let name = &rest[..name];
        if !self.verified && inode != 0 && (name.is_empty() || name.contains(&b'/') || name.contains(&0)) {
            return wrong(format!("invalid name {}", name.escape_ascii()));
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

/// Decodes the length of a record. Blocks of 64 KiB need one more value than 16 bits can represent.
pub(super) fn record_length(raw: u16, block: usize) -> usize {
    match raw {
        0 | u16::MAX if block == 1 << 16 => block,
        // The two low bits, which alignment leaves unused, are the highest bits of larger lengths.
        raw if block > 1 << 15 => usize::from(raw & !3) | usize::from(raw & 3) << 16,
        raw => raw.into(),
    }
}

/// Returns inode and length of the record at `start`.
pub(super) fn head(block: &[u8], start: usize) -> Option<(u32, usize)> {
    let (entry, _) = DirEntry::read_from_prefix(block.get(start..)?).ok()?;
    Some((entry.inode.get(), record_length(entry.rec_len.get(), block.len())))
}

/// Sets the length of the record at `start`.
pub(super) fn set_length(block: &mut [u8], start: usize, length: usize) {
    let raw = match length {
        // Occurs only in blocks of 64 KiB.
        0x1_0000 => u16::MAX,
        length => length as u16,
    };
    block[start + 4..start + 6].copy_from_slice(&raw.to_le_bytes());
}

/// Size in bytes of the tail of a leaf.
pub(super) const TAIL_BYTES: usize = size_of::<DirTail>();

/// Returns the checksum at the end of a leaf, if it has a tail.
pub(super) fn tail_sum(block: &[u8]) -> Option<u32> {
    let tail = DirTail::ref_from_bytes(&block[block.len() - TAIL_BYTES..]).ok()?;
    let is_tail = tail.reserved_zero1.get() == 0
        && tail.rec_len.get() == 12
        && tail.reserved_zero2 == 0
        && tail.reserved_ft == TAIL_TYPE;
    is_tail.then(|| tail.checksum.get())
}
