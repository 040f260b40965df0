//! Removal and renaming of directory entries.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::identity::Identity;
use super::super::{Component, Lower};

impl Lower {
    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// The error of `unlink(2)`.
    pub(crate) fn unlink(&self, parent: NodeId, name: Component<'_>) -> Result<(), Errno> {
        self.remove(parent, name, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The error of `rmdir(2)`.
    pub(crate) fn rmdir(&self, parent: NodeId, name: Component<'_>) -> Result<(), Errno> {
        self.remove(parent, name, AtFlags::REMOVEDIR)
    }

    fn remove(&self, parent: NodeId, name: Component<'_>, flags: AtFlags) -> Result<(), Errno> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let victim = self.before_loss(dir.as_fd(), name);
        let open = victim.as_ref().and_then(|victim| self.store_before_unlink(victim.as_fd()));
        rustix::fs::unlinkat(&dir, name.as_cstr(), flags)?;
        self.store_after_unlink(open);
        self.listings.changed(parent);
        self.after_loss(victim);
        Ok(())
    }

    /// Renames a file; `flags` are those of `renameat2(2)`.
    ///
    /// # Errors
    /// The error of `renameat2(2)`.
    pub(crate) fn rename(
        &self,
        parent: NodeId,
        name: Component<'_>,
        new_parent: NodeId,
        new_name: Component<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        self.writable()?;
        let (from, to) = (self.dir(parent)?, self.dir(new_parent)?);
        let flags = RenameFlags::from_bits_retain(flags);
        let keeps = flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
        let victim = if keeps { None } else { self.before_loss(to.as_fd(), new_name) };
        let open = victim.as_ref().and_then(|victim| self.store_before_unlink(victim.as_fd()));
        rustix::fs::renameat_with(&from, name.as_cstr(), &to, new_name.as_cstr(), flags)?;
        self.store_after_unlink(open);
        self.listings.changed(parent);
        self.listings.changed(new_parent);
        self.after_loss(victim);
        if parent != new_parent {
            self.moved(to.as_fd(), new_parent, new_name);
            if flags.contains(RenameFlags::EXCHANGE) {
                self.moved(from.as_fd(), parent, name);
            }
        }
        Ok(())
    }

    /// Records the new parent of a renamed inode.
    fn moved(&self, to: BorrowedFd<'_>, parent: NodeId, name: Component<'_>) {
        if self.hints.are_kept()
            && let Ok(fd) = self.open_child(to, name)
            && let Ok((Identity::Handle(node), _)) = self.identify(fd.as_fd())
        {
            self.seen(&node, parent);
        }
    }

    /// Opens the inode behind a name before the name is removed. A file handle stops working with the last name, but a
    /// process may still use the directory as working directory, or have the file open with O_PATH, of which no request
    /// informs the daemon.
    fn before_loss(&self, dir: BorrowedFd<'_>, name: Component<'_>) -> Option<OwnedFd> {
        if !self.has_handles() {
            // The node of each inode holds it open.
            return None;
        }
        self.open_child(dir, name).ok()
    }

    /// Keeps the descriptor as long as the client knows the inode, if that was its last name.
    fn after_loss(&self, victim: Option<OwnedFd>) {
        let Some(fd) = victim else { return };
        if let Ok((Identity::Handle(node), stat)) = self.identify(fd.as_fd())
            && stat.stx_nlink == 0
            && let Some(id) = self.nodes.find(&node)
        {
            self.unlinked.put(id, Arc::new(fd));
            // A concurrent FORGET would leave a descriptor that nothing removes.
            if self.nodes.get(id).is_err() {
                self.unlinked.remove(id);
            }
        }
    }
}
