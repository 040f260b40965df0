//! Encoding inodes and writing them to the inode table.

use zerocopy::FromBytes;

use super::{Inode, Kind, sum};
use crate::buffer::{BlockKind, Handle};
use crate::checksum::owner_seed;
use crate::error::{Error, Result};
use crate::layout::{InodeFlags, RawInode, RoCompat};
use crate::superblock::Geometry;
use crate::time::Time;

/// Maximum number of units of 512 bytes that 32 and 48 bits can count.
const MAX_UNITS_32_BIT: u64 = u32::MAX as u64;
const MAX_UNITS_48_BIT: u64 = (1 << 48) - 1;

impl Inode {
    /// Writes the inode. On-disk fields that [`Inode`] does not represent stay unchanged.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for sizes that require a missing feature; the errors of the cache.
    pub(crate) fn save(&self, handle: &mut Handle<'_>) -> Result<()> {
        self.put(handle, false)
    }

    /// Writes the inode, erasing the previous content of its slot.
    ///
    /// # Errors
    /// The errors of [`save`](Self::save).
    pub(crate) fn save_new(&self, handle: &mut Handle<'_>) -> Result<()> {
        self.put(handle, true)
    }

    /// Sets only the deletion time, which links orphans: it is changed with the inode's neighbours on the list, and not by
    /// [`save`](Self::save).
    pub(crate) fn set_deletion(handle: &mut Handle<'_>, number: u32, deletion: u32) -> Result<()> {
        let store = handle.store();
        let geometry = store.geometry();
        let (block, start) = Self::table_position(geometry, store, number)?;
        handle.change(
            block,
            BlockKind::Inodes,
            |_| Ok(()),
            |bytes| {
                let bytes = &mut bytes[start..start + usize::from(geometry.inode_size)];
                bytes[0x14..0x18].copy_from_slice(&deletion.to_le_bytes());
                let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
                let generation = word(0x64);
                let extra = match bytes.get(RawInode::BASE..RawInode::BASE + 2) {
                    Some(extra) => usize::from(u16::from_le_bytes([extra[0], extra[1]])),
                    None => 0,
                };
                fill_sum(geometry, number, generation, bytes, extra);
                Ok(())
            },
        )
    }

    fn put(&self, handle: &mut Handle<'_>, new: bool) -> Result<()> {
        let store = handle.store();
        let geometry = store.geometry();
        let (block, start) = Self::table_position(geometry, store, self.number)?;
        let size = usize::from(geometry.inode_size);
        handle.change(
            block,
            BlockKind::Inodes,
            |_| Ok(()),
            |bytes| self.encode(geometry, &mut bytes[start..start + size], new),
        )
    }

    fn encode(&self, geometry: &Geometry, bytes: &mut [u8], new: bool) -> Result<()> {
        let extra = bytes.len() - RawInode::BASE - self.tail.len();
        let fields = (RawInode::BASE + extra).min(size_of::<RawInode>());
        let mut whole = [0; size_of::<RawInode>()];
        if !new {
            whole[..fields].copy_from_slice(&bytes[..fields]);
        }
        let raw = RawInode::mut_from_bytes(&mut whole).expect("the size is that of the type");
        self.fill(geometry, raw, extra)?;
        // Nothing below fails.
        if new {
            bytes.fill(0);
        }
        bytes[..fields].copy_from_slice(&whole[..fields]);
        bytes[RawInode::BASE + extra..].copy_from_slice(&self.tail);
        fill_sum(geometry, self.number, self.generation, bytes, extra);
        Ok(())
    }

    fn fill(&self, geometry: &Geometry, raw: &mut RawInode, extra: usize) -> Result<()> {
        raw.mode.set(self.permissions & 0o7777 | self.kind.mode());
        raw.uid.set(self.uid as u16);
        raw.uid_high.set((self.uid >> 16) as u16);
        raw.gid.set(self.gid as u16);
        raw.gid_high.set((self.gid >> 16) as u16);
        raw.size_lo.set(self.size as u32);
        if matches!(self.kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            if self.size > i32::MAX as u64 && !geometry.ro_compat.contains(RoCompat::LARGE_FILE) {
                return Err(Error::TooLarge);
            }
            raw.size_high.set((self.size >> 32) as u32);
        }
        raw.links_count.set(u16::try_from(self.links).map_err(|_| Error::Invalid)?);
        raw.block = self.block;
        raw.generation.set(self.generation);
        raw.file_acl_lo.set(self.xattr_block as u32);
        raw.file_acl_high.set((self.xattr_block >> 32) as u16);
        let (units, huge) = self.units(geometry)?;
        raw.blocks_lo.set(units as u32);
        if geometry.ro_compat.contains(RoCompat::HUGE_FILE) {
            raw.blocks_high.set((units >> 32) as u16);
        }
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, huge);
        raw.flags.set(flags.bits());
        if extra >= 4 {
            raw.extra_isize.set(extra as u16);
        }
        // Bytes beyond the inode's extra size are cut off by the copy. Without the upper bits of the seconds, a time after 2038
        // would wrap to one before 1970.
        let latest = Time::latest(extra);
        for (time, low, high) in [
            (self.atime, &mut raw.atime, &mut raw.atime_extra),
            (self.mtime, &mut raw.mtime, &mut raw.mtime_extra),
            (self.ctime, &mut raw.ctime, &mut raw.ctime_extra),
            (self.crtime.unwrap_or_default(), &mut raw.crtime, &mut raw.crtime_extra),
        ] {
            let (seconds, more) = time.min(latest).encode();
            low.set(seconds);
            high.set(more);
        }
        raw.projid.set(self.project);
        Ok(())
    }

    /// Returns the block count in the units that the inode uses, and whether these are blocks.
    fn units(&self, geometry: &Geometry) -> Result<(u64, bool)> {
        let limit = match geometry.ro_compat.contains(RoCompat::HUGE_FILE) {
            true => MAX_UNITS_48_BIT,
            false => MAX_UNITS_32_BIT,
        };
        if self.blocks <= limit {
            return Ok((self.blocks, false));
        }
        let blocks = self.blocks >> (geometry.block_bits - 9);
        if limit == MAX_UNITS_32_BIT || blocks > limit {
            return Err(Error::TooLarge);
        }
        Ok((blocks, true))
    }
}

pub(super) fn fill_sum(geometry: &Geometry, number: u32, generation: u32, bytes: &mut [u8], extra: usize) {
    let Some(seed) = geometry.checksum_seed else { return };
    let sum = sum(owner_seed(seed, number, generation), bytes, extra).to_le_bytes();
    bytes[0x7c..0x7e].copy_from_slice(&sum[..2]);
    if extra >= 4 {
        bytes[0x82..0x84].copy_from_slice(&sum[2..]);
    }
}

/// Extra bytes up to the end of the upper bits of all timestamps except that of creation.
const TIMES_EXTRA_BYTES: usize = 0x90 - RawInode::BASE;

impl Time {
    /// Returns the latest timestamp that an inode with this number of extra bytes can store.
    pub(crate) fn latest(extra: usize) -> Self {
        let seconds = if extra < TIMES_EXTRA_BYTES { i32::MAX.into() } else { (3 << 32) + (1 << 31) - 1 };
        Self { seconds, nanoseconds: 0 }
    }

    /// Inverse of `decode`; out-of-range times become the nearest valid one.
    fn encode(self) -> (u32, u32) {
        let seconds = self.seconds.clamp(-(1 << 31), (3 << 32) + (1 << 31) - 1);
        let low = seconds as u32;
        let epoch = ((seconds - i64::from(low as i32)) >> 32) as u32 & 3;
        (low, epoch | self.nanoseconds.min(999_999_999) << 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_were_written() {
        let ends = [-(1_i64 << 31), -1, 0, 1, (1 << 31) - 1, 1 << 31, 5 << 31, (3 << 32) + (1 << 31) - 1];
        for seconds in ends {
            let time = Time { seconds, nanoseconds: 999_999_999 };
            let (low, extra) = time.encode();
            assert_eq!(Time::decode(low, Some(extra)), time);
        }
        let far = Time { seconds: i64::MAX, nanoseconds: 0 };
        let (low, extra) = far.encode();
        assert_eq!(Time::decode(low, Some(extra)).seconds, (3 << 32) + (1 << 31) - 1);
    }
}
