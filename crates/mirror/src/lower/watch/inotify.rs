//! Change events of single directories through `inotify(7)`, for processes that may not mark whole file systems.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::RwLock;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::sys::ProcPath;
use super::stamps::{Moment, Stamps};

/// Events that change the names in a directory.
pub(super) const NAMES: u32 = WatchFlags::CREATE.bits()
    | WatchFlags::DELETE.bits()
    | WatchFlags::MOVED_FROM.bits()
    | WatchFlags::MOVED_TO.bits();
pub(super) const CLOSE_WRITE: u32 = WatchFlags::CLOSE_WRITE.bits();
pub(super) const OVERFLOW: u32 = libc::IN_Q_OVERFLOW;
pub(super) const IGNORED: u32 = libc::IN_IGNORED;

/// Events of the watched directory itself.
const SELF: u32 = WatchFlags::ATTRIB.bits() | WatchFlags::MOVE_SELF.bits() | WatchFlags::DELETE_SELF.bits();

#[derive(Debug, Default)]
struct Watched {
    /// Nodes by watch; an inode that is visible through several mounts has several nodes.
    nodes: HashMap<i32, Vec<NodeId>>,
    /// The watch of each directory, and the moment at which it was added.
    dirs: HashMap<NodeId, (i32, Moment)>,
}

/// An inotify instance.
#[derive(Debug)]
pub(super) struct Inotify {
    fd: OwnedFd,
    /// Limit on the number of watched directories.
    room: AtomicUsize,
    writers: AtomicBool,
    watched: RwLock<Watched>,
}

/// An inotify event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub watch: i32,
    pub mask: u32,
    /// Name of the entry; empty for the directory itself.
    pub name: &'a [u8],
}

/// Default limit: half of a user's watches, which other programs need as well.
fn share() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    limit.ok().and_then(|limit| limit.trim().parse().ok()).unwrap_or(8192usize) / 2
}

impl Inotify {
    /// Creates an instance without watches. It will watch at most `max_watches` directories; by default, half of
    /// `fs.inotify.max_user_watches`.
    ///
    /// # Errors
    /// EMFILE at the limit of `fs.inotify.max_user_instances`; ENOSYS.
    pub(super) fn new(max_watches: Option<usize>) -> Result<Self, Errno> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let room = AtomicUsize::new(max_watches.unwrap_or_else(share));
        Ok(Self { fd, room, writers: AtomicBool::new(false), watched: RwLock::default() })
    }

    /// Watches a directory if the limit permits. The validity of replies to later requests takes its events into
    /// account.
    pub(super) fn watch(&self, node: NodeId, dir: BorrowedFd<'_>, stamps: &Stamps) {
        let mut watched = self.watched.write();
        if watched.dirs.contains_key(&node) || watched.dirs.len() >= self.room.load(Ordering::Relaxed) {
            return;
        }
        match inotify::add_watch(&self.fd, ProcPath::new(dir).as_cstr(), self.mask()) {
            Ok(watch) => {
                // Requests that started before the watch carry an earlier moment.
                stamps.stamp(node);
                watched.dirs.insert(node, (watch, stamps.now()));
                let nodes = watched.nodes.entry(watch).or_default();
                nodes.push(node);
            }
            Err(Errno::NOSPC) => {
                tracing::info!(
                    directories = watched.dirs.len(),
                    "cannot watch more directories: the others are cached for one second; raise fs.inotify.max_user_watches"
                );
                self.room.store(watched.dirs.len(), Ordering::Relaxed);
            }
            Err(errno) => tracing::debug!(%errno, "cannot watch a directory"),
        }
    }

    fn mask(&self) -> WatchFlags {
        let writers = if self.writers.load(Ordering::Relaxed) { CLOSE_WRITE } else { 0 };
        WatchFlags::from_bits_retain(NAMES | SELF | writers) | WatchFlags::ONLYDIR
    }

    /// Adds IN_CLOSE_WRITE to this directory and to watches added from now on.
    pub(super) fn add_close_write(&self, dir: BorrowedFd<'_>) {
        self.writers.store(true, Ordering::Relaxed);
        inotify::add_watch(&self.fd, ProcPath::new(dir).as_cstr(), self.mask()).ok();
    }

    /// Removes the watch of a directory, unless the directory is in use again.
    pub(super) fn unwatch(&self, node: NodeId, is_gone: impl FnOnce() -> bool) {
        if !self.watched.read().dirs.contains_key(&node) {
            return;
        }
        let mut watched = self.watched.write();
        if !is_gone() {
            return;
        }
        let Some((watch, _)) = watched.dirs.remove(&node) else { return };
        let Some(nodes) = watched.nodes.get_mut(&watch) else { return };
        nodes.retain(|other| *other != node);
        if nodes.is_empty() {
            watched.nodes.remove(&watch);
            inotify::remove_watch(&self.fd, watch).ok();
        }
    }

    /// Forgets a watch that the kernel removed because its directory was deleted.
    pub(super) fn ended(&self, watch: i32) {
        let mut watched = self.watched.write();
        for node in watched.nodes.remove(&watch).unwrap_or_default() {
            watched.dirs.remove(&node);
        }
    }

    /// Reports whether a directory is watched and was at the given moment.
    pub(super) fn is_watched(&self, node: NodeId, since: Moment) -> bool {
        self.watched.read().dirs.get(&node).is_some_and(|(_, from)| *from <= since)
    }

    /// Reports whether a directory is watched.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.watched.read().dirs.contains_key(&node)
    }

    /// Returns the nodes of a watched directory.
    pub(super) fn nodes(&self, watch: i32) -> Vec<NodeId> {
        self.watched.read().nodes.get(&watch).cloned().unwrap_or_default()
    }

    /// Reads as many events as are queued and fit; EAGAIN if there are none.
    ///
    /// # Errors
    /// The error of `read(2)`.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, buffer)
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Parses and removes the first event of a buffer: watch, mask, cookie, length of the name (4 bytes each), name with
/// trailing NULs.
pub(super) fn take<'a>(buffer: &mut &'a [u8]) -> Option<Event<'a>> {
    let (watch, rest) = buffer.split_first_chunk()?;
    let (mask, rest) = rest.split_first_chunk()?;
    let (_cookie, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
    *buffer = rest;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Some(Event { watch: i32::from_ne_bytes(*watch), mask: u32::from_ne_bytes(*mask), name: &name[..end] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let (stamps, inotify) = (Stamps::default(), Inotify::new(Some(1)).unwrap());
        let before = stamps.now();
        let open = std::fs::File::open(dir.path()).unwrap();
        inotify.watch(NodeId(7), open.as_fd(), &stamps);
        inotify.watch(NodeId(8), open.as_fd(), &stamps);
        assert!(!inotify.is_watched(NodeId(7), before), "a request that started before the watch");
        assert!(
            inotify.is_watched(NodeId(7), stamps.now()) && !inotify.has(NodeId(8)),
            "the limit of watches is reached"
        );
        ["one", "two"].iter().for_each(|name| std::fs::create_dir(dir.path().join(name)).unwrap());
        let mut buffer = [0; 4096];
        let length = inotify.read(&mut buffer).unwrap();
        let mut rest = &buffer[..length];
        for name in ["one", "two"] {
            let event = take(&mut rest).unwrap();
            assert_eq!((event.name, inotify.nodes(event.watch)), (name.as_bytes(), vec![NodeId(7)]));
            assert_ne!(event.mask & NAMES, 0);
        }
        assert!(rest.is_empty());
        (0..length).for_each(|cut| while take(&mut &buffer[..cut.min(15)]).is_some() {});
        inotify.unwatch(NodeId(7), || true);
        assert!(!inotify.has(NodeId(7)));
    }
}
