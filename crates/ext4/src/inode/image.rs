//! Raw inodes of fast commits, which do not contain the block map.

use super::save::fill_sum;
use super::{Inode, Kind};
use crate::buffer::{BlockKind, Handle};
use crate::error::{Corruption, Error, Result};
use crate::layout::{InodeFlags, RawInode};

/// Byte range of the block map in a raw inode.
const MAP_RANGE: std::ops::Range<usize> = 0x28..0x64;
const DTIME_RANGE: std::ops::Range<usize> = 0x14..0x18;

/// An empty extent tree: magic, 0 of 4 entries, depth 0.
const EMPTY_EXTENT_TREE: [u8; 8] = [0x0a, 0xf3, 0, 0, 4, 0, 0, 0];

impl Inode {
    /// Returns the generation of a raw inode.
    pub(crate) fn generation_of(image: &[u8]) -> Option<u32> {
        Some(u32::from_le_bytes(image.get(0x64..0x68)?.try_into().ok()?))
    }

    /// Returns the kind of a raw inode.
    pub(crate) fn kind_of(image: &[u8]) -> Option<Kind> {
        Kind::of_mode(u16::from_le_bytes([*image.first()?, *image.get(1)?]))
    }

    /// Updates an inode from the raw inode `image`. `before` is its current state, `None` for a new inode. The block map, the
    /// extended attributes and the block count stay unchanged, as do the size and index flag of a directory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the image is not a valid inode, or is incompatible with the current state.
    pub(crate) fn put_image(
        handle: &mut Handle<'_>,
        number: u32,
        image: &[u8],
        before: Option<&Self>,
    ) -> Result<Self> {
        let store = handle.store();
        let geometry = store.geometry();
        let wrong = |what: &str| Err(Corruption::new(format!("fast commit: {what}")).inode(number).into());
        let (block, start) = Self::table_position(geometry, store, number)?;
        let size = usize::from(geometry.inode_size);
        if image.len() < RawInode::BASE || image.len() > size {
            return wrong(&format!("inode image of invalid length {}", image.len()));
        }
        let mut bytes = vec![0; size];
        if before.is_some() {
            let table = store.get(block, BlockKind::Inodes, |_| Ok(()))?;
            bytes.copy_from_slice(&table[start..start + size]);
        }
        let (dtime, map) = (bytes[DTIME_RANGE].to_vec(), bytes[MAP_RANGE].to_vec());
        bytes[..image.len()].copy_from_slice(image);
        // The field links orphans, and the orphan list is not part of the fast commit.
        bytes[DTIME_RANGE].copy_from_slice(&dtime);
        bytes[MAP_RANGE].copy_from_slice(&map);
        let Some(kind) = Self::kind_of(image) else { return wrong("inode image with an unknown file type") };
        let flags = u32::from_le_bytes(image[0x20..0x24].try_into().expect("four bytes"));
        let flags = InodeFlags::from_bits_retain(flags);
        let extents = flags.contains(InodeFlags::EXTENTS);
        if flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::EA_INODE) {
            return wrong("inode image with inline data or an attribute value");
        }
        match before {
            Some(before) if before.kind != kind => return wrong("the inode image changes the file type"),
            Some(before) if before.flags.contains(InodeFlags::EXTENTS) != extents => {
                return wrong("the inode image switches between extents and block map");
            }
            Some(_) => {}
            None if extents => {
                bytes[MAP_RANGE.start..MAP_RANGE.start + 8].copy_from_slice(&EMPTY_EXTENT_TREE)
            }
            None => {}
        }
        if !extents && !matches!(kind, Kind::Regular | Kind::Directory) {
            bytes[MAP_RANGE].copy_from_slice(&image[MAP_RANGE]);
        }
        let extra = match bytes.get(RawInode::BASE..RawInode::BASE + 2) {
            Some(extra) => usize::from(u16::from_le_bytes([extra[0], extra[1]])),
            None => 0,
        };
        if extra > size - RawInode::BASE {
            return wrong("the extra fields of the inode image exceed the inode size");
        }
        fill_sum(geometry, number, Self::generation_of(image).unwrap_or(0), &mut bytes, extra);
        let mut inode = match Self::parse(geometry, number, &bytes) {
            Err(Error::NotFound) => return wrong("image of a free inode"),
            inode => inode.map_err(|error| error.of_inode(number))?,
        };
        match before {
            Some(before) => {
                if before.tail.len() != inode.tail.len() || before.xattr_block != inode.xattr_block {
                    return wrong("the inode image moves the extended attributes");
                }
                inode.blocks = before.blocks;
            }
            None if inode.xattr_block != 0 => return wrong("a new inode has an attribute block"),
            None => inode.blocks = 0,
        }
        if kind == Kind::Symlink && !extents && inode.size >= inode.block.len() as u64 {
            return wrong("a symbolic link has a long target and no extents");
        }
        if kind == Kind::Directory {
            let flags = before.map_or(InodeFlags::empty(), |before| before.flags);
            inode.flags.set(InodeFlags::INDEX, flags.contains(InodeFlags::INDEX));
            inode.size = before.map_or(0, |before| before.size);
        }
        handle.change(
            block,
            BlockKind::Inodes,
            |_| Ok(()),
            |table| {
                table[start..start + size].copy_from_slice(&bytes);
                Ok(())
            },
        )?;
        inode.save(handle)?;
        Ok(inode)
    }
}
