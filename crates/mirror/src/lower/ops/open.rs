//! Opening files.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::Lower;
use super::super::credentials::KeepSetid;
use super::super::open_files::OpenFile;

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
pub(super) fn filter(flags: u32) -> OFlags {
    OFlags::from_bits_retain(flags) & PASSED
}

/// Whether a file opened so can be written.
pub(super) fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// The lower file system has judged O_DIRECT. The daemon's own I/O does without it: its buffers are not aligned.
pub(super) fn settle(file: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
    if flags.contains(OFlags::DIRECT) {
        rustix::fs::fcntl_setfl(file, rustix::fs::fcntl_getfl(file)? - OFlags::DIRECT)?;
    }
    Ok(())
}

impl Lower {
    /// Opens a regular file with the caller's access mode, so that everything that hangs on it binds: read-only file
    /// systems, immutable and append-only files, running programs. `kill_setid`: O_TRUNC clears setuid and setgid.
    ///
    /// # Errors
    /// Those of `open(2)`; ENXIO for what is not a regular file, which opens without our help.
    pub fn open_file(&self, id: NodeId, flags: u32, kill_setid: bool) -> Result<Opening, Errno> {
        if self.nodes.get(id)?.kind != FileType::RegularFile {
            return Err(Errno::NXIO);
        }
        let flags = filter(flags);
        if flags.intersects(OFlags::TRUNC) || writes(flags) {
            self.writable()?;
        }
        let file = {
            let _keep = KeepSetid::when(flags.contains(OFlags::TRUNC) && !kill_setid)?;
            self.reopen(id, flags)?
        };
        settle(&file, flags)?;
        let file = Arc::new(OpenFile { file: Arc::new(file), node: id, writable: writes(flags) });
        Ok(Opening { handle: self.files.add(file.clone()), file })
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
        self.files.remove(handle);
    }
}
