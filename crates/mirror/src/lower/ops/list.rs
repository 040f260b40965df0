//! Directory operations, with or without OPENDIR.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::devices::Devices;
use super::super::listing::{DirEntry, Listing};
use super::super::{Caller, Lower};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl Lower {
    /// Opens a directory for listing; returns its handle.
    ///
    /// # Errors
    /// The error of `open(2)`; ENFILE if the limit on open files is reached.
    pub(crate) fn open_dir(&self, id: NodeId, caller: Caller) -> Result<u64, Errno> {
        let share = self.room_for_open(caller)?;
        let listing = Listing::new(self.reopen(id, DIRECTORY)?).of_user(share);
        Ok(self.open_dirs.add(Arc::new(Mutex::new(listing))))
    }

    /// Closes the handle of a directory.
    pub(crate) fn close_dir(&self, handle: u64) {
        self.open_dirs.remove(handle);
    }

    /// Lists a directory from a cookie on (0: from the beginning), with or without a handle.
    ///
    /// `take` receives the open directory and an entry with its inode number as shown. It returns `false` if it has no
    /// space for the entry, which the next call then repeats.
    ///
    /// # Errors
    /// EBADF, ENOTDIR, ESTALE, or the error of `getdents64(2)` or `take`.
    pub(crate) fn list(
        &self,
        id: NodeId,
        handle: Option<u64>,
        from: u64,
        mut take: impl FnMut(BorrowedFd<'_>, DirEntry<'_>) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let node = self.node(id)?;
        if node.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let mut take = |dir: BorrowedFd<'_>, mut entry: DirEntry<'_>| {
            // The directory above the root is not shown: the root is its own parent.
            let ino = if id == NodeId::ROOT && entry.name == c".." { node.ino } else { entry.ino };
            entry.held = self.nodes.contains(&(node.mount, entry.ino));
            entry.ino = Devices::shown_ino(node.device, ino);
            if entry.kind == FileType::Unknown
                && let Ok(stat) = rustix::fs::statat(dir, entry.name, AtFlags::SYMLINK_NOFOLLOW)
            {
                entry.kind = FileType::from_raw_mode(stat.st_mode);
            }
            take(dir, entry)
        };
        if let Some(handle) = handle {
            return self.open_dirs.get(handle)?.lock().walk(from, take);
        }
        let mut listing = match self.listings.take(id, from) {
            Some(listing) => listing,
            None => self.listings.begin(id, self.reopen(id, DIRECTORY)?),
        };
        let mut any = false;
        listing.walk(from, |dir, entry| {
            any = true;
            take(dir, entry)
        })?;
        // An empty result is the end: no request will continue from here.
        if any {
            self.listings.put(id, listing);
        }
        Ok(())
    }

    /// Calls `fsync(2)` on a directory.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) fn sync_dir(&self, id: NodeId, handle: Option<u64>, data_only: bool) -> Result<(), Errno> {
        let sync =
            |dir: BorrowedFd<'_>| if data_only { rustix::fs::fdatasync(dir) } else { rustix::fs::fsync(dir) };
        match handle {
            Some(handle) => sync(self.open_dirs.get(handle)?.lock().dir()),
            None => sync(std::os::fd::AsFd::as_fd(&self.reopen(id, DIRECTORY)?)),
        }
    }
}
