//! Coherence with peers: publishes changes before the reply, and waits for their leases before a use. Without leases, or while
//! no peer is connected, nothing waits.

use shunt_fuse::Errno;
use shunt_volume::lease::{Leases, Wait};

use crate::VolumeFs;
use crate::open_file::{OpenFile, stamp};

async fn wait_if_any(wait: Option<Wait>) {
    if let Some(wait) = wait {
        wait.await;
    }
}

impl VolumeFs {
    fn leases_with_peers(&self) -> Option<&Leases> {
        self.leases.as_deref().filter(|leases| leases.has_peers())
    }

    /// Reports whether any peer is connected.
    pub(crate) fn has_peers(&self) -> bool {
        self.leases_with_peers().is_some()
    }

    /// Publishes a change of a dentry, before the reply. `made`: the inode behind it is new.
    pub(crate) async fn changed_name(&self, parent: u64, name: &[u8], made: Option<u64>) {
        if let Some(leases) = self.leases_with_peers() {
            wait_if_any(leases.name_changed(parent, name, made)).await;
        }
    }

    /// Publishes changes of two dentries.
    pub(crate) async fn changed_names(&self, one: (u64, &[u8]), other: (u64, &[u8])) {
        if let Some(leases) = self.leases_with_peers() {
            // Both are published before the first wait.
            let both = [one, other].map(|(parent, name)| leases.name_changed(parent, name, None));
            for wait in both {
                wait_if_any(wait).await;
            }
        }
    }

    /// Publishes a change of a file that was made without an open.
    pub(crate) async fn changed_file(&self, num: u64) {
        if let Some(leases) = self.leases_with_peers() {
            let wait = leases.closing(num);
            leases.closed(num);
            wait_if_any(wait).await;
        }
    }

    /// Publishes the content of a file that is about to be closed.
    pub(crate) async fn closing(&self, open: &OpenFile) -> Result<(), Errno> {
        let Some(leases) = self.leases_with_peers().filter(|_| open.writes) else { return Ok(()) };
        let now = stamp(open)?;
        let was = open.published.lock().replace(now);
        if was != Some(now) {
            wait_if_any(leases.closing(open.num)).await;
        }
        Ok(())
    }

    /// Waits for peers' changes before a lookup in a directory, or before a file is opened.
    pub(crate) async fn wait_before_open(&self, num: u64) {
        if let Some(leases) = &self.leases {
            wait_if_any(leases.wait_before_open(num)).await;
        }
    }

    /// Waits for peers' changes before a directory is opened.
    pub(crate) async fn wait_before_listing(&self, num: u64) {
        if let Some(leases) = &self.leases {
            wait_if_any(leases.wait_before_listing(num)).await;
        }
    }
}
