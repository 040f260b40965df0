//! What others see of changes, and when.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use shunt_fuse::Errno;
use shunt_volume::lease::{Leases, Wait};

use crate::VolumeFs;
use crate::opens::{OpenFile, errno};

/// By which it is seen that a file was written.
pub(crate) type FileStamp = (u64, i64, i64);

pub(crate) fn stamp(open: &OpenFile) -> Result<FileStamp, Errno> {
    stamp_of(open.file())
}

pub(crate) fn stamp_of(file: &File) -> Result<FileStamp, Errno> {
    let metadata = file.metadata().map_err(errno)?;
    Ok((metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

async fn wait_if_any(wait: Option<Wait>) {
    if let Some(wait) = wait {
        wait.await;
    }
}

impl VolumeFs {
    fn leases_with_peers(&self) -> Option<&Leases> {
        self.leases.as_deref().filter(|leases| leases.has_peers())
    }

    /// Whether somebody else would care for a change.
    pub(crate) fn has_peers(&self) -> bool {
        self.leases_with_peers().is_some()
    }

    /// To be waited for after a name was changed, before that is answered. `made`: what it leads to is new.
    pub(crate) async fn changed_name(&self, parent: u64, name: &[u8], made: Option<u64>) {
        if let Some(leases) = self.leases_with_peers() {
            wait_if_any(leases.name_changed(parent, name, made)).await;
        }
    }

    /// The same for two names.
    pub(crate) async fn changed_names(&self, one: (u64, &[u8]), other: (u64, &[u8])) {
        if let Some(leases) = self.leases_with_peers() {
            // Both are said before the first is waited for.
            let both = [one, other].map(|(parent, name)| leases.name_changed(parent, name, None));
            for wait in both {
                wait_if_any(wait).await;
            }
        }
    }

    /// A file was changed by one who has it not open.
    pub(crate) async fn changed_file(&self, num: u64) {
        if let Some(leases) = self.leases_with_peers() {
            let wait = leases.closing(num);
            leases.closed(num);
            wait_if_any(wait).await;
        }
    }

    /// One of those who have a file open closes it.
    pub(crate) async fn closing(&self, open: &OpenFile) -> Result<(), Errno> {
        let Some(leases) = self.leases_with_peers().filter(|_| open.writes) else { return Ok(()) };
        let now = stamp(open)?;
        let was = open.published.lock().replace(now);
        if was != Some(now) {
            wait_if_any(leases.closing(open.num)).await;
        }
        Ok(())
    }

    /// To be waited for before a name is looked up in a directory, or a file is opened.
    pub(crate) async fn before_use(&self, num: u64) {
        if let Some(leases) = &self.leases {
            wait_if_any(leases.before_use(num)).await;
        }
    }

    /// To be waited for before a directory is opened.
    pub(crate) async fn before_listing(&self, num: u64) {
        if let Some(leases) = &self.leases {
            wait_if_any(leases.before_listing(num)).await;
        }
    }
}
