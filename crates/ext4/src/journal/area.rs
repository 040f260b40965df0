//! Block I/O on a journal, which is in an inode of the file system or on a separate device.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::JournalSuperblock;
use crate::block_mapping::{MappedRange, Mapping};
use crate::device::Device;
use crate::error::{Corruption, Error, Result};
use crate::layout::{Incompat, RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET};

/// A contiguous range of journal blocks.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// First block, numbered within the journal.
    logical: u32,
    /// First block, numbered on the device.
    start: u64,
    length: u32,
}

/// The blocks of a journal, addressed by their number in the journal.
#[derive(Clone)]
pub(crate) struct JournalArea {
    device: Arc<dyn Device>,
    block_bits: u32,
    stretches: Vec<Stretch>,
    blocks: u32,
    /// Block of the journal superblock: 0, or on an external device the block behind that of the device's superblock.
    superblock: u32,
    external: bool,
}

impl JournalArea {
    /// Creates the area of an internal journal of `blocks` blocks. `map` maps runs of the journal's inode, given the first block
    /// and the maximum length.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the journal has holes, and the errors of `map`.
    pub(crate) fn internal(
        device: Arc<dyn Device>,
        block_bits: u32,
        blocks: u32,
        mut map: impl FnMut(u32, u32) -> Result<MappedRange>,
    ) -> Result<Self> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut logical = 0;
        while logical < blocks {
            let run = map(logical, blocks - logical)?;
            let Mapping::Written(start) = run.mapping else {
                return Err(Corruption::new(format!("journal: block {logical} is out of range")).into());
            };
            let length = run.length.clamp(1, blocks - logical);
            match stretches.last_mut() {
                Some(last) if last.start + u64::from(last.length) == start => last.length += length,
                _ => stretches.push(Stretch { logical, start, length }),
            }
            logical += length;
        }
        Ok(Self { device, block_bits, stretches, blocks, superblock: 0, external: false })
    }

    /// Creates the area of an external journal, made with `mke2fs -O journal_dev`. The file system identifies it by `uuid`.
    ///
    /// # Errors
    /// [`Error::Journal`] if the device holds no external journal, or that of another file system.
    pub(crate) fn external(device: Arc<dyn Device>, block_bits: u32, uuid: &[u8; 16]) -> Result<Self> {
        let wrong = |what: &str| Err(Error::Journal(what.into()));
        let mut bytes = [0; size_of::<RawSuperblock>()];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let raw = RawSuperblock::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
        let incompat = Incompat::from_bits_retain(raw.feature_incompat.get());
        if raw.magic.get() != SUPERBLOCK_MAGIC || !incompat.contains(Incompat::JOURNAL_DEV) {
            return wrong("the given device has no external journal");
        }
        if raw.uuid != *uuid {
            return wrong("the given device has the journal of another file system");
        }
        if raw.log_block_size.get() + 10 != block_bits {
            return wrong("the block size of the given device differs from that of the file system");
        }
        let blocks = (device.size() >> block_bits).min(raw.blocks_count_lo.get().into()) as u32;
        let stretches = vec![Stretch { logical: 0, start: 0, length: blocks }];
        let superblock = (SUPERBLOCK_OFFSET >> block_bits) as u32 + 1;
        Ok(Self { device, block_bits, stretches, blocks, superblock, external: true })
    }

    /// Returns the number of blocks of the journal.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> u32 {
        1 << self.block_bits
    }

    /// Reports whether the journal is on a separate device.
    pub(crate) fn is_external(&self) -> bool {
        self.external
    }

    /// Returns the device that holds the journal.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Switches to another device with the same blocks; later writes go there.
    pub(crate) fn move_to(&mut self, device: Arc<dyn Device>) {
        self.device = device;
    }

    /// Reports whether a range of file system blocks overlaps the journal.
    pub(crate) fn overlaps(&self, start: u64, count: u64) -> bool {
        !self.external
            && self.stretches.iter().any(|stretch| {
                start < stretch.start + u64::from(stretch.length) && stretch.start < start + count
            })
    }

    /// Iterates over the ranges (start, end) of file system blocks that the journal occupies.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let inside = self.stretches.iter().filter(|_| !self.external);
        inside.map(|stretch| (stretch.start, stretch.start + u64::from(stretch.length)))
    }

    /// Splits `length` bytes from a block on at range boundaries; calls `each` with the device offset in bytes of each part.
    fn parts(
        &self,
        block: u32,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> std::io::Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        let mut block = block;
        while done < length {
            let index = self.stretches.partition_point(|stretch| stretch.logical <= block);
            let found = index.checked_sub(1).map(|index| self.stretches[index]);
            let Some(stretch) = found.filter(|stretch| block - stretch.logical < stretch.length) else {
                return Err(Corruption::new(format!("journal: block {block} is out of range")).into());
            };
            let skip = block - stretch.logical;
            let available = u64::from(stretch.length - skip) << self.block_bits;
            let count = ((length - done) as u64).min(available) as usize;
            each((stretch.start + u64::from(skip)) << self.block_bits, done..done + count)?;
            done += count;
            block += stretch.length - skip;
        }
        Ok(())
    }

    /// Reads from the start of a block on; several blocks if `bytes` is longer than one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] beyond the end, [`Error::Io`].
    pub(crate) fn read(&self, block: u32, bytes: &mut [u8]) -> Result<()> {
        self.parts(block, bytes.len(), |at, part| self.device.read_at(at, &mut bytes[part]))
    }

    /// Writes from the start of a block on. The data is durable after a flush of the [`device`](Self::device).
    ///
    /// # Errors
    /// [`Error::Corrupt`] beyond the end, [`Error::Io`].
    pub(crate) fn write(&self, block: u32, bytes: &[u8]) -> Result<()> {
        self.parts(block, bytes.len(), |at, part| self.device.write_at(at, &bytes[part]))
    }

    /// Reads the journal superblock.
    ///
    /// # Errors
    /// The errors of [`JournalSuperblock::parse`], and [`Error::Io`].
    pub(crate) fn superblock(&self) -> Result<JournalSuperblock> {
        let mut bytes = [0; 1024];
        self.read(self.superblock, &mut bytes)?;
        JournalSuperblock::parse(&bytes, self.block_size(), self.blocks)
    }

    /// Writes the journal superblock.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn set_superblock(&self, superblock: &JournalSuperblock) -> Result<()> {
        self.write(self.superblock, &superblock.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn blocks_are_found_where_they_lie() {
        let device = Arc::new(MemoryDevice::new((0..64_u32).flat_map(|n| [n as u8; 1024]).collect()));
        let runs = [(20, 3), (23, 1), (5, 2), (40, 4)];
        let map = |logical: u32, _| {
            let mut from = 0;
            for (start, length) in runs {
                if logical < from + length {
                    let skip = logical - from;
                    let mapping = Mapping::Written(u64::from(start + skip));
                    return Ok(MappedRange { logical, length: length - skip, mapping });
                }
                from += length;
            }
            Ok(MappedRange { logical, length: 1, mapping: Mapping::Hole })
        };
        let log = JournalArea::internal(device.clone(), 10, 10, map).unwrap();
        assert_eq!(log.stretches.len(), 3);
        let mut bytes = vec![0; 6 * 1024];
        log.read(2, &mut bytes).unwrap();
        let seen: Vec<u8> = bytes.chunks(1024).map(|block| block[0]).collect();
        assert_eq!(seen, [22, 23, 5, 6, 40, 41]);
        log.write(3, &[0xaa; 2048]).unwrap();
        assert_eq!([device.bytes()[23 * 1024], device.bytes()[5 * 1024]], [0xaa; 2]);
        assert!(log.read(9, &mut bytes).is_err());
        assert!(log.overlaps(40, 1) && log.overlaps(43, 9) && !log.overlaps(44, 1) && !log.overlaps(7, 13));
        assert!(JournalArea::internal(device, 10, 11, map).is_err());
    }
}
