//! Writing file content.
//!
//! Data is submitted to the device before the map references it: new blocks are reserved, written, and then entered into the map
//! by a handle.

use std::ops::Range;

use super::WriteSource;
use super::pending::Pending;
use crate::allocate::ReservedAccess;
use crate::block_mapping::Mapping;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::RoCompat;
use crate::map::{self, MappedExtent};
use crate::time;

/// Maximum length of data that is copied to be written together with the zeros around it, in bytes.
const MAX_JOINED_BYTES: usize = 64 << 10;

/// A write request.
struct Bytes<'a> {
    offset: u64,
    data: WriteSource<'a>,
    rights: ReservedAccess,
    /// Update the timestamps.
    stamps: bool,
}

impl Filesystem {
    /// Writes bytes from `offset` on. Returns the number written, which is less than requested only if space ran out.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::TooLarge`], [`Error::ReadOnly`], [`Error::Corrupt`], [`Error::Io`].
    pub fn write(&self, number: u32, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_as(number, offset, data.into(), ReservedAccess::Reserved)
    }

    /// Performs [`write`](Self::write) with these rights.
    ///
    /// # Errors
    /// The errors of `write`; [`Error::NoSpace`] also if only reserved blocks are left.
    pub fn write_as(
        &self,
        number: u32,
        offset: u64,
        data: WriteSource<'_>,
        rights: ReservedAccess,
    ) -> Result<usize> {
        self.write_bytes(number, &Bytes { offset, data, rights, stamps: true })
    }

    /// Writes back cached data; otherwise like [`write_as`](Self::write_as). Leaves the timestamps unchanged: the owner of the
    /// cache [sets](Self::set_attributes) them to the time of the original write.
    ///
    /// # Errors
    /// The errors of `write_as`.
    pub fn write_back(
        &self,
        number: u32,
        offset: u64,
        data: WriteSource<'_>,
        rights: ReservedAccess,
    ) -> Result<usize> {
        let written = self.write_bytes(number, &Bytes { offset, data, rights, stamps: false });
        if let Some(timer) = &self.timer {
            timer.wrote_back();
        }
        written
    }

    fn write_bytes(&self, number: u32, bytes: &Bytes<'_>) -> Result<usize> {
        let &Bytes { offset, data, .. } = bytes;
        let _lock = self.locks.write(number);
        let mut inode = self.regular(number)?;
        if data.len() == 0 {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Error::TooLarge)?;
        if end > self.largest(&inode) {
            return Err(Error::TooLarge);
        }
        if !self.store.is_writable() {
            return Err(Error::ReadOnly);
        }
        if offset > inode.size {
            self.zero_behind_end(&inode, offset)?;
        }
        let mut done = 0;
        let result = self.with_space(|| self.write_from(&mut inode, bytes, &mut done));
        // Data written before space ran out is kept.
        match result {
            Err(Error::NoSpace) if done > 0 => {}
            result => result?,
        }
        Ok(done)
    }

    /// Returns the maximum size of a file of this format in bytes, as in the kernel: the inode must be able to count its blocks.
    pub(super) fn largest(&self, inode: &Inode) -> u64 {
        let largest = map::largest(&self.geometry, inode) << self.geometry.block_bits;
        match self.geometry.ro_compat.contains(RoCompat::LARGE_FILE) {
            true => largest.min(i64::MAX as u64),
            false => largest.min(i32::MAX as u64),
        }
    }

    fn write_from(
        &self,
        inode: &mut Inode,
        &Bytes { offset, data, rights, stamps }: &Bytes<'_>,
        done: &mut usize,
    ) -> Result<()> {
        let mut pending = Pending::default();
        // Data before `at` is submitted to the device.
        let mut at = *done;
        while at < data.len() {
            if pending.is_full() {
                self.enter(inode, (offset + at as u64, stamps), &mut pending)?;
                *done = at;
            }
            match self.write_run(inode, (offset + at as u64, data, at, rights), &mut pending) {
                Ok(count) => at += count,
                Err(error) => {
                    if at > *done {
                        self.enter(inode, (offset + at as u64, stamps), &mut pending)?;
                        *done = at;
                    }
                    return Err(error);
                }
            }
        }
        self.enter(inode, (offset + at as u64, stamps), &mut pending)?;
        *done = at;
        Ok(())
    }

    /// Enters the blocks written up to `end` into the map, and updates the timestamps if requested.
    fn enter(&self, inode: &mut Inode, (end, stamps): (u64, bool), pending: &mut Pending<'_>) -> Result<()> {
        if pending.is_empty() && end <= inode.size && !stamps {
            return Ok(());
        }
        let mut handle = self.store.begin(pending.credits())?;
        let (entered, result) = pending.enter(self, &mut handle, inode);
        let end = match (&result, entered) {
            (Ok(()), _) => end,
            // Only the pieces before the one for which the map had no room.
            (Err(Error::NoSpace), Some(block)) => end.min(block << self.geometry.block_bits),
            _ => return result,
        };
        inode.size = inode.size.max(end);
        if stamps {
            inode.mtime = time::now();
            inode.ctime = inode.mtime;
        }
        inode.save(&mut handle)?;
        handle.complete();
        result
    }

    /// Writes the first run of file blocks that `data`, from byte `from` on, overlaps.
    fn write_run<'a>(
        &'a self,
        inode: &Inode,
        (offset, data, from, rights): (u64, WriteSource<'_>, usize, ReservedAccess),
        pending: &mut Pending<'a>,
    ) -> Result<usize> {
        let bits = self.geometry.block_bits;
        let size = u64::from(self.geometry.block_size);
        let within = offset & (size - 1);
        let logical = (offset >> bits) as u32;
        let length = data.len() - from;
        let blocks = (within + length as u64).div_ceil(size).min(u32::MAX.into()) as u32;
        let run = map::map(&self.geometry, &self.store, inode, logical, blocks)?;
        let (start, blocks, reservation) = match run.mapping {
            Mapping::Written(start) => (start, run.length, None),
            Mapping::Unwritten(start) => (start, run.length, None),
            Mapping::Hole => {
                let reservation = self.reserve(inode, logical, run.length, rights)?;
                (reservation.start, reservation.count, Some(reservation))
            }
        };
        let room = (u64::from(blocks) * size - within).min(length as u64) as usize;
        let range = from..from + room;
        if matches!(run.mapping, Mapping::Written(_)) {
            data.write(range, self.store.device(), (start << bits) + within)?;
            return Ok(room);
        }
        self.write_new(start, within, data, range)?;
        pending.push(MappedExtent { logical, length: blocks, start, written: true }, reservation);
        Ok(room)
    }

    /// Writes to newly allocated or unwritten blocks, with zeros around the data.
    fn write_new(&self, start: u64, within: u64, data: WriteSource<'_>, range: Range<usize>) -> Result<()> {
        let device = self.store.device();
        let size = u64::from(self.geometry.block_size);
        let at = start << self.geometry.block_bits;
        let end = within + range.len() as u64;
        let behind = end.next_multiple_of(size) - end;
        let joins = (within > 0 || behind > 0) && range.len() <= MAX_JOINED_BYTES;
        match data {
            WriteSource::Bytes(bytes) if joins => {
                let mut whole = vec![0; (end + behind) as usize];
                whole[within as usize..end as usize].copy_from_slice(&bytes[range]);
                return Ok(device.write_at(at, &whole)?);
            }
            _ => {}
        }
        if within > 0 {
            device.write_at(at, &vec![0; within as usize])?;
        }
        data.write(range, device, at + within)?;
        if behind > 0 {
            device.write_at(at + end, &vec![0; behind as usize])?;
        }
        Ok(())
    }
}
