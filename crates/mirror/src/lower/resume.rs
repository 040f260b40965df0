//! Resuming the open files and inodes of an earlier process that served the same source.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::identity::Identity;
use super::listing::Listing;
use super::open_files::OpenFile;
use super::ops::{filter, writes};
use super::{Lower, credentials};

/// A file or directory that the client has open.
#[derive(Debug)]
pub(crate) struct Reopen {
    /// Its file handle.
    pub handle: u64,
    /// Its inode.
    pub node: NodeId,
    /// The caller's `O_*` flags.
    pub flags: u32,
    /// The stored descriptor, if there is one.
    pub stored: Option<OwnedFd>,
}

impl Lower {
    /// Reports whether another process could take over: it must find each inode of the source's own mount by its id.
    pub(crate) fn can_be_resumed(&self) -> bool {
        self.mounts.opener(0).is_some_and(|opener| opener.codec.is_some())
    }

    /// Restores mounts below the source with their old indices, each by an open file of it.
    pub(crate) fn restore_mounts(&self, mounts: impl IntoIterator<Item = (u16, OwnedFd)>) {
        for (index, file) in mounts {
            if let Err(errno) = self.mounts.restore(index, file.as_fd()) {
                tracing::warn!(index, %errno, "cannot restore a mount below the source");
            }
        }
    }

    /// Opens the files that the client has open. `generation` counts the processes before this one. Returns how many
    /// could not be opened: requests for them fail with EBADF.
    pub(crate) fn resume(
        &self,
        files: Vec<Reopen>,
        directories: Vec<Reopen>,
        inodes: Vec<(NodeId, OwnedFd)>,
        generation: u32,
    ) -> usize {
        let total = files.len() + directories.len();
        for (id, file) in inodes {
            if let Err(errno) = self.restore_inode(id, file) {
                tracing::warn!(%id, %errno, "cannot restore an unlinked file");
            }
        }
        let files: Vec<_> = files
            .into_iter()
            .filter_map(|file| {
                let handle = file.handle;
                let opened = self.open_again(file);
                let failed = |errno: &Errno| tracing::warn!(handle, %errno, "cannot reopen an open file");
                Some((handle, opened.inspect_err(failed).ok()?))
            })
            .collect();
        let directory = |node| self.reopen(node, OFlags::RDONLY | OFlags::DIRECTORY);
        let directories: Vec<_> = directories
            .into_iter()
            .filter_map(|dir| {
                Some((dir.handle, Arc::new(Mutex::new(Listing::new(directory(dir.node).ok()?)))))
            })
            .collect();
        let lost = total - files.len() - directories.len();
        self.files.restore(files, generation);
        self.open_dirs.restore(directories, generation);
        lost
    }

    fn open_again(&self, Reopen { node, flags, stored, .. }: Reopen) -> Result<Arc<OpenFile>, Errno> {
        credentials::enter_thread()?;
        let flags = filter(flags) - OFlags::TRUNC;
        let (file, is_stored) = match stored {
            Some(file) => {
                // The inode may have no name left, so its id may not resolve.
                if let Ok((Identity::Handle(known), _)) = self.identify(file.as_fd()) {
                    self.nodes.revive(known)?;
                }
                (file, true)
            }
            None => {
                let file = self.reopen(node, flags)?;
                self.settle(&file, flags)?;
                (file, false)
            }
        };
        let mut file = OpenFile::new(file, node, writes(flags), None);
        *file.is_stored.get_mut() = is_stored;
        Ok(Arc::new(file))
    }
}
