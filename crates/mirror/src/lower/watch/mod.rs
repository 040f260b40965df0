//! Changes that others make in the source, by node.

mod event;
mod fanotify;
mod inotify;
mod stamps;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::handle::FileHandle;
use super::mounts::WatchedMount;
use super::node::{Location, Node};
use super::ops::Identity;
use super::{Component, Lower};
use event::{Event, RawFid};
pub use fanotify::Fanotify;
use inotify::Inotify;
pub use stamps::{Moment, Stamps};

/// Something that the other side may hold changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// A name came, went, or stands for something else.
    Name(NodeId, Box<[u8]>),
    /// Attributes of an inode; with `true` also what it contains.
    Inode(NodeId, bool),
    /// Events were lost.
    Everything,
}

#[derive(Debug)]
enum Group {
    Fanotify(Fanotify),
    Inotify(Inotify),
}

/// Hears of changes, and keeps what answers must know of them.
#[derive(Debug)]
pub struct Watch {
    group: Group,
    stamps: Stamps,
    events: AtomicU64,
    overflows: AtomicU64,
}

impl Watch {
    fn over(group: Group) -> Self {
        Self { group, stamps: Stamps::default(), events: AtomicU64::new(0), overflows: AtomicU64::new(0) }
    }

    /// A watch over whole file systems.
    ///
    /// # Errors
    /// As [`Fanotify::new`].
    pub fn fanotify() -> Result<Self, Errno> {
        Ok(Self::over(Group::Fanotify(Fanotify::new()?)))
    }

    /// A watch over the directories that the other side looks into, at most so many.
    ///
    /// # Errors
    /// EMFILE at the limit of `fs.inotify.max_user_instances`; ENOSYS.
    pub fn inotify(most: Option<usize>) -> Result<Self, Errno> {
        Ok(Self::over(Group::Inotify(Inotify::new(most)?)))
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &'static str {
        match self.group {
            Group::Fanotify(_) => "fanotify",
            Group::Inotify(_) => "inotify",
        }
    }

    /// The listener to whole file systems, if it is one.
    pub(super) fn file_systems(&self) -> Option<&Fanotify> {
        match &self.group {
            Group::Fanotify(group) => Some(group),
            Group::Inotify(_) => None,
        }
    }

    /// The listener to directories, if it is one.
    fn directories(&self) -> Option<&Inotify> {
        match &self.group {
            Group::Fanotify(_) => None,
            Group::Inotify(group) => Some(group),
        }
    }

    /// A directory is no longer known, unless it is by now.
    pub(super) fn forget(&self, dir: NodeId, is_gone: impl FnOnce() -> bool) {
        if let Some(inotify) = self.directories() {
            inotify.unwatch(dir, is_gone);
        }
    }

    /// Answers that are on their way are not to be believed for long.
    pub(super) fn stamp_all(&self) {
        self.stamps.stamp_all();
    }

    /// Events were lost: anything may have happened.
    fn lost(&self, tell: &mut impl FnMut(Change)) {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        self.stamp_all();
        tell(Change::Everything);
    }

    /// Events of others so far, those of no interest included.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// How often events were lost.
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.group {
            Group::Fanotify(group) => group.as_fd(),
            Group::Inotify(group) => group.as_fd(),
        }
    }
}

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
