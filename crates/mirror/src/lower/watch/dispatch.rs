//! From events to what the other side may hold.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::super::handle::FileHandle;
use super::super::mounts::WatchedMount;
use super::super::node::{Location, Node};
use super::super::ops::Identity;
use super::super::{Component, Lower};
use super::event::{self, Event, RawFid};
use super::inotify::{self, Inotify};
use super::{Change, Group, Watch};

impl Lower {
    /// Reads what happened, and tells it where the other side may hold something of it. `false`: nothing is there.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub fn hear(&self, buffer: &mut [u8], mut tell: impl FnMut(Change)) -> Result<bool, Errno> {
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
                    self.heard(watch, &event, &mut tell);
                }
            }
            Group::Inotify(group) => {
                while let Some(event) = inotify::take(&mut rest) {
                    self.heard_in(watch, group, event, &mut tell);
                }
            }
        }
        if !rest.is_empty() {
            // Not a form that is known: nothing in it can be told from anything.
            watch.lost(&mut tell);
        }
        Ok(true)
    }

    /// Names came or went in a directory.
    fn names_changed(&self, watch: &Watch, dir: NodeId, name: &[u8], tell: &mut impl FnMut(Change)) {
        self.listings.changed(dir);
        if self.turned_to_ignore_case(dir) {
            // Absent names that were kept before may stand for this one now.
            watch.stamp_all();
            tell(Change::Everything);
        }
        tell(Change::Name(dir, name.into()));
        tell(Change::Inode(dir, true));
    }

    /// An event of a directory. Our own are among them, which cannot be told from others.
    fn heard_in(
        &self,
        watch: &Watch,
        group: &Inotify,
        event: inotify::Event<'_>,
        tell: &mut impl FnMut(Change),
    ) {
        if event.mask & inotify::OVERFLOW != 0 {
            return watch.lost(tell);
        }
        watch.events.fetch_add(1, Ordering::Relaxed);
        if event.mask & inotify::NAMES != 0 {
            watch.stamps.stamp(event.name);
        }
        let dirs = group.nodes(event.watch);
        for &dir in &dirs {
            if event.mask & inotify::NAMES != 0 {
                watch.stamps.stamp(dir);
                self.names_changed(watch, dir, event.name, tell);
            } else if event.name.is_empty() {
                watch.stamps.stamp(dir);
                tell(Change::Inode(dir, false));
            } else if event.mask & inotify::CLOSE_WRITE != 0
                && let Some(node) = self.child(dir, event.name)
            {
                tell(Change::Inode(node, true));
            }
        }
        if event.mask & inotify::IGNORED != 0 {
            group.ended(event.watch);
        }
    }

    /// The node behind a name, if the other side holds it.
    fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let name = CString::new(name).ok()?;
        let fd = self.open_child(self.dir(dir).ok()?.as_fd(), Component::new(&name).ok()?).ok()?;
        let node = match self.identify(fd.as_fd()).ok()?.0 {
            Identity::Handle(node) => node,
            Identity::Descriptor(make) => make(Arc::new(fd)),
        };
        self.nodes.find(&node)
    }

    fn heard(&self, watch: &Watch, event: &Event<'_>, tell: &mut impl FnMut(Change)) {
        if event.mask & libc::FAN_Q_OVERFLOW != 0 {
            return watch.lost(tell);
        }
        let fsid = event.name.map(|name| name.0).or(event.dir).or(event.target).map(|fid| fid.fsid);
        let Some(fsid) = fsid else { return };
        let mounts = self.mounts.watched(fsid);
        // What we did the other side was told in the answer. Seen by way of two mounts, it knows one of two nodes.
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
                self.names_changed(watch, dir, name, tell);
            }
        }
        let contents = event.mask & libc::FAN_CLOSE_WRITE != 0;
        for target in [event.target, event.dir].into_iter().flatten() {
            for (mount, handle) in Self::stamped(watch, target, &mounts) {
                if let Some(node) = self.node_of(mount, handle) {
                    tell(Change::Inode(node, contents));
                }
            }
        }
    }

    /// Stamps an inode; tells under what it may be known.
    fn stamped<'a>(
        watch: &Watch,
        fid: RawFid<'_>,
        mounts: &'a [WatchedMount],
    ) -> impl Iterator<Item = (&'a WatchedMount, FileHandle)> {
        let handle = FileHandle::new(fid.kind, fid.bytes);
        watch.stamps.stamp(&handle);
        mounts.iter().map(move |mount| (mount, handle.clone()))
    }

    /// The node of an inode, if the other side holds it.
    fn node_of(&self, mount: &WatchedMount, handle: FileHandle) -> Option<NodeId> {
        if mount.index == 0 && self.root_handle.as_ref() == Some(&handle) {
            return Some(NodeId::ROOT);
        }
        let read = mount.opener.codec.and_then(|codec| codec.read(&handle));
        let (ino, location) = match read {
            Some((ino, generation)) => (ino, Location::Generation(generation)),
            None => (ino_by_opening(mount, &handle)?, Location::Handle(handle)),
        };
        // The kind is no part of what a node is found by.
        let node = Node { ino, mount: mount.index, device: 0, kind: FileType::Unknown, location };
        // What is held since an earlier engine may not be in the table yet.
        self.nodes.find(&node).or_else(|| node.id().filter(|_| self.resumes))
    }
}

/// For file systems that do not put the number into the handle. Fails for what is deleted: its names were told.
fn ino_by_opening(mount: &WatchedMount, handle: &FileHandle) -> Option<u64> {
    let fd = handle.open(mount.opener.fd.as_fd(), OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    Some(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?.stx_ino)
}
