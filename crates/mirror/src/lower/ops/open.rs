//! Open and close of regular files.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::credentials::KeepSetid;
use super::super::open_files::OpenFile;
use super::super::shares::Share;
use super::super::{Caller, Lower};

/// A file opened for a caller.
#[derive(Debug)]
pub struct Opening {
    /// The handle, valid until [`Lower::close`].
    pub handle: u64,
    /// The file.
    pub file: Arc<OpenFile>,
}

/// Flags that affect the lower file. All others concern the client, or name resolution.
const FORWARDED_FLAGS: OFlags = OFlags::RWMODE
    .union(OFlags::APPEND)
    .union(OFlags::TRUNC)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC)
    .union(OFlags::DIRECT)
    .union(OFlags::NOATIME)
    .union(OFlags::NONBLOCK);

/// Returns the flags to open the lower file with.
///
/// O_NONBLOCK is always set: another process may hold a lease on the file, and waiting for it would block a serving
/// thread. EWOULDBLOCK means that the lease is being broken; the caller waits by retrying later.
pub(in super::super) fn filter(flags: u32) -> OFlags {
    (OFlags::from_bits_retain(flags) & FORWARDED_FLAGS) | OFlags::NONBLOCK
}

/// Reports whether the flags open a file for writing.
pub(in super::super) fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

impl Lower {
    /// Clears flags that the lower file system has checked but the daemon's own I/O must not have. O_DIRECT: its
    /// buffers are not aligned. O_APPEND: pages written back from the cache have a fixed offset, and a caller may clear
    /// the flag; each write request says whether it appends. O_NONBLOCK was added by the daemon.
    pub(in super::super) fn settle(&self, file: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
        // O_NOATIME may be set although the caller did not ask for it.
        let had = if self.opens_noatime { rustix::fs::fcntl_getfl(file)? } else { flags };
        let rest = had & OFlags::NOATIME;
        match rustix::fs::fcntl_setfl(file, rest) {
            // Append-only files cannot lose O_APPEND.
            Err(Errno::PERM) => rustix::fs::fcntl_setfl(file, rest | flags & OFlags::APPEND),
            result => result,
        }
    }

    /// Opens a regular file with the caller's access mode, so that all restrictions on it apply: read-only file
    /// systems, immutable and append-only files, running programs. `kill_setid`: O_TRUNC clears setuid and setgid.
    ///
    /// # Errors
    /// The error of `open(2)`; EWOULDBLOCK while another process holds a lease on the file; ENFILE if the limit on open
    /// files is reached; ENXIO if it is not a regular file, which the kernel opens without the daemon.
    pub(crate) fn open_file(
        &self,
        id: NodeId,
        flags: u32,
        kill_setid: bool,
        caller: Caller,
    ) -> Result<Opening, Errno> {
        let share = self.room_for_open(caller)?;
        if self.node(id)?.kind != FileType::RegularFile {
            return Err(Errno::NXIO);
        }
        let removals = self.removals();
        let flags = filter(flags);
        if flags.intersects(OFlags::TRUNC) || writes(flags) {
            self.writable()?;
        }
        let file = {
            let truncates = flags.contains(OFlags::TRUNC);
            let _keep = KeepSetid::when(truncates && !kill_setid)?;
            let _member =
                (truncates && kill_setid).then(|| self.as_member(self.open_path(id)?, caller)).transpose()?;
            self.reopen(id, flags)?
        };
        self.settle(&file, flags)?;
        let file = Arc::new(OpenFile::new(file, id, writes(flags), Some(share)));
        let handle = self.files.add(file.clone());
        self.store_opened(handle, &file, removals);
        Ok(Opening { handle, file })
    }

    /// Reserves an open file for the caller. Callers must not use up the descriptors that all lookups need, nor one
    /// user those of all users.
    ///
    /// # Errors
    /// ENFILE.
    pub(super) fn room_for_open(&self, caller: Caller) -> Result<Share, Errno> {
        let open = self.files.len() + self.open_dirs.len();
        self.shares.take(caller.uid, open, self.limits.open(self.has_handles()))
    }

    /// Returns the open file of a handle.
    ///
    /// # Errors
    /// EBADF.
    pub fn file(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        self.files.get(handle)
    }

    /// Closes a handle.
    pub fn close(&self, handle: u64) {
        if let Some(file) = self.files.remove(handle) {
            self.release_file(handle, &file);
        }
    }
}
