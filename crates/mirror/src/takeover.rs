//! Takeover: continues the session of another daemon of the same source. See [`shunt_fuse::takeover`].

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use shunt_fuse::guardian::HandOver;
use shunt_fuse::takeover::OpenRecord;
use shunt_fuse::{Errno, Handle, NodeId};

use crate::lower::fd_store::FdStore;
use crate::lower::resume::Reopen;
use crate::lower::source::Source;
use crate::takeover_marks::{device, mark};
use crate::{CacheMode, Mirror, MirrorError, MirrorOptions};

// Ids of descriptors in the fd store. File handles use their own ids, which are at least 2^32; ids below 4 and those from 8 to 15 are
// reserved for file systems that wrap this one. From 12 on, they stay stored if nobody takes them.
const KEPT_OF_WRAPPERS: std::ops::Range<u64> = 12..MOUNTS;

/// The root of the source; the lower two bits are `ROOT_IS_ATTACHED` and `ROOT_IS_FS_ROOT`.
const ROOT: u64 = 4;
const ROOT_IS_ATTACHED: u64 = 1;
const ROOT_IS_FS_ROOT: u64 = 2;

/// Base id of mounts below the source; the mount's index, which is smaller than this constant, is added.
const MOUNTS: u64 = 16;

struct TakeoverStore(Handle);

impl FdStore for TakeoverStore {
    fn store(&self, handle: u64, file: BorrowedFd<'_>) {
        if let Some(takeover) = self.0.takeover() {
            takeover.store(handle, file);
        }
    }

    fn release(&self, handle: u64) {
        if let Some(takeover) = self.0.takeover() {
            takeover.remove(handle);
        }
    }

    fn store_node(&self, node: NodeId, file: BorrowedFd<'_>) {
        if let Some(takeover) = self.0.takeover() {
            takeover.store_node(node, file);
        }
    }

    fn release_node(&self, node: NodeId) {
        if let Some(takeover) = self.0.takeover() {
            takeover.remove_node(node);
        }
    }

    fn store_mount(&self, index: u16, file: BorrowedFd<'_>) {
        self.store(MOUNTS + u64::from(index), file);
    }
}

impl Mirror {
    /// Reports whether another daemon can take over from this one: inodes of the source must have file handles of a
    /// known type.
    pub fn can_be_taken_over(&self) -> bool {
        self.lower.can_be_resumed()
    }

    /// Continues the session of another daemon with the same options. The path of the source is not resolved: it may
    /// lead through the mount.
    ///
    /// # Errors
    /// The root was not handed over, or no longer exists.
    pub fn resume(options: MirrorOptions, hand_over: &mut HandOver) -> Result<Self, MirrorError> {
        let mut stored: BTreeMap<u64, OwnedFd> = hand_over.take_all().into_iter().collect();
        let root = (ROOT..ROOT + 4).find_map(|id| Some((id, stored.remove(&id)?)));
        let (id, root) = root.ok_or_else(|| MirrorError::new(options.source.clone(), Errno::STALE))?;
        let attached = (id & ROOT_IS_ATTACHED != 0).then_some(Errno::PERM);
        let source = Source { root, attached, is_fs_root: id & ROOT_IS_FS_ROOT != 0 };
        let mirror = Self::open_source(MirrorOptions { resumes: true, ..options }, Some(source))?;
        let files = stored.split_off(&(2 * MOUNTS));
        let mounts = stored.split_off(&MOUNTS).into_iter();
        mirror.lower.restore_mounts(mounts.map(|(id, file)| ((id - MOUNTS) as u16, file)));
        // Descriptors that no file system wrapped around this one has taken are dropped, together with the files that were closed
        // meanwhile.
        stored.retain(|id, _| !KEPT_OF_WRAPPERS.contains(id));
        stored.extend(files);
        *mirror.inherited.lock() = stored;
        *mirror.inherited_nodes.lock() = hand_over.take_nodes();
        Ok(mirror)
    }

    /// Called when a session starts or resumes. `inner` maps the kernel's node of an open file to the engine's node.
    pub(crate) fn start_takeover(
        &self,
        session: &Handle,
        inner: &dyn Fn(NodeId) -> Option<NodeId>,
    ) -> io::Result<()> {
        let Some(takeover) = session.takeover() else { return Ok(()) };
        if takeover.takeovers() == 0 {
            let attached = if self.lower.attached().is_some() { ROOT_IS_ATTACHED } else { 0 };
            let fs_root = if self.lower.is_fs_root() { ROOT_IS_FS_ROOT } else { 0 };
            takeover.store(ROOT | attached | fs_root, self.lower.root());
        }
        self.lower.set_fd_store(Arc::new(TakeoverStore(session.clone())), self.serves_without_open(session));
        let devices: Vec<_> = takeover.marks().into_iter().filter_map(device).collect();
        let recording_session = session.clone();
        let on_new = move |new| {
            if let (Some(takeover), Some(mark)) = (recording_session.takeover(), mark(new)) {
                takeover.mark(mark);
            }
        };
        self.lower.keep_devices(&devices, Box::new(on_new));
        let mut stored = std::mem::take(&mut *self.inherited.lock());
        let mut reopen = |record: &OpenRecord| {
            Some(Reopen {
                handle: record.handle.0,
                node: inner(record.node)?,
                flags: record.flags,
                stored: stored.remove(&record.handle.0),
            })
        };
        let files: Vec<_> = takeover.files().iter().filter_map(&mut reopen).collect();
        let directories: Vec<_> = takeover.directories().iter().filter_map(reopen).collect();
        let unknown = takeover.files().len() + takeover.directories().len() - files.len() - directories.len();
        let inodes = std::mem::take(&mut *self.inherited_nodes.lock());
        let lost = unknown + self.lower.resume(files, directories, inodes, takeover.takeovers());
        if lost > 0 {
            tracing::warn!("cannot reopen {lost} open files after the takeover: their users get EBADF");
        }
        if takeover.takeovers() > 0 && self.cache == CacheMode::Coherent {
            // Changes of the source during the takeover were not observed.
            session.caches().invalidate_all();
        }
        self.writable_mappings.start(session);
        // Files that were closed during the takeover, and what nobody has taken.
        stored.keys().for_each(|id| takeover.remove(*id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::node_id::MAX_ENCODED_MOUNTS;

    #[test]
    fn ids_of_mounts_do_not_overlap_other_ids() {
        const { assert!((MAX_ENCODED_MOUNTS as u64) < MOUNTS && ROOT + 4 <= MOUNTS && MOUNTS < 1 << 31) }
    }
}
