//! Fast commits: changes since the last full transaction, recorded by fsync as a few logical records instead of blocks.
//!
//! Each record describes the resulting state, not the operation, so that replay is idempotent.

pub(crate) mod layout;
#[cfg(test)]
mod tests;

use zerocopy::FromBytes;

use super::{JournalArea, JournalSuperblock};
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::layout::Extent;
use layout::{AddRange, DelRange, Dentry, Head, RecordHeader, Tail, tag};

/// A change recorded by a fast commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Maps blocks of an inode to this extent.
    Add { inode: u32, extent: [u8; size_of::<Extent>()] },
    /// Makes a range of an inode a hole.
    Delete { inode: u32, logical: u32, length: u32 },
    /// Adds the first name of a new inode.
    Create { parent: u32, inode: u32, name: Vec<u8> },
    /// Adds another name of an inode.
    Link { parent: u32, inode: u32, name: Vec<u8> },
    /// Removes a name.
    Unlink { parent: u32, inode: u32, name: Vec<u8> },
    /// Updates the inode, except for its block map.
    Inode { inode: u32, raw: Vec<u8> },
}

/// Reads the changes since the last full transaction, in order; `next` is the number of the transaction that would follow it.
///
/// # Errors
/// [`Error::Unsupported`] for an unknown record format, [`Error::Io`].
pub(crate) fn read(log: &JournalArea, superblock: &JournalSuperblock, next: u32) -> Result<Vec<Change>> {
    let mut block = vec![0; log.block_size() as usize];
    let mut changes = Vec::new();
    // Number of changes covered by the tail of a commit; only these count.
    let mut whole = 0;
    let mut reader = Reader { next, sum: 0, begun: false };
    for at in superblock.fast..superblock.length {
        log.read(at, &mut block)?;
        match reader.block(&block, &mut changes)? {
            State::Open => {}
            State::Complete => whole = changes.len(),
            State::End => break,
        }
    }
    changes.truncate(whole);
    Ok(changes)
}

/// State of the reader after a block.
enum State {
    /// Within a fast commit.
    Open,
    /// At the end of a fast commit.
    Complete,
    /// No valid records follow: leftovers of older commits, or a commit torn by a crash.
    End,
}

struct Reader {
    next: u32,
    sum: u32,
    begun: bool,
}

impl Reader {
    /// Reads the records of a block. No record spans two blocks, and a tail is the last record of its block.
    fn block(&mut self, block: &[u8], changes: &mut Vec<Change>) -> Result<State> {
        let mut rest = block;
        while let Ok((header, after)) = RecordHeader::read_from_prefix(rest) {
            let length = usize::from(header.len.get());
            let Some(value) = after.get(..length) else { return Ok(State::End) };
            let record = &rest[..size_of::<RecordHeader>() + length];
            match header.tag.get() {
                tag::HEAD => {
                    let Ok((head, _)) = Head::read_from_prefix(value) else { return Ok(State::End) };
                    if head.tid.get() != self.next {
                        return Ok(State::End);
                    }
                    if head.features.get() != 0 {
                        let what = format!("features {:#x} of fast commits", head.features);
                        return Err(Error::Unsupported(what));
                    }
                    self.begun = true;
                }
                tag::TAIL => {
                    let Ok((tail, _)) = Tail::read_from_prefix(value) else { return Ok(State::End) };
                    let covered = size_of::<RecordHeader>() + 4;
                    let sum = crc32c(self.sum, &record[..covered]);
                    self.sum = 0;
                    let right = self.begun && tail.tid.get() == self.next && tail.crc.get() == sum;
                    return Ok(if right { State::Complete } else { State::End });
                }
                tag::PAD => {}
                kind => match parse(kind, value) {
                    Some(change) if self.begun => changes.push(change),
                    _ => return Ok(State::End),
                },
            }
            self.sum = crc32c(self.sum, record);
            rest = &rest[record.len()..];
        }
        Ok(State::Open)
    }
}

fn parse(kind: u16, value: &[u8]) -> Option<Change> {
    let name = || {
        let (dentry, name) = Dentry::read_from_prefix(value).ok()?;
        Some((dentry.parent_ino.get(), dentry.ino.get(), name.to_vec()))
    };
    Some(match kind {
        tag::ADD_RANGE => {
            let (add, _) = AddRange::read_from_prefix(value).ok()?;
            Change::Add { inode: add.ino.get(), extent: zerocopy::transmute!(add.ex) }
        }
        tag::DEL_RANGE => {
            let (range, _) = DelRange::read_from_prefix(value).ok()?;
            Change::Delete { inode: range.ino.get(), logical: range.lblk.get(), length: range.len.get() }
        }
        tag::CREAT => name().map(|(parent, inode, name)| Change::Create { parent, inode, name })?,
        tag::LINK => name().map(|(parent, inode, name)| Change::Link { parent, inode, name })?,
        tag::UNLINK => name().map(|(parent, inode, name)| Change::Unlink { parent, inode, name })?,
        tag::INODE => {
            let (number, raw) = zerocopy::little_endian::U32::read_from_prefix(value).ok()?;
            Change::Inode { inode: number.get(), raw: raw.to_vec() }
        }
        _ => return None,
    })
}
