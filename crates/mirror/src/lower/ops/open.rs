//! Opening files.

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
    /// The number under which it is kept until [`Lower::close`].
    pub handle: u64,
    /// The file.
    pub file: Arc<OpenFile>,
}

/// Flags that mean something to the lower file. All others concern the asking side, or name resolution.
const PASSED: OFlags = OFlags::RWMODE
    .union(OFlags::APPEND)
    .union(OFlags::TRUNC)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC)
    .union(OFlags::DIRECT)
    .union(OFlags::NOATIME)
    .union(OFlags::NONBLOCK);

/// The flags to open the lower file with.
///
/// Never to wait: somebody may hold a lease on the file, and a thread that waited for it would be one less for all
/// others. EWOULDBLOCK says that the lease is being broken; asking again later is how to wait.
pub(in super::super) fn filter(flags: u32) -> OFlags {
    (OFlags::from_bits_retain(flags) & PASSED) | OFlags::NONBLOCK
}

/// Whether a file opened so can be written.
pub(in super::super) fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

impl Lower {
    /// The lower file system has judged the flags; the daemon's own I/O does without most of them. O_DIRECT: its buffers
    /// are not aligned. O_APPEND: what comes from the page cache goes where it was, and a caller may give the flag up;
    /// each write says whether it appends. O_NONBLOCK was ours.
    pub(in super::super) fn settle(&self, file: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
        // Reads may be unnoted although the caller did not ask for that.
        let had = if self.unnoted { rustix::fs::fcntl_getfl(file)? } else { flags };
        let rest = had & OFlags::NOATIME;
        match rustix::fs::fcntl_setfl(file, rest) {
            // Files that can only be appended to.
            Err(Errno::PERM) => rustix::fs::fcntl_setfl(file, rest | flags & OFlags::APPEND),
            result => result,
        }
    }

    /// Opens a regular file with the caller's access mode, so that everything that hangs on it binds: read-only file
    /// systems, immutable and append-only files, running programs. `kill_setid`: O_TRUNC clears setuid and setgid.
    ///
    /// # Errors
    /// Those of `open(2)`; EWOULDBLOCK while somebody holds a lease on the file; ENFILE where callers have as many
    /// files open as they may; ENXIO for what is not a regular file, which opens without our help.
    pub fn open_file(
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
        self.hold_opened(handle, &file, removals);
        Ok(Opening { handle, file })
    }

    /// Callers' files may not use up the descriptors that everybody's lookups need, nor one user's those of all.
    ///
    /// # Errors
    /// ENFILE.
    pub(super) fn room_for_open(&self, caller: Caller) -> Result<Share, Errno> {
        let open = self.files.len() + self.open_dirs.len();
        self.shares.take(caller.uid, open, self.limits.open(self.has_handles()))
    }

    /// The open file of a handle.
    ///
    /// # Errors
    /// EBADF.
    pub fn file(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        self.files.get(handle)
    }

    /// Ends a handle.
    pub fn close(&self, handle: u64) {
        if let Some(file) = self.files.remove(handle) {
            self.let_go(handle, &file);
        }
    }
}
