//! Translation of change events into changes of nodes that the client may hold.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::super::handle::FileHandle;
use super::super::identity::Identity;
use super::super::node::{Location, Node};
use super::super::{Component, Lower};
use super::event::{self, Event, RawFid};
use super::inotify::{self, Inotify};
use super::{Change, Group, Watch, WatchedMount};

impl Lower {
    /// Reads events and reports the changes that affect the client's caches to `on_change`. Returns `false` if there are no
    /// events.
    ///
    /// # Errors
    /// The error of `read(2)`.
    pub(crate) fn read_events(
        &self,
        buffer: &mut [u8],
        mut on_change: impl FnMut(Change),
    ) -> Result<bool, Errno> {
        let Some(watch) = self.watch() else { return Ok(false) };
        let read = match &watch.group {
            Group::Fanotify(group) => group.read(buffer),
            Group::Inotify(group) => group.read(buffer),
        };
        let length = match read {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        let mut rest = &buffer[..length];
        match &watch.group {
            Group::Fanotify(_) => {
                while let Some(event) = event::take(&mut rest) {
                    self.handle_fanotify(watch, &event, &mut on_change);
                }
            }
            Group::Inotify(group) => {
                while let Some(event) = inotify::take(&mut rest) {
                    self.handle_inotify(watch, group, event, &mut on_change);
                }
            }
        }
        if !rest.is_empty() {
            // The rest of the buffer cannot be parsed, so its events are lost.
            watch.events_lost(&mut on_change);
        }
        Ok(true)
    }

    /// Handles a name that was added to or removed from a directory.
    fn names_changed(&self, watch: &Watch, dir: NodeId, name: &[u8], on_change: &mut impl FnMut(Change)) {
        self.listings.changed(dir);
        if self.became_case_insensitive(dir) {
            // A cached negative entry for another spelling may be wrong now.
            watch.stamp_all();
            on_change(Change::Everything);
        }
        on_change(Change::Name(dir, name.into()));
        on_change(Change::Inode(dir, true));
    }

    /// Handles an inotify event. The daemon's own events are included and cannot be told apart.
    fn handle_inotify(
        &self,
        watch: &Watch,
        group: &Inotify,
        event: inotify::Event<'_>,
        on_change: &mut impl FnMut(Change),
    ) {
        if event.mask & inotify::OVERFLOW != 0 {
            return watch.events_lost(on_change);
        }
        watch.events.fetch_add(1, Ordering::Relaxed);
        if event.mask & inotify::NAMES != 0 {
            watch.stamps.stamp(event.name);
        }
        let dirs = group.nodes(event.watch);
        for &dir in &dirs {
            if event.mask & inotify::NAMES != 0 {
                watch.stamps.stamp(dir);
                self.names_changed(watch, dir, event.name, on_change);
            } else if event.name.is_empty() {
                watch.stamps.stamp(dir);
                on_change(Change::Inode(dir, false));
            } else if event.mask & inotify::CLOSE_WRITE != 0
                && let Some(node) = self.child(dir, event.name)
            {
                on_change(Change::Inode(node, true));
            }
        }
        if event.mask & inotify::IGNORED != 0 {
            group.ended(event.watch);
        }
    }

    /// Returns the node behind a name, if the client holds it.
    fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let name = CString::new(name).ok()?;
        let fd = self.open_child(self.dir(dir).ok()?.as_fd(), Component::new(&name).ok()?).ok()?;
        let node = match self.identify(fd.as_fd()).ok()?.0 {
            Identity::Handle(node) => node,
            Identity::Descriptor(make) => make(Arc::new(fd)),
        };
        self.nodes.find(&node)
    }

    fn handle_fanotify(&self, watch: &Watch, event: &Event<'_>, on_change: &mut impl FnMut(Change)) {
        if event.mask & libc::FAN_Q_OVERFLOW != 0 {
            return watch.events_lost(on_change);
        }
        let fsid = event.name.map(|name| name.0).or(event.dir).or(event.target).map(|fid| fid.fsid);
        let Some(fsid) = fsid else { return };
        let mounts = self.mounts.watched(fsid);
        // The client knows our own changes from the replies. With two mounts of one file system it knows only one
        // of two nodes.
        if event.pid == std::process::id() && mounts.len() == 1 {
            return;
        }
        watch.events.fetch_add(1, Ordering::Relaxed);
        let names = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
        if let Some((dir, name)) = event.name
            && event.mask & names != 0
        {
            watch.stamps.stamp(name);
            for (mount, handle) in Self::stamped(watch, dir, &mounts) {
                let Some(dir) = self.node_of(mount, handle) else { continue };
                self.names_changed(watch, dir, name, on_change);
            }
        }
        let contents = event.mask & libc::FAN_CLOSE_WRITE != 0;
        for target in [event.target, event.dir].into_iter().flatten() {
            for (mount, handle) in Self::stamped(watch, target, &mounts) {
                if let Some(node) = self.node_of(mount, handle) {
                    on_change(Change::Inode(node, contents));
                }
            }
        }
    }

    /// Stamps an inode; returns the mounts and handles by which it may be known.
    fn stamped<'a>(
        watch: &Watch,
        fid: RawFid<'_>,
        mounts: &'a [WatchedMount],
    ) -> impl Iterator<Item = (&'a WatchedMount, FileHandle)> {
        let handle = FileHandle::new(fid.kind, fid.bytes);
        watch.stamps.stamp(&handle);
        mounts.iter().map(move |mount| (mount, handle.clone()))
    }

    /// Returns the node of an inode, if the client holds it.
    fn node_of(&self, mount: &WatchedMount, handle: FileHandle) -> Option<NodeId> {
        if mount.index == 0 && self.root_handle.as_ref() == Some(&handle) {
            return Some(NodeId::ROOT);
        }
        let read = mount.opener.codec.and_then(|codec| codec.read(&handle));
        let (ino, location) = match read {
            Some((ino, generation)) => (ino, Location::Generation(generation)),
            None => (ino_by_opening(mount, &handle)?, Location::Handle(handle)),
        };
        // The file type is not part of the lookup key.
        let node = Node { ino, mount: mount.index, device: 0, kind: FileType::Unknown, location };
        // A node held since an earlier engine may not be in the table yet.
        self.nodes.find(&node).or_else(|| node.id().filter(|_| self.resumes))
    }
}

/// Returns the inode number for file systems whose handles do not contain it. Fails for a deleted inode, whose removed
/// names were reported separately.
fn ino_by_opening(mount: &WatchedMount, handle: &FileHandle) -> Option<u64> {
    let fd = handle.open(mount.opener.fd.as_fd(), OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    Some(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?.stx_ino)
}
