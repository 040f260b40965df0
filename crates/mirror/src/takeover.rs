//! Going on where another daemon ended: see [`shunt_fuse::takeover`].

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use shunt_fuse::guardian::HandOver;
use shunt_fuse::takeover::OpenRecord;
use shunt_fuse::{Errno, Handle, NodeId};

use crate::lower::devices::Numbered;
use crate::lower::fd_store::FdStore;
use crate::lower::resume::Reopen;
use crate::lower::source::Source;
use crate::{CacheMode, Mirror, MirrorError, MirrorOptions};

// Under which ids descriptors are held. Handles have their own, which are 2^32 and above; those below 4 are for a file
// system around this one.

/// The root of the source; the lower two bits say how it is seen.
const ROOT: u64 = 4;
const ROOT_IS_ATTACHED: u64 = 1;
const ROOT_IS_WHOLE: u64 = 2;

/// Mounts below the source, by their index, which is less than that.
const MOUNTS: u64 = 16;

// Marks are ids of nodes, which have one of the highest two bits or are below 2^61, and devices by index.

const DEVICE: u64 = 1 << 61;

fn mark((index, (major, minor)): Numbered) -> Option<u64> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some(DEVICE | u64::from(index) << 32 | u64::from(major) << 20 | u64::from(minor))
}

/// The device that a mark stands for, if it does.
pub(crate) fn device(mark: u64) -> Option<Numbered> {
    let (major, minor) = ((mark >> 20) as u32 & 0xfff, mark as u32 & 0xf_ffff);
    (mark >> 48 == DEVICE >> 48).then_some(((mark >> 32) as u16, (major, minor)))
}

struct Held(Handle);

impl FdStore for Held {
    fn hold(&self, handle: u64, file: BorrowedFd<'_>) {
        if let Some(takeover) = self.0.takeover() {
            takeover.store(handle, file);
        }
    }

    fn let_go(&self, handle: u64) {
        if let Some(takeover) = self.0.takeover() {
            takeover.remove(handle);
        }
    }

    fn hold_node(&self, node: NodeId, file: BorrowedFd<'_>) {
        if let Some(takeover) = self.0.takeover() {
            takeover.store_node(node, file);
        }
    }

    fn let_go_node(&self, node: NodeId) {
        if let Some(takeover) = self.0.takeover() {
            takeover.remove_node(node);
        }
    }

    fn hold_mount(&self, index: u16, file: BorrowedFd<'_>) {
        self.hold(MOUNTS + u64::from(index), file);
    }
}

impl Mirror {
    /// Whether another daemon can take over from this one: inodes of the source have file handles of a known kind.
    pub fn can_be_taken_over(&self) -> bool {
        self.lower.can_be_resumed()
    }

    /// Goes on where another daemon of the same options ended. The path of the source is not looked at: it may lead
    /// through the mount.
    ///
    /// # Errors
    /// The root was not handed over, or is gone.
    pub fn resume(options: MirrorOptions, hand_over: &mut HandOver) -> Result<Self, MirrorError> {
        let mut held: BTreeMap<u64, OwnedFd> = hand_over.take_all().into_iter().collect();
        let root = (ROOT..ROOT + 4).find_map(|id| Some((id, held.remove(&id)?)));
        let (id, root) = root.ok_or_else(|| MirrorError::new(options.source.clone(), Errno::STALE))?;
        let attached = (id & ROOT_IS_ATTACHED != 0).then_some(Errno::PERM);
        let source = Source { root, attached, whole: id & ROOT_IS_WHOLE != 0 };
        let mirror = Self::open_source(MirrorOptions { resumes: true, ..options }, Some(source))?;
        let files = held.split_off(&(2 * MOUNTS));
        let mounts = held.into_iter().filter(|(id, _)| *id >= MOUNTS);
        mirror.lower.restore_mounts(mounts.map(|(id, file)| ((id - MOUNTS) as u16, file)));
        *mirror.inherited.lock() = files;
        *mirror.inherited_nodes.lock() = hand_over.take_nodes();
        Ok(mirror)
    }

    /// The session began, or goes on. `inner` tells the engine's node of one that the kernel has open.
    pub(crate) fn start_takeover(
        &self,
        session: &Handle,
        inner: &dyn Fn(NodeId) -> Option<NodeId>,
    ) -> io::Result<()> {
        let Some(takeover) = session.takeover() else { return Ok(()) };
        if takeover.takeovers() == 0 {
            let attached = if self.lower.attached().is_some() { ROOT_IS_ATTACHED } else { 0 };
            let whole = if self.lower.is_whole() { ROOT_IS_WHOLE } else { 0 };
            takeover.store(ROOT | attached | whole, self.lower.root());
        }
        self.lower.keep_with(Arc::new(Held(session.clone())), self.opens_nothing(session));
        let devices: Vec<_> = takeover.marks().into_iter().filter_map(device).collect();
        let keeper = session.clone();
        let tell = move |new| {
            if let (Some(takeover), Some(mark)) = (keeper.takeover(), mark(new)) {
                takeover.mark(mark);
            }
        };
        self.lower.keep_devices(&devices, Box::new(tell));
        let mut held = std::mem::take(&mut *self.inherited.lock());
        let mut reopen = |record: &OpenRecord| {
            Some(Reopen {
                handle: record.handle.0,
                node: inner(record.node)?,
                flags: record.flags,
                held: held.remove(&record.handle.0),
            })
        };
        let files: Vec<_> = takeover.files().iter().filter_map(&mut reopen).collect();
        let directories: Vec<_> = takeover.directories().iter().filter_map(reopen).collect();
        let unknown = takeover.files().len() + takeover.directories().len() - files.len() - directories.len();
        let inodes = std::mem::take(&mut *self.inherited_nodes.lock());
        let lost = unknown + self.lower.resume(files, directories, inodes, takeover.takeovers());
        if lost > 0 {
            tracing::warn!("{lost} open files could not be opened again: their users get EBADF");
        }
        if takeover.takeovers() > 0 && self.cache == CacheMode::Coherent {
            // Of what others did to the source meanwhile nobody heard.
            session.caches().invalidate_all();
        }
        self.mappable.start(session);
        // Of files that were closed meanwhile.
        held.keys().for_each(|id| takeover.remove(*id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::node_id::{Ident, MOUNTS};

    #[test]
    fn no_id_of_a_node_is_taken_for_a_device() {
        for mount in 0..=MOUNTS {
            for (ino, generation) in [(0, 0), (1, 1 << 31), ((1 << 26) - 1, u32::MAX)] {
                let id = Ident { mount, ino, generation }.id().unwrap();
                assert_eq!(device(id.0), None, "{id}");
            }
        }
        assert_eq!(device((1 << 61) - 1), None, "a place in the table");
        for new in [(0, (0, 0)), (u16::MAX, (0xfff, 0xf_ffff))] {
            assert_eq!(device(mark(new).unwrap()), Some(new));
        }
    }

    #[test]
    fn every_mount_in_an_id_has_a_place_of_its_own() {
        const { assert!((MOUNTS as u64) < super::MOUNTS && ROOT + 4 <= super::MOUNTS && super::MOUNTS < 1 << 31) }
    }
}
