//! Allocation of inodes and blocks for directory operations.

use crate::allocate::{Purpose, Reservation, ReservedAccess, TAKE_CREDITS};
use crate::buffer::Handle;
use crate::error::Result;
use crate::filesystem::{Filesystem, ROOT};
use crate::inode::{Inode, Kind};
use crate::layout::{Incompat, InodeFlags, RawInode};
use crate::map::{self, MappedExtent};
use crate::{time, xattr};

/// Number of blocks that adding a block to a file may change: the block itself, its allocation and its mapping.
pub(crate) const GROW_CREDITS: u32 = 1 + TAKE_CREDITS + map::CREDITS;

/// Number of blocks that the target of a symbolic link may change.
pub(super) const TARGET_CREDITS: u32 = TAKE_CREDITS + map::CREDITS;

impl Filesystem {
    /// Allocates an empty inode near its parent.
    pub(super) fn new_inode(&self, handle: &mut Handle<'_>, parent: &Inode, kind: Kind) -> Result<Inode> {
        let directory = kind == Kind::Directory;
        let top = parent.number == ROOT || parent.flags.contains(InodeFlags::TOPDIR);
        let number = self.allocator()?.take_inode(handle, parent.number, directory, top)?;
        let size = usize::from(self.geometry.inode_size);
        let extra = match size - RawInode::BASE {
            0 => 0,
            room => usize::from(self.superblock.want_extra_isize.get()).clamp(32, room.max(32)),
        };
        let extra = extra.next_multiple_of(4).min(size - RawInode::BASE);
        let mut inode = Inode {
            number,
            kind,
            permissions: 0,
            uid: 0,
            gid: 0,
            size: 0,
            links: 0,
            blocks: 0,
            atime: time::now(),
            ctime: time::now(),
            mtime: time::now(),
            crtime: (extra >= 24).then(time::now),
            flags: InodeFlags::empty(),
            generation: generation(number),
            xattr_block: 0,
            deletion: 0,
            project: 0,
            block: [0; 60],
            tail: vec![0; size - RawInode::BASE - extra].into(),
        };
        let mapped = matches!(kind, Kind::Directory | Kind::Regular | Kind::Symlink);
        if mapped && self.geometry.incompat.contains(Incompat::EXTENT) {
            inode.flags.insert(InodeFlags::EXTENTS);
            // An empty root: magic, 0 of 4 entries, depth 0.
            inode.block[..8].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4, 0, 0, 0]);
        }
        Ok(inode)
    }

    /// Frees a new inode, and all its blocks, after a failed creation.
    pub(super) fn discard_new(&self, handle: &mut Handle<'_>, mut inode: Inode) -> Result<()> {
        xattr::release(self, handle, &mut inode)?;
        let all = (0, map::longest(&self.geometry, &inode));
        if matches!(inode.kind, Kind::Directory | Kind::Symlink) && inode.size >= inode.block.len() as u64 {
            for piece in map::replace(self, handle, &mut inode, all, &[])? {
                self.allocator()?.free(handle, piece.start, piece.length)?;
            }
        }
        self.allocator()?.free_inode(handle, inode.number, inode.kind == Kind::Directory)
    }

    /// Stores the target of a symbolic link in a block of its own. The target is submitted to the device before the transaction
    /// that references it.
    pub(super) fn write_target(
        &self,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
        target: &[u8],
    ) -> Result<()> {
        let size = self.geometry.block_size as usize;
        inode.size = target.len() as u64;
        let rights = self.rights(inode.uid, inode.gid);
        let goal = self.near(inode.number)?;
        let mut content = target.to_vec();
        content.resize(size, 0);
        let mut reservation = self.allocator()?.reserve(&self.store, goal, 1, (Purpose::Data, rights))?;
        let start = reservation.start;
        self.store.device().write_at(start << self.geometry.block_bits, &content)?;
        self.enter_block(handle, inode, 0, &mut reservation)?;
        Ok(())
    }

    /// Returns the preferred location of blocks near an inode.
    fn near(&self, number: u32) -> Result<u64> {
        let (group, _) = self.geometry.locate_inode(number)?;
        Ok(self.geometry.group_start(group))
    }

    fn enter_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
        logical: u32,
        reservation: &mut Reservation<'_>,
    ) -> Result<u64> {
        let start = reservation.start;
        let piece = MappedExtent { logical, length: 1, start, written: true };
        map::replace(self, handle, inode, (logical.into(), piece.end()), &[piece])?;
        reservation.take(handle, 1)?;
        inode.blocks += u64::from(self.geometry.block_size / 512);
        Ok(start)
    }

    /// Appends a block to a directory.
    pub(super) fn grow(&self, handle: &mut Handle<'_>, inode: &mut Inode, logical: u32) -> Result<u64> {
        let before = match logical.checked_sub(1) {
            Some(last) => self.directory(inode).device_block(last)?,
            None => None,
        };
        let goal = before.map_or_else(|| self.near(inode.number), |block| Ok(block + 1))?;
        let mut reservation =
            self.allocator()?.reserve(&self.store, goal, 1, (Purpose::Metadata, ReservedAccess::Reserved))?;
        self.enter_block(handle, inode, logical, &mut reservation)
    }
}

/// Returns a generation for an inode: the lowest bits of the clock are effectively random.
fn generation(number: u32) -> u32 {
    let now = time::now();
    (now.seconds as u32 ^ now.nanoseconds.rotate_left(2)).wrapping_mul(0x9e37_79b1) ^ number
}
