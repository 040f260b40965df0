//! The I/O mode of an open: which way the data of reads and writes takes.
//!
//! The kernel allows one mode per inode at a time, passthrough to one backing file or its page cache, while every open of a
//! volume's file keeps its own version. The first row that applies decides:
//!
//! | the open | mode | reason |
//! |---|---|---|
//! | complete, of the newest version only, without setid bits, capabilities or limits, and its backing file is registered | passthrough | no request reaches the daemon |
//! | an older version is open, this one reads | direct, or with that version | while the kernel passes that version through, mappings show it in any case, so reads show all of it |
//! | an older version is open, this one writes | direct | writes must reach this version, not the one that the kernel passes through |
//! | the kernel uses the backing file of another version (EBUSY) | direct | as above |
//! | incomplete, or invalidations are pending, and direct files can be mapped | direct | the kernel may have the length of another version |
//! | any other | cached | pages of this version |

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shunt_fuse::{Backing, Errno, FileHandle, NodeId, Opened, Request};
use shunt_volume::lease::Wait;

use crate::VolumeFs;
use crate::open_file::OpenFile;

/// Number of attempts to register a backing file, [`BACKING_RETRY_INTERVAL`] apart.
const MAX_BACKING_TRIES: u32 = 20;
const BACKING_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The facts that decide the mode of an open, apart from the registration of its backing file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFacts {
    /// All of the file is cached.
    pub(crate) complete: bool,
    /// The file may be written through this open.
    pub(crate) writes: bool,
    /// Every open of the file shows this version.
    pub(crate) is_only_version: bool,
    /// The kernel is processing an invalidation of the file, or was a moment ago.
    pub(crate) is_invalidating: bool,
    /// The kernel can map files that are open for direct I/O.
    pub(crate) maps_direct: bool,
}

impl OpenFacts {
    /// The mode by the table above. `backing` is the registered backing file, or the reason why it is not registered; `None`
    /// where passthrough was not tried.
    pub(crate) fn mode(self, handle: FileHandle, backing: Option<Result<Backing, Errno>>) -> Opened {
        match backing {
            Some(Ok(backing)) => Opened::passthrough(handle, backing),
            _ if !self.is_only_version && !self.writes => Opened::direct(handle).joining(),
            _ if !self.is_only_version => Opened::direct(handle).watched(),
            Some(Err(Errno::BUSY)) => Opened::direct(handle).watched(),
            _ if self.maps_direct && (!self.complete || self.is_invalidating) => {
                Opened::direct(handle).watched()
            }
            _ => Opened::cached(handle).watched(),
        }
    }
}

impl VolumeFs {
    /// Registers the backing file of an open with the kernel.
    ///
    /// # Errors
    /// EBUSY while the kernel uses the backing file of another version; EOPNOTSUPP without passthrough; those of the kernel.
    pub(crate) async fn register_backing(
        &self,
        request: &Request<'_>,
        open: &OpenFile,
    ) -> Result<Backing, Errno> {
        let passthrough = request.session().passthrough().ok_or(Errno::OPNOTSUPP)?;
        let mut tries = 0..MAX_BACKING_TRIES;
        // The kernel reopens the backing file for each open. The descriptor that it keeps besides must not be a writer: see
        // `writable_mappings`.
        let read_only = match open.writes {
            true => self.replica.reopen_read_only(open.num, open.file()).ok(),
            false => None,
        };
        let registered = read_only.as_ref().unwrap_or(open.file());
        if open.maps_writable {
            self.replica.mark_mapped(open.num, open.opened.session);
        }
        let shared = loop {
            match passthrough.share(NodeId(open.num), registered.as_fd()) {
                // The last open of an older version was closed, and its registration is about to end.
                Err(Errno::BUSY) if tries.next().is_some() => Wait::pause(BACKING_RETRY_INTERVAL).await,
                shared => break shared,
            }
        };
        if let Err(errno) = &shared
            && *errno != Errno::BUSY
            && !self.passthrough_refused.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%errno, "data goes through the daemon");
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use shunt_fuse::Serve;

    use super::*;

    #[test]
    fn each_row_of_the_table_has_its_mode() {
        let facts = OpenFacts {
            complete: true,
            writes: false,
            is_only_version: true,
            is_invalidating: false,
            maps_direct: true,
        };
        let refused = || Some(Err(Errno::PERM));
        let cases = [
            (facts, None, false),
            (facts, refused(), false),
            (facts, Some(Err(Errno::BUSY)), true),
            (OpenFacts { complete: false, ..facts }, None, true),
            (OpenFacts { is_invalidating: true, ..facts }, refused(), true),
            (OpenFacts { is_invalidating: true, maps_direct: false, ..facts }, refused(), false),
            (OpenFacts { is_only_version: false, ..facts }, None, true),
            (OpenFacts { is_only_version: false, writes: true, maps_direct: false, ..facts }, None, true),
        ];
        for (facts, backing, is_direct) in cases {
            let opened = facts.mode(FileHandle(7), backing);
            assert_eq!(matches!(opened.serve, Serve::Direct), is_direct, "{facts:?}");
        }
    }
}
