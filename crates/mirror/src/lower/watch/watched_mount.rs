//! A mount whose file system reports its changes through fanotify.

use super::super::opener::Opener;

/// A mount of the source, with the means of resolving the file handles in its events.
#[derive(Debug, Clone)]
pub(in super::super) struct WatchedMount {
    pub(in super::super) index: u16,
    pub(in super::super) opener: Opener,
    /// Id of its file system: events do not name the mount.
    pub(in super::super) fsid: u64,
}
