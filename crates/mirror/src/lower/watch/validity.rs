//! Validity checks, from which replies derive their cache lifetime.

use std::os::fd::AsFd;

use shunt_fuse::NodeId;

use super::super::Lower;
use super::super::handle::FileHandle;
use super::super::node::Location;
use super::{Group, Moment, Watch};

impl Lower {
    /// Returns the watch, if there is one.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Returns the current moment in the order of events; callers take it before they read the source.
    pub(crate) fn moment(&self) -> Option<Moment> {
        Some(self.watch()?.stamps.now())
    }

    /// Watches a directory, if the watch uses inotify. Must be called before the [moment](Self::moment) is taken.
    pub(crate) fn watch_dir(&self, id: NodeId) {
        if let Some(watch) = self.watch()
            && let Some(inotify) = watch.directories()
            && !inotify.has(id)
            && let Ok(dir) = self.dir(id)
        {
            inotify.watch(id, dir.as_fd(), &watch.stamps);
            // A concurrent FORGET would leave a watch that nothing removes.
            inotify.unwatch(id, || id != NodeId::ROOT && self.nodes.get(id).is_err());
        }
    }

    /// Reports whether the watch covers inodes other than watched directories, too.
    pub(crate) fn reports_inode_changes(&self) -> bool {
        self.watch().is_some_and(|watch| watch.file_systems().is_some())
    }

    /// Reports whether a node is watched and was at the given moment, so that any change of it will be reported. With
    /// inotify only directories are watched.
    pub(crate) fn is_watched(&self, id: NodeId, since: Option<Moment>) -> bool {
        if let Some(inotify) = self.watch().and_then(Watch::directories) {
            return since.is_some_and(|since| inotify.is_watched(id, since));
        }
        let mount = if id == NodeId::ROOT { Ok(0) } else { self.nodes.get(id).map(|node| node.mount) };
        mount.is_ok_and(|mount| self.mounts.is_watched(mount))
    }

    /// Reports whether no change of an inode was seen since the given moment.
    pub(crate) fn is_quiet(&self, id: NodeId, since: Option<Moment>) -> bool {
        let (Some(watch), Some(since)) = (self.watch(), since) else { return false };
        if watch.directories().is_some() {
            return watch.stamps.is_quiet(id, since);
        }
        let handle = match self.nodes.get(id) {
            _ if id == NodeId::ROOT => self.root_handle.clone(),
            Ok(node) => match node.location {
                Location::Generation(generation) => self.handle_of(node.mount, node.ino, generation),
                Location::Handle(handle) => Some(handle),
                Location::Fd(_) => None,
            },
            Err(_) => None,
        };
        handle.is_some_and(|handle| watch.stamps.is_quiet(&handle, since))
    }

    fn handle_of(&self, mount: u16, ino: u64, generation: u32) -> Option<FileHandle> {
        self.mounts.opener(mount)?.codec?.handle(ino, generation)
    }

    /// Reports whether no change of a name, in any directory, was seen since the given moment.
    pub(crate) fn is_name_quiet(&self, name: &[u8], since: Option<Moment>) -> bool {
        let (Some(watch), Some(since)) = (self.watch(), since) else { return false };
        watch.stamps.is_quiet(name, since)
    }

    /// Also watches for the end of writes, for files whose pages the client caches.
    pub(crate) fn watch_writers(&self) {
        if let Some(watch) = self.watch() {
            match &watch.group {
                Group::Fanotify(group) => group.add_close_write(),
                Group::Inotify(group) => group.add_close_write(self.root.as_fd()),
            }
            self.mounts.watch_again();
        }
    }
}
