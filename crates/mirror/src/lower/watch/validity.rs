//! What answers ask before they say how long they may be believed.

use std::os::fd::AsFd;

use shunt_fuse::NodeId;

use super::super::Lower;
use super::super::handle::FileHandle;
use super::super::node::Location;
use super::{Group, Moment, Watch};

impl Lower {
    /// What hears of changes, if anything does.
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// This moment in the order of events: taken before the source is read.
    pub fn moment(&self) -> Option<Moment> {
        Some(self.watch()?.stamps.now())
    }

    /// Listens to a directory, where directories are what is listened to. To be called before the
    /// [moment](Self::moment) is taken.
    pub fn watch_dir(&self, id: NodeId) {
        if let Some(watch) = self.watch()
            && let Some(inotify) = watch.directories()
            && !inotify.has(id)
            && let Ok(dir) = self.dir(id)
        {
            inotify.watch(id, dir.as_fd(), &watch.stamps);
            // A FORGET in between would leave it watched with nobody to let go of it.
            inotify.unwatch(id, || id != NodeId::ROOT && self.nodes.get(id).is_err());
        }
    }

    /// Whether changes of an inode that is no directory, or none that is watched itself, are told too.
    pub fn hears_of_inodes(&self) -> bool {
        self.watch().is_some_and(|watch| watch.file_systems().is_some())
    }

    /// Whether a node is watched, and was at that moment: a change of it will be told. Where directories are listened to
    /// only they are watched.
    pub fn is_watched(&self, id: NodeId, since: Option<Moment>) -> bool {
        if let Some(inotify) = self.watch().and_then(Watch::directories) {
            return since.is_some_and(|since| inotify.is_watched(id, since));
        }
        let mount = if id == NodeId::ROOT { Ok(0) } else { self.nodes.get(id).map(|node| node.mount) };
        mount.is_ok_and(|mount| self.mounts.is_watched(mount))
    }

    /// Whether nothing happened to an inode since then, as far as was heard by now.
    pub fn is_quiet(&self, id: NodeId, since: Option<Moment>) -> bool {
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

    /// The same of a name, in whatever directory.
    pub fn is_name_quiet(&self, name: &[u8], since: Option<Moment>) -> bool {
        let (Some(watch), Some(since)) = (self.watch(), since) else { return false };
        watch.stamps.is_quiet(name, since)
    }

    /// Also listens to the end of writing: for files whose pages the other side keeps.
    pub fn watch_writers(&self) {
        if let Some(watch) = self.watch() {
            match &watch.group {
                Group::Fanotify(group) => group.add_close_write(),
                Group::Inotify(group) => group.add_close_write(self.root.as_fd()),
            }
            self.mounts.watch_again();
        }
    }
}
