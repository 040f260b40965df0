//! Inodes: parsing and validation.

mod image;
mod save;

use zerocopy::FromBytes;

use crate::buffer::{BlockKind, MetadataCache};
use crate::checksum::crc32c;
use crate::checksum::owner_seed;
use crate::error::{Corruption, Error, Result};
use crate::group_desc::inode_table;
use crate::layout::{EXTENT_MAGIC, InodeFlags, RawInode, RoCompat};
use crate::superblock::Geometry;
use crate::time::Time;

/// File type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Kind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

impl Kind {
    /// Returns the file type bits of `st_mode` (`S_IFMT`), without permissions.
    pub fn mode(self) -> u16 {
        let kind = match self {
            Self::Fifo => 0o01,
            Self::CharDevice => 0o02,
            Self::Directory => 0o04,
            Self::BlockDevice => 0o06,
            Self::Regular => 0o10,
            Self::Symlink => 0o12,
            Self::Socket => 0o14,
        };
        kind << 12
    }

    /// Inverse of [`mode`](Self::mode).
    fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            0o01 => Self::Fifo,
            0o02 => Self::CharDevice,
            0o04 => Self::Directory,
            0o06 => Self::BlockDevice,
            0o10 => Self::Regular,
            0o12 => Self::Symlink,
            0o14 => Self::Socket,
            _ => return None,
        })
    }

    /// Decodes the file type of a directory entry; `None` if it is unset or unknown.
    pub(crate) fn of_entry(file_type: u8) -> Option<Self> {
        Some(match file_type {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// Returns the file type for a directory entry.
    pub(crate) fn to_entry(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }
}

/// A parsed inode.
#[derive(Debug, Clone)]
pub struct Inode {
    /// Inode number.
    pub number: u32,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits, setuid, setgid and sticky.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Size of the content in bytes.
    pub size: u64,
    /// Number of links.
    pub links: u32,
    /// Number of occupied units of 512 bytes, as reported by `stat`.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the inode.
    pub ctime: Time,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Creation time, if it is recorded.
    pub crtime: Option<Time>,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Generation: distinguishes successive uses of the number.
    pub generation: u32,
    /// Block of extended attributes; 0 if there is none.
    pub xattr_block: u64,
    /// Deletion time; for an orphan, the next inode on the orphan list.
    pub(crate) deletion: u32,
    /// Project ID.
    pub project: u32,
    /// First 60 bytes of content, or the root of the block map.
    pub(crate) block: [u8; 60],
    /// Bytes behind the fields: extended attributes.
    pub(crate) tail: Box<[u8]>,
}

impl Inode {
    /// Reads an inode in use.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a free inode, [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn read(geometry: &Geometry, store: &MetadataCache, number: u32) -> Result<Self> {
        let (block, start) = Self::table_position(geometry, store, number)?;
        let bytes = store.get(block, BlockKind::Inodes, |_| Ok(()))?;
        let bytes = &bytes[start..start + usize::from(geometry.inode_size)];
        Self::parse(geometry, number, bytes)
            .map_err(|error| match error {
                Error::Corrupt(corruption) => Error::Corrupt(corruption.block(block)),
                other => other,
            })
            .map_err(|error| error.of_inode(number))
    }

    /// Builds the inode of the journal from its copy in the superblock: the block map and the two halves of the size.
    pub(crate) fn of_journal(number: u32, copy: &[u32; 17]) -> Self {
        let mut block = [0; 60];
        for (bytes, word) in block.chunks_exact_mut(4).zip(copy) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let extents = u16::from_le_bytes([block[0], block[1]]) == EXTENT_MAGIC;
        Self {
            number,
            kind: Kind::Regular,
            permissions: 0o600,
            uid: 0,
            gid: 0,
            size: u64::from(copy[15]) << 32 | u64::from(copy[16]),
            links: 1,
            blocks: 0,
            atime: Time::default(),
            ctime: Time::default(),
            mtime: Time::default(),
            crtime: None,
            flags: if extents { InodeFlags::EXTENTS } else { InodeFlags::empty() },
            generation: 0,
            xattr_block: 0,
            deletion: 0,
            project: 0,
            block,
            tail: Box::default(),
        }
    }

    /// Returns the block that contains an inode, and its offset there.
    fn table_position(geometry: &Geometry, store: &MetadataCache, number: u32) -> Result<(u64, usize)> {
        let (group, index) = geometry.locate_inode(number)?;
        let table = inode_table(geometry, store, group)?;
        let offset = u64::from(index) * u64::from(geometry.inode_size);
        let start = (offset & u64::from(geometry.block_size - 1)) as usize;
        Ok((table + (offset >> geometry.block_bits), start))
    }

    fn parse(geometry: &Geometry, number: u32, bytes: &[u8]) -> Result<Self> {
        let extra = match bytes.get(RawInode::BASE..RawInode::BASE + 2) {
            Some(extra) => usize::from(u16::from_le_bytes([extra[0], extra[1]])),
            None => 0,
        };
        if RawInode::BASE + extra > bytes.len() || extra % 4 != 0 {
            return Err(Corruption::new(format!(
                "{extra} bytes of extra fields exceed the inode size {}",
                bytes.len()
            ))
            .into());
        }
        let fields = (RawInode::BASE + extra).min(size_of::<RawInode>());
        let mut whole = [0; size_of::<RawInode>()];
        whole[..fields].copy_from_slice(&bytes[..fields]);
        let raw = RawInode::ref_from_bytes(&whole).expect("the size is that of the type");
        if raw.links_count.get() == 0 && raw.mode.get() == 0 {
            return Err(Error::NotFound);
        }
        if let Some(seed) = geometry.checksum_seed {
            let seed = owner_seed(seed, number, raw.generation.get());
            check_sum(seed, bytes, raw, extra)?;
        }
        let mode = raw.mode.get();
        let Some(kind) = Kind::of_mode(mode) else {
            return Err(Corruption::new(format!("mode {mode:#o} has an invalid file type")).into());
        };
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        let high = match kind {
            Kind::Regular | Kind::Directory | Kind::Symlink => u64::from(raw.size_high.get()) << 32,
            _ => 0,
        };
        let size = high | u64::from(raw.size_lo.get());
        if size > i64::MAX as u64 {
            return Err(Corruption::new(format!("size {size} is negative")).into());
        }
        let mut units = u64::from(raw.blocks_lo.get());
        if geometry.ro_compat.contains(RoCompat::HUGE_FILE) {
            units |= u64::from(raw.blocks_high.get()) << 32;
            if flags.contains(InodeFlags::HUGE_FILE) {
                units <<= geometry.block_bits - 9;
            }
        }
        if kind == Kind::Regular && flags.contains(InodeFlags::INLINE_DATA) {
            // Inline data occupies no blocks, but the kernel reports these units.
            units += size.div_ceil(512);
        }
        let has = |end: usize| (RawInode::BASE + extra >= end).then_some(());
        Ok(Self {
            number,
            kind,
            permissions: mode & 0o7777,
            uid: u32::from(raw.uid_high.get()) << 16 | u32::from(raw.uid.get()),
            gid: u32::from(raw.gid_high.get()) << 16 | u32::from(raw.gid.get()),
            size,
            links: raw.links_count.get().into(),
            blocks: units,
            atime: Time::decode(raw.atime.get(), has(0x90).map(|()| raw.atime_extra.get())),
            ctime: Time::decode(raw.ctime.get(), has(0x88).map(|()| raw.ctime_extra.get())),
            mtime: Time::decode(raw.mtime.get(), has(0x8c).map(|()| raw.mtime_extra.get())),
            crtime: has(0x98).map(|()| Time::decode(raw.crtime.get(), Some(raw.crtime_extra.get()))),
            flags,
            generation: raw.generation.get(),
            xattr_block: u64::from(raw.file_acl_high.get()) << 32 | u64::from(raw.file_acl_lo.get()),
            deletion: raw.dtime.get(),
            project: raw.projid.get(),
            block: raw.block,
            tail: bytes[RawInode::BASE + extra..].into(),
        })
    }

    /// Number of bytes of the fields behind the original 128-byte inode.
    pub(crate) fn extra(&self, geometry: &Geometry) -> usize {
        usize::from(geometry.inode_size) - RawInode::BASE - self.tail.len()
    }

    /// Returns the major and minor number of a device node.
    pub fn device(&self) -> Option<(u32, u32)> {
        if !matches!(self.kind, Kind::CharDevice | Kind::BlockDevice) {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes(self.block[at..at + 4].try_into().expect("four bytes"));
        Some(match word(0) {
            // New format: the minor number is in two parts around the major.
            0 => {
                let new = word(4);
                (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xfff00)
            }
            old => (old >> 8 & 0xff, old & 0xff),
        })
    }

    /// Reports whether a symbolic link's target is stored in place of the block map; then only extended attributes occupy blocks.
    pub(crate) fn is_short_link(&self, geometry: &Geometry) -> bool {
        let own = if self.xattr_block == 0 { 0 } else { u64::from(geometry.block_size / 512) };
        self.kind == Kind::Symlink
            && self.blocks == own
            && self.size < self.block.len() as u64
            && !self.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS)
    }

    /// Returns the checksum seed of the structures that belong to this inode.
    pub(crate) fn seed(&self, geometry: &Geometry) -> Option<u32> {
        geometry.checksum_seed.map(|seed| owner_seed(seed, self.number, self.generation))
    }
}

/// Computes the checksum of an inode, with both halves of the field taken as zero. The upper half may not exist.
fn sum(seed: u32, bytes: &[u8], extra: usize) -> u32 {
    let sum = crc32c(crc32c(seed, &bytes[..0x7c]), &[0; 2]);
    if extra < 4 {
        return crc32c(sum, &bytes[0x7e..]) & 0xffff;
    }
    let sum = crc32c(crc32c(sum, &bytes[0x7e..0x82]), &[0; 2]);
    crc32c(sum, &bytes[0x84..])
}

fn check_sum(seed: u32, bytes: &[u8], raw: &RawInode, extra: usize) -> Result<()> {
    let mut stored = u32::from(raw.checksum_lo.get());
    if extra >= 4 {
        stored |= u32::from(raw.checksum_hi.get()) << 16;
    }
    let computed = sum(seed, bytes, extra);
    if stored != computed {
        return Err(Corruption::new(format!("checksum {stored:#010x}, computed {computed:#010x}")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_1901_to_2446() {
        let time = |seconds: u32, extra| Time::decode(seconds, Some(extra)).seconds;
        assert_eq!(time(0x8000_0000, 0), -(1 << 31));
        assert_eq!(time(0x7fff_ffff, 0), (1 << 31) - 1);
        assert_eq!(time(0x8000_0000, 1), 1 << 31);
        assert_eq!(time(0x7fff_ffff, 3), (3 << 32) + (1 << 31) - 1);
        assert_eq!(Time::decode(5, Some(999_999_999 << 2)).nanoseconds, 999_999_999);
        assert_eq!(Time::decode(5, Some(u32::MAX)).nanoseconds, 0);
    }
}
