//! Writing extended attributes in transactions. Changing an attribute block that several inodes share copies it.

use super::change::{Changed, Lists, Room, SetMode, split_name};
use super::shared_blocks::{count, header, read, release};
use super::{Acl, Attribute};
use crate::allocate::{ReservedAccess, TAKE_CREDITS};
use crate::buffer::{BlockKind, Handle, MetadataCache};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::{Compat, InodeFlags};
use crate::superblock::Geometry;
use crate::time;

/// Number of blocks that a change of attributes may change: the previous block and its replacement, with the metadata of freeing
/// and allocating a block.
pub(crate) const CREDITS: u32 = 2 + 2 * TAKE_CREDITS;

const ACL_ACCESS_INDEX: u8 = 2;
const ACL_DEFAULT_INDEX: u8 = 3;

/// Reads the attributes of an inode.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn load(geometry: &Geometry, store: &MetadataCache, inode: &Inode) -> Result<Lists> {
    let block = match inode.xattr_block {
        0 => None,
        number => Some(read(geometry, store, number).map_err(|error| error.of_inode(inode.number))?),
    };
    Lists::decode(&inode.tail, block.as_deref()).map_err(|error| error.of_inode(inode.number))
}

fn room(geometry: &Geometry, inode: &Inode) -> Room {
    Room { own: inode.tail.len(), block: geometry.block_size as usize }
}

/// Returns the preferred location of an inode's attribute block.
fn goal(geometry: &Geometry, inode: &Inode) -> u64 {
    geometry.group_start((inode.number - 1) / geometry.inodes_per_group)
}

/// Writes the changed attributes of an inode. The caller must save the inode.
fn write(
    fs: &Filesystem,
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    (lists, changed): (&Lists, Changed),
    rights: ReservedAccess,
) -> Result<()> {
    if changed.block {
        // The block first: it may fail for lack of space.
        write_block(fs, handle, inode, lists, rights)?;
    }
    if changed.own {
        inode.tail = lists.encode_tail(inode.tail.len()).into();
    }
    let has_any = !lists.own.is_empty() || !lists.block.is_empty();
    if has_any && !fs.geometry.compat.contains(Compat::EXT_ATTR) {
        fs.store.change_superblock(handle, |raw| {
            raw.feature_compat.set(raw.feature_compat.get() | Compat::EXT_ATTR.bits());
        });
    }
    Ok(())
}

fn write_block(
    fs: &Filesystem,
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    lists: &Lists,
    rights: ReservedAccess,
) -> Result<()> {
    let geometry = &fs.geometry;
    let Some(bytes) = lists.encode_block(geometry.block_size as usize) else {
        return release(fs, handle, inode);
    };
    let hash = header(&bytes)?.hash.get();
    let mut shared = fs.xattr_block_cache.lock();
    let units = u64::from(geometry.block_size / 512);
    if let Some(other) = shared.find(fs, &bytes, hash, inode.xattr_block)? {
        let references = header(&read(geometry, &fs.store, other)?)?.refcount.get();
        count(handle, other, references + 1)?;
        shared.release(fs, handle, inode)?;
        inode.xattr_block = other;
        inode.blocks += units;
        return Ok(());
    }
    let old = inode.xattr_block;
    if old != 0 {
        let block = read(geometry, &fs.store, old)?;
        let shared_header = header(&block)?;
        drop(block);
        if shared_header.refcount.get() <= 1 {
            shared.forget(shared_header.hash.get(), old);
            handle.create(old, BlockKind::Xattrs, |block| block.copy_from_slice(&bytes))?;
            shared.remember(hash, old);
            return Ok(());
        }
    }
    let new = fs.allocator()?.take_one(handle, goal(geometry, inode), rights)?;
    handle.create(new, BlockKind::Xattrs, |block| block.copy_from_slice(&bytes))?;
    shared.release(fs, handle, inode)?;
    shared.remember(hash, new);
    inode.xattr_block = new;
    inode.blocks += units;
    Ok(())
}

/// Sets the initial attributes of a new inode. The caller must save it.
pub(crate) fn set_new(
    fs: &Filesystem,
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    attributes: &[Attribute],
) -> Result<()> {
    if attributes.is_empty() {
        return Ok(());
    }
    let (mut lists, mut changed) = (Lists::default(), Changed::default());
    for attribute in attributes {
        let also = lists.set(attribute.clone(), SetMode::Either, room(&fs.geometry, inode))?;
        changed = Changed { own: changed.own || also.own, block: changed.block || also.block };
    }
    let rights = fs.rights(inode.uid, inode.gid);
    write(fs, handle, inode, (&lists, changed), rights)
}

/// Updates the access ACL of an inode for its new permissions. The caller must save the inode.
pub(crate) fn follow_mode(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    let mut lists = load(&fs.geometry, &fs.store, inode)?;
    let Some(stored) = lists.get(ACL_ACCESS_INDEX, b"") else { return Ok(()) };
    let mut acl = Acl::from_stored(stored)?;
    acl.set_mode(inode.permissions);
    let attribute = Attribute { index: ACL_ACCESS_INDEX, name: Vec::new(), value: acl.to_stored() };
    let changed = lists.set(attribute, SetMode::Either, room(&fs.geometry, inode))?;
    write(fs, handle, inode, (&lists, changed), ReservedAccess::Reserved)
}

impl Filesystem {
    /// Sets an extended attribute by its full name; returns the changed inode. An access ACL also sets the permissions, and is
    /// not stored if they represent it completely.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoAttribute`] according to `mode`, [`Error::Unsupported`] for an unknown namespace,
    /// [`Error::OutOfRange`] for a name and [`Error::TooBig`] for a value that is too long, [`Error::NoSpace`] if neither inode
    /// nor block has room, [`Error::Invalid`] for an invalid ACL, [`Error::Denied`] for a default ACL of a non-directory,
    /// [`Error::NotPermitted`] for an immutable or append-only inode, and for `user.` attributes of inodes other than files and
    /// directories; [`Error::ReadOnly`], [`Error::Corrupt`], [`Error::Io`].
    pub fn set_xattr(&self, number: u32, name: &[u8], value: &[u8], mode: SetMode) -> Result<Inode> {
        self.set_xattr_as(number, name, value, mode, ReservedAccess::Reserved)
    }

    /// Sets an extended attribute like [`set_xattr`](Self::set_xattr), with these rights.
    ///
    /// # Errors
    /// The errors of `set_xattr`; [`Error::NoSpace`] also if only reserved blocks are left.
    pub fn set_xattr_as(
        &self,
        number: u32,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
        rights: ReservedAccess,
    ) -> Result<Inode> {
        let (index, name) = split_name(name)?;
        let _lock = self.locks.write(number);
        self.with_space(|| self.set_xattr_locked(number, (index, name), value, (mode, rights)))
    }

    fn set_xattr_locked(
        &self,
        number: u32,
        (index, name): (u8, &[u8]),
        value: &[u8],
        (mode, rights): (SetMode, ReservedAccess),
    ) -> Result<Inode> {
        let mut inode = self.inode_in_use(number)?;
        check(&inode, index)?;
        let mut lists = load(&self.geometry, &self.store, &inode)?;
        let before = inode.permissions;
        let value = match index {
            ACL_ACCESS_INDEX | ACL_DEFAULT_INDEX => acl_value(&mut inode, index, value)?,
            _ => Some(value.to_vec()),
        };
        let changed = match value {
            Some(value) => {
                let new = Attribute { index, name: name.to_vec(), value };
                lists.set(new, mode, room(&self.geometry, &inode))?
            }
            // An ACL equivalent to the permissions is not stored.
            None => match (lists.remove(index, name), mode) {
                (Err(Error::NoAttribute), SetMode::Replace) => return Err(Error::NoAttribute),
                (removed, _) => removed.unwrap_or_default(),
            },
        };
        if changed == Changed::default() && inode.permissions == before {
            return Ok(inode);
        }
        self.put_xattrs(inode, (&lists, changed), rights)
    }

    /// Removes an extended attribute; returns the changed inode.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], and the errors of [`set_xattr`](Self::set_xattr).
    pub fn remove_xattr(&self, number: u32, name: &[u8]) -> Result<Inode> {
        let (index, name) = split_name(name)?;
        let _lock = self.locks.write(number);
        let inode = self.inode_in_use(number)?;
        check(&inode, index)?;
        let mut lists = load(&self.geometry, &self.store, &inode)?;
        let changed = lists.remove(index, name)?;
        // The remaining attributes of a shared block may need a block of their own.
        self.put_xattrs(inode, (&lists, changed), ReservedAccess::Reserved)
    }

    fn put_xattrs(
        &self,
        mut inode: Inode,
        change: (&Lists, Changed),
        rights: ReservedAccess,
    ) -> Result<Inode> {
        let mut handle = self.store.begin(CREDITS + 1)?;
        write(self, &mut handle, &mut inode, change, rights)?;
        inode.ctime = time::now();
        inode.save(&mut handle)?;
        handle.record(inode.number.into());
        handle.complete();
        Ok(inode)
    }
}

/// Checks that an attribute of this namespace may be changed.
fn check(inode: &Inode, index: u8) -> Result<()> {
    let content = matches!(inode.kind, Kind::Regular | Kind::Directory);
    match index {
        _ if inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) => Err(Error::NotPermitted),
        1 if !content => Err(Error::NotPermitted),
        ACL_ACCESS_INDEX | ACL_DEFAULT_INDEX if inode.kind == Kind::Symlink => {
            Err(Error::Unsupported("ACLs of symbolic links".into()))
        }
        _ => Ok(()),
    }
}

/// Returns the form of an ACL to store; `None` if nothing is stored. An access ACL sets the permissions.
fn acl_value(inode: &mut Inode, index: u8, shown: &[u8]) -> Result<Option<Vec<u8>>> {
    let acl = Acl::from_xattr(shown)?;
    if index == ACL_DEFAULT_INDEX && inode.kind != Kind::Directory && acl.is_some() {
        return Err(Error::Denied);
    }
    let Some(acl) = acl else { return Ok(None) };
    if index == ACL_ACCESS_INDEX {
        let (mode, all) = acl.mode();
        inode.permissions = inode.permissions & !0o777 | mode;
        if all {
            return Ok(None);
        }
    }
    Ok(Some(acl.to_stored()))
}
