//! Creation of inodes, with or without a name.

use super::attributes::NewInode;
use super::{DirTransaction, check_new, growth, inherit, new_inode, nlink};
use crate::allocate::TAKE_CREDITS;
use crate::buffer::{Handle, UNNAMED};
use crate::directory::{self, Link};
use crate::error::{Error, Result};
use crate::file::MAX_TARGET_BYTES;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::{orphans, time, xattr};

/// Kind of a new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum NewInodeKind<'a> {
    Regular,
    Directory,
    /// Symbolic link with this target: 1 to 4095 bytes, and less than a block.
    Symlink(&'a [u8]),
    Fifo,
    Socket,
    /// Character device with major and minor number.
    CharDevice(u32, u32),
    /// Block device with major and minor number.
    BlockDevice(u32, u32),
}

impl NewInodeKind<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::Regular => Kind::Regular,
            Self::Directory => Kind::Directory,
            Self::Symlink(_) => Kind::Symlink,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
            Self::CharDevice(..) => Kind::CharDevice,
            Self::BlockDevice(..) => Kind::BlockDevice,
        }
    }
}

/// Encodes a device number: in the old format if both parts fit a byte, else in the new one.
fn encode_device(major: u32, minor: u32) -> [u32; 2] {
    if major < 256 && minor < 256 {
        return [major << 8 | minor, 0];
    }
    [0, minor & 0xff | major << 8 | (minor & !0xff) << 12]
}

/// Number of blocks that a new inode itself may change: bitmap, descriptor, inode, attributes, and blocks of content.
pub(super) fn new_credits(parent: &Inode, new_kind: NewInodeKind<'_>) -> u32 {
    // A parent without attributes has nothing to inherit.
    let plain = parent.xattr_block == 0 && parent.tail.iter().all(|&byte| byte == 0);
    let attributes = if plain { 0 } else { xattr::CREDITS };
    let content = match new_kind {
        NewInodeKind::Directory => new_inode::GROW_CREDITS,
        NewInodeKind::Symlink(target) if target.len() >= parent.block.len() => new_inode::TARGET_CREDITS,
        _ => 0,
    };
    TAKE_CREDITS + 1 + attributes + content
}

impl Filesystem {
    /// Creates an inode and its name in a directory.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotDirectory`], [`Error::NameTooLong`], [`Error::Invalid`] for invalid names and targets,
    /// [`Error::TooManyLinks`] if the parent has the maximum number of subdirectories, [`Error::NotPermitted`] in an immutable
    /// directory, [`Error::NoKey`] in an encrypted one, [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Corrupt`],
    /// [`Error::Io`].
    pub fn create(
        &self,
        parent: u32,
        name: &[u8],
        new_kind: NewInodeKind<'_>,
        new: &NewInode,
    ) -> Result<Inode> {
        let _lock = self.locks.write(parent);
        self.with_space(|| self.create_locked(parent, name, new_kind, new))
    }

    fn create_locked(
        &self,
        parent: u32,
        name: &[u8],
        new_kind: NewInodeKind<'_>,
        new: &NewInode,
    ) -> Result<Inode> {
        let mut parent = self.parent(parent)?;
        check_new(name)?;
        self.check_key(&parent, name)?;
        if self.found(&parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let kind = new_kind.kind();
        if kind == Kind::Directory {
            nlink::check_room(&self.geometry, &parent)?;
        }
        let enter = self.enter_credits(&parent, name)?;
        // One block for a new directory, and one for the parent if it is full.
        let blocks = u32::from(kind == Kind::Directory) + growth(enter);
        self.allocator()?.check(blocks, self.rights(new.uid, new.gid))?;
        let mut handle = self.store.begin(enter + new_credits(&parent, new_kind))?;
        let mut inode = self.make(&mut handle, &parent, new_kind, new)?;
        let link = Link { name, inode: inode.number, kind };
        let entered = directory::insert(
            &mut DirTransaction { fs: self, handle: &mut handle, inode: &mut parent },
            &link,
        );
        if let Err(error) = entered {
            // The parent may have grown for the entry.
            parent.save(&mut handle)?;
            self.discard_new(&mut handle, inode)?;
            handle.complete();
            return Err(error);
        }
        inode.links = if kind == Kind::Directory { 2 } else { 1 };
        inode.save_new(&mut handle)?;
        if kind == Kind::Directory {
            nlink::add(&self.geometry, &mut parent);
        }
        parent.mtime = inode.crtime.unwrap_or(inode.ctime);
        parent.ctime = parent.mtime;
        parent.save(&mut handle)?;
        handle.record(inode.number.into());
        handle.complete();
        Ok(inode)
    }

    /// Creates an unnamed regular file in a directory (`O_TMPFILE`). It is freed when it is [evicted](Self::evict_inode), or
    /// after a crash, unless it is [linked](Self::link) before.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create).
    pub fn create_tmpfile(&self, parent: u32, new: &NewInode) -> Result<Inode> {
        let _lock = self.locks.read(parent);
        self.with_space(|| self.create_tmpfile_locked(parent, new))
    }

    fn create_tmpfile_locked(&self, parent: u32, new: &NewInode) -> Result<Inode> {
        let parent = self.parent(parent)?;
        // The empty name never exists.
        self.check_key(&parent, b"")?;
        let mut handle = self.store.begin(new_credits(&parent, NewInodeKind::Regular) + orphans::CREDITS)?;
        let mut inode = self.make(&mut handle, &parent, NewInodeKind::Regular, new)?;
        inode.links = 0;
        inode.save_new(&mut handle)?;
        orphans::add(self, &mut handle, &mut inode)?;
        handle.record(UNNAMED | u64::from(inode.number));
        handle.complete();
        Ok(inode)
    }

    /// Creates an inode without links, and without saving it. Must be the first use of the handle: on failure, everything is
    /// undone.
    pub(super) fn make(
        &self,
        handle: &mut Handle<'_>,
        parent: &Inode,
        new_kind: NewInodeKind<'_>,
        new: &NewInode,
    ) -> Result<Inode> {
        if let NewInodeKind::Symlink(target) = new_kind {
            if target.is_empty() {
                return Err(Error::NotFound);
            }
            if target.len() as u64 >= MAX_TARGET_BYTES || target.contains(&0) {
                return Err(Error::Invalid);
            }
            // A target with its terminating zero must fit one block.
            if target.len() >= self.geometry.block_size as usize {
                return Err(Error::NameTooLong);
            }
        }
        let kind = new_kind.kind();
        let above = xattr::load(&self.geometry, &self.store, parent)?;
        let (gid, permissions) = inherit::owner(parent, kind, new);
        let (permissions, attributes) = inherit::access(&above, kind, permissions, new.umask)?;
        let mut inode = self.new_inode(handle, parent, kind)?;
        let now = time::now();
        inode.permissions = permissions;
        inode.uid = new.uid;
        inode.gid = gid;
        inode.flags |= inherit::flags(parent, kind);
        (inode.atime, inode.mtime, inode.ctime) = (now, now, now);
        inode.crtime = inode.crtime.map(|_| now);
        match self.fill(handle, parent, &mut inode, new_kind, &attributes) {
            Ok(()) => Ok(inode),
            Err(error) => {
                self.discard_new(handle, inode)?;
                handle.complete();
                Err(error)
            }
        }
    }

    /// Sets content and extended attributes of a new inode.
    fn fill(
        &self,
        handle: &mut Handle<'_>,
        parent: &Inode,
        inode: &mut Inode,
        new_kind: NewInodeKind<'_>,
        attributes: &[xattr::Attribute],
    ) -> Result<()> {
        xattr::set_new(self, handle, inode, attributes)?;
        match new_kind {
            NewInodeKind::Directory => {
                let (own, above) = (inode.number, parent.number);
                let mut writing = DirTransaction { fs: self, handle, inode };
                directory::Target::append(&mut writing, |block, geometry| {
                    directory::make_first(block, geometry, own, above);
                    Ok(())
                })?;
            }
            NewInodeKind::Symlink(target) if target.len() < inode.block.len() => {
                inode.flags.remove(InodeFlags::EXTENTS);
                inode.block.fill(0);
                inode.block[..target.len()].copy_from_slice(target);
                inode.size = target.len() as u64;
            }
            NewInodeKind::Symlink(target) => self.write_target(handle, inode, target)?,
            NewInodeKind::CharDevice(major, minor) | NewInodeKind::BlockDevice(major, minor) => {
                let words = encode_device(major, minor);
                inode.block[..4].copy_from_slice(&words[0].to_le_bytes());
                inode.block[4..8].copy_from_slice(&words[1].to_le_bytes());
            }
            NewInodeKind::Regular | NewInodeKind::Fifo | NewInodeKind::Socket => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_two_forms() {
        assert_eq!(encode_device(8, 1), [0x801, 0]);
        assert_eq!(encode_device(259, 70_000), [0, 70_000 & 0xff | 259 << 8 | (70_000 & !0xff) << 12]);
    }
}
