//! Fast commits: what an fsync changed, told in a few records instead of blocks, since the last whole transaction.
//!
//! Each says what is, not what was done, so that all of them may be applied again from the start.

pub mod layout;
#[cfg(test)]
mod tests;

use layout::{AddRange, DelRange, Dentry, Head, RecordHeader, Tail, tag};
use zerocopy::FromBytes;

use super::{JournalArea, JournalSuperblock};
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::layout::Extent;

/// A change of which a fast commit tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Blocks of an inode lie where this extent says.
    Add { inode: u32, extent: [u8; size_of::<Extent>()] },
    /// Blocks of an inode are a hole.
    Delete { inode: u32, logical: u32, length: u32 },
    /// A name of an inode that is new.
    Create { parent: u32, inode: u32, name: Vec<u8> },
    /// A further name of an inode.
    Link { parent: u32, inode: u32, name: Vec<u8> },
    /// A name is gone.
    Unlink { parent: u32, inode: u32, name: Vec<u8> },
    /// The inode, without the map to its content.
    Inode { inode: u32, raw: Vec<u8> },
}

/// The changes since the last whole transaction, in their order; `next` is the one that would have come.
///
/// # Errors
/// [`Error::Unsupported`] for a form of records that is not known, [`Error::Io`].
pub(crate) fn read(log: &JournalArea, superblock: &JournalSuperblock, next: u32) -> Result<Vec<Change>> {
    let mut block = vec![0; log.block_size() as usize];
    let mut changes = Vec::new();
    // Changes count once the tail of their commit was seen.
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

/// Where one is after a block.
enum State {
    /// Within a fast commit.
    Open,
    /// Behind one.
    Complete,
    /// Nothing of use follows: remains of older ones, or what a cut left in half.
    End,
}

struct Reader {
    next: u32,
    sum: u32,
    begun: bool,
}

impl Reader {
    /// Reads the records of a block. None reaches into the next block, and a tail is the last one of its block.
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
                        let what = format!("of fast commits: {:#x}", head.features);
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
