//! Dentry operations: lookup, create, link, unlink and rename. An inode that loses its last name goes to the reaper, at once or
//! when the kernel forgets it.

use shunt_ext4::{Corruption, Error, Inode, Move, NewInode, NewInodeKind, ROOT, RenameMode};
use shunt_fuse::{Entry, Errno, Expiry, FileType, NewNode, NodeId, RenameFlags, Request};

use crate::Ext4;

fn new(request: &Request<'_>, mode: u32, umask: u32) -> NewInode {
    NewInode {
        permissions: (mode & 0o7777) as u16,
        umask: (umask & 0o777) as u16,
        uid: request.uid(),
        gid: request.gid(),
    }
}

/// Translates the mode and device number of `mknod(2)`.
pub(crate) fn new_inode_kind(node: &NewNode) -> Result<NewInodeKind<'static>, Errno> {
    let (major, minor) = shunt_fuse::decode_device(node.rdev);
    Ok(match FileType::from_mode(node.mode) {
        Some(FileType::Regular) | None => NewInodeKind::Regular,
        Some(FileType::Fifo) => NewInodeKind::Fifo,
        Some(FileType::Socket) => NewInodeKind::Socket,
        Some(FileType::CharDevice) => NewInodeKind::CharDevice(major, minor),
        Some(FileType::BlockDevice) => NewInodeKind::BlockDevice(major, minor),
        Some(FileType::Directory | FileType::Symlink) => return Err(Errno::INVAL),
    })
}

fn second_root(directory: &Inode) -> Error {
    Corruption::new("a name references the root directory").inode(directory.number).into()
}

impl Ext4 {
    pub(crate) fn look_up(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Entry, Errno> {
        // Only used to resolve a file handle. An inode without links that has no lookup count is already freed or about to be.
        if name == b"." {
            return if directory.links > 0 {
                Ok(self.entry_with_lookup(request, directory))
            } else {
                Err(Errno::STALE)
            };
        }
        match self.filesystem.find(directory, name) {
            Ok(inode) if inode.number == ROOT && name != b".." => self.to_errno(Err(second_root(directory))),
            Ok(inode) => Ok(self.entry_with_lookup(request, &inode)),
            // The name stays absent until this mount creates it.
            Err(Error::NotFound) => Ok(Entry::absent(Expiry::FOREVER)),
            Err(error) => self.to_errno(Err(error)),
        }
    }

    /// Returns the inode of a listed dentry.
    pub(crate) fn follow(&self, directory: &Inode, entry: &shunt_ext4::Entry) -> Result<Inode, Error> {
        let inode = self.filesystem.follow(directory, entry)?;
        if inode.number == ROOT { Err(second_root(directory)) } else { Ok(inode) }
    }

    /// Creates an inode with a dentry.
    pub(crate) fn make(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: &[u8],
        kind: NewInodeKind<'_>,
        mode: u32,
        umask: u32,
    ) -> Result<Inode, Errno> {
        let (parent, new) = (self.number(parent)?, new(request, mode, umask));
        let create = || self.with_space(|| self.filesystem.create(parent, name, kind, &new));
        self.once(request, create, |made| self.inode_of(made))
    }

    /// Creates a file without a name (`O_TMPFILE`), which `link(2)` may name later.
    pub(crate) fn create_tmpfile(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        mode: u32,
        umask: u32,
    ) -> Result<Entry, Errno> {
        let (parent, new) = (self.number(parent)?, new(request, mode, umask));
        let create = || self.with_space(|| self.filesystem.create_tmpfile(parent, &new));
        let inode = self.once(request, create, |made| self.inode_of(made))?;
        let entry = self.entry_with_lookup(request, &inode);
        self.reap_if_unlinked(&inode);
        Ok(entry)
    }

    pub(crate) fn add_name(
        &self,
        request: &Request<'_>,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<Inode, Errno> {
        let (number, parent) = (self.number(node)?, self.number(parent)?);
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let link = || self.with_space(|| self.filesystem.link_as(number, parent, name, rights));
        let inode = self.once(request, link, |linked| self.inode_of(linked))?;
        self.lookup_counts.name(number);
        Ok(inode)
    }

    /// Removes the dentry of a directory, or of another inode.
    pub(crate) fn remove_dentry(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: &[u8],
        directory: bool,
    ) -> Result<(), Errno> {
        let parent = self.number(parent)?;
        let remove = || {
            let left = match directory {
                true => self.filesystem.remove_directory(parent, name),
                false => self.filesystem.unlink(parent, name),
            };
            self.reap_if_unlinked(&self.to_errno(left)?);
            Ok(())
        };
        self.once(request, remove, |_| Ok(()))
    }

    pub(crate) fn move_name(
        &self,
        request: &Request<'_>,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let all = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE | RenameFlags::WHITEOUT;
        if !(flags - all).is_empty() || flags.contains(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) {
            return Err(Errno::INVAL);
        }
        let mode = match flags {
            _ if flags.contains(RenameFlags::NOREPLACE) => RenameMode::Keep,
            _ if flags.contains(RenameFlags::EXCHANGE) => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let whiteout = flags.contains(RenameFlags::WHITEOUT).then(|| (request.uid(), request.gid()));
        let (old, new) = ((self.number(from.0)?, from.1), (self.number(to.0)?, to.1));
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let how = Move { mode, whiteout };
        let rename = || {
            let replaced = self.with_space(|| self.filesystem.rename_as(old, new, &how, rights))?;
            if let Some(inode) = replaced {
                self.reap_if_unlinked(&inode);
            }
            Ok(())
        };
        self.once(request, rename, |_| Ok(()))
    }

    /// Returns the inode in the outcome of an operation.
    fn inode_of(&self, outcome: u64) -> Result<Inode, Errno> {
        // The upper bits say whether it has a name.
        self.inode(crate::reply::node(outcome as u32))
    }

    /// Frees an inode without links at once if it has no lookup count, else when the kernel forgets it.
    fn reap_if_unlinked(&self, inode: &Inode) {
        if inode.links == 0
            && self.lookup_counts.mark_unlinked(inode.number)
            && let Some(reaper) = &self.reaper
        {
            reaper.free(inode.number);
        }
    }

    /// Returns the inode that a concurrent create has given this name.
    pub(crate) fn existing_inode(&self, parent: NodeId, name: &[u8]) -> Result<Inode, Errno> {
        let found = self.filesystem.find(&self.inode(parent)?, name);
        self.to_errno(found.map_err(|error| match error {
            Error::NotFound => Error::Exists,
            error => error,
        }))
    }
}
