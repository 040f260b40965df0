//! Open files: backing files, passthrough and the version that each open shows. An open keeps the version that it was made of,
//! even if another one replaces the file. Complete files use passthrough where the kernel permits it; otherwise the daemon
//! serves the data, fetching missing ranges.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};
use shunt_fuse::{Backing, Capabilities, Errno, FileHandle, NodeId, Opened, Request, Serve};
use shunt_volume::lease::Wait;
use shunt_volume::replica::{self, Inode, Replica};

use crate::VolumeFs;
use crate::coherence::{Stamp, stamp};
use crate::errseq::ErrSeq;
use crate::recent_invalidations::INVALIDATION_WINDOW;

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) num: u64,
    pub(crate) writes: bool,
    /// The open permits a writable mapping.
    maps: bool,
    pub(crate) opened: replica::Opened,
    /// Duplicate of `opened.file` for replies that carry data, made on demand: most files are never read through the daemon.
    data: OnceLock<Arc<OwnedFd>>,
    /// Range known to be present, around the last read.
    here: Mutex<Range<u64>>,
    /// The kernel reads the file through its page cache, up to the length that it knows.
    buffered: AtomicBool,
    /// Number of foreign lengths reported to the kernel, plus one, when the kernel last certainly knew the length of this
    /// version.
    known: AtomicU64,
    /// State of the file as last published to peers.
    pub(crate) published: Mutex<Option<Stamp>>,
    pub(crate) undone: ErrSeq,
}

impl OpenFile {
    pub(crate) fn file(&self) -> &File {
        &self.opened.file
    }

    pub(crate) fn data(&self) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(data) = self.data.get() {
            return Ok(data.clone());
        }
        let file = self.opened.file.try_clone().map_err(errno)?;
        Ok(self.data.get_or_init(|| Arc::new(file.into())).clone())
    }
}

/// Maximum time an open waits for pending invalidations: a page under invalidation may be waiting for a store that does not
/// reply.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of attempts to register a backing file, a millisecond apart.
const MAX_BACKING_TRIES: u32 = 20;

const SETID: u16 = 0o6000;

pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl VolumeFs {
    /// Opens a file. `is_known`: the kernel knew the inode before the reply to this request.
    pub(crate) async fn open_node(
        &self,
        request: &Request<'_>,
        node: &Inode,
        flags: u32,
        is_known: bool,
    ) -> Result<Opened, Errno> {
        let flags = OFlags::from_bits_retain(flags);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if writes {
            self.changeable(NodeId(node.ino))?;
        }
        let opened = self.replica.open_file(node.ino, writes, false)?;
        self.sessions.add(node.ino, opened.session);
        let is_alone = self.sessions.wait_for_older(node.ino, opened.session).await;
        if is_known {
            self.told(request, NodeId(node.ino)).await;
        }
        let maps = flags & OFlags::RWMODE == OFlags::RDWR;
        if maps {
            self.mapped.opened(node.ino);
        }
        let complete = opened.complete;
        let told = Mutex::default();
        let undone = ErrSeq::new(&self.replica);
        let (here, paged, known, data) = Default::default();
        let open = OpenFile {
            num: node.ino,
            writes,
            maps,
            opened,
            data,
            here,
            buffered: paged,
            known,
            published: told,
            undone,
        };
        // A FLUSH is worth its cost only if peers may connect before the file is closed.
        let flushes = writes && self.leases.is_some();
        if flushes {
            *open.published.lock() = stamp(&open).ok();
        }
        let (handle, open) = self.files.add(open);
        // A write through the daemon clears setid bits and capabilities by itself; with passthrough the kernel would have to
        // send requests first.
        let watched = writes && (node.mode & SETID != 0 || node.xattrs);
        // Writes past the daemon are not counted against limits.
        let limited = writes && self.replica.limits_writes(node.owner.0);
        let backing = match complete && self.passthrough && !watched && !limited && is_alone {
            true => Some(self.backing(request, &open).await),
            false => None,
        };
        let maps_direct = request.session().negotiated().granted.contains(Capabilities::DIRECT_IO_ALLOW_MMAP);
        let served = match backing {
            Some(Ok(backing)) => Opened::passthrough(handle, backing),
            // While the kernel passes opens of an older version through, readers get that version, all of it: mappings show it
            // in any case. Writes must go to the new one.
            _ if !is_alone && !writes => Opened::direct(handle).joining(),
            _ if !is_alone => Opened::direct(handle).watched(),
            Some(Err(Errno::BUSY)) => Opened::direct(handle).watched(),
            // Another version may replace this one while it is fetched, and the kernel ignores the length of this one while
            // invalidations are pending: with that of another version it would truncate this one, or fill it up with zeros.
            _ if maps_direct && (!complete || self.sessions.has_news(node.ino)) => {
                Opened::direct(handle).watched()
            }
            _ => Opened::cached(handle).watched(),
        };
        open.buffered.store(!matches!(served.serve, Serve::Direct), Ordering::Relaxed);
        Ok(if flushes { served } else { served.no_flush() })
    }

    /// Reports whether the file has a newer version than the open shows.
    fn is_stale(&self, open: &OpenFile) -> bool {
        !self.replica.is_latest(open.num, open.opened.session)
    }

    /// Returns the open behind a handle if it shows an older version of the node.
    pub(crate) fn older(&self, node: NodeId, handle: Option<FileHandle>) -> Option<Arc<OpenFile>> {
        let open = self.files.get(handle?).ok()?;
        (open.num == node.0 && self.is_stale(&open)).then_some(open)
    }

    /// Returns ESTALE where the kernel may use the length of another version than the one that is open: it would truncate the
    /// data read, or fill it up with zeros. The kernel ignores lengths in replies while invalidations of the file are pending.
    /// `reads`: the kernel has requested the length before, if it had to.
    pub(crate) fn check_kernel_size(
        &self,
        request: &Request<'_>,
        open: &OpenFile,
        reads: bool,
    ) -> Result<(), Errno> {
        if !open.buffered.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (told, lengths) = self.sessions.news(open.num);
        let is_quiet = match told {
            None => true,
            Some(ago) => {
                ago >= INVALIDATION_WINDOW && request.session().caches().settled(NodeId(open.num)).is_none()
            }
        };
        let known = lengths + 1;
        if is_quiet && reads {
            open.known.store(known, Ordering::Relaxed);
        }
        let is_known = is_quiet || open.known.load(Ordering::Relaxed) == known || !self.is_stale(open);
        if is_known { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Waits until the kernel has processed the invalidations for the version that is opened. Otherwise it would show the
    /// length and the pages of an older one, and writes based on that would replace this one.
    async fn told(&self, request: &Request<'_>, node: NodeId) {
        if let Some(told) = request.session().caches().settled(node) {
            let late = move || tracing::debug!("the kernel does not take in that node {} changed", node.0);
            Wait::new(async move { told.await.unwrap_or_default() }, INVALIDATION_TIMEOUT, late).await;
        }
    }

    /// Registers a backing file. EBUSY: the kernel uses that of another version.
    async fn backing(&self, request: &Request<'_>, open: &OpenFile) -> Result<Backing, Errno> {
        let passthrough = request.session().passthrough().ok_or(Errno::OPNOTSUPP)?;
        let mut tries = 0..MAX_BACKING_TRIES;
        // The kernel reopens the backing file for each open. The descriptor that it keeps besides must not be a writer: see
        // `mapped`.
        let again = match open.writes {
            true => self.replica.reopen_read_only(open.num, open.file()).ok(),
            false => None,
        };
        let registered = again.as_ref().unwrap_or(open.file());
        if open.maps {
            self.replica.note_maps(open.num, open.opened.session);
        }
        let shared = loop {
            match passthrough.share(request_node(open), registered.as_fd()) {
                // The last open of an older version was closed, and its registration is about to end.
                Err(Errno::BUSY) if tries.next().is_some() => Wait::pause(Duration::from_millis(1)).await,
                shared => break shared,
            }
        };
        if let Err(errno) = &shared
            && *errno != Errno::BUSY
            && !self.refused.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%errno, "data goes through the daemon");
        }
        shared
    }

    pub(crate) async fn close(&self, open: Arc<OpenFile>) {
        let OpenFile { num, writes, maps, ref opened, .. } = *open;
        let session = opened.session;
        self.sessions.remove(num, session);
        // Closes the descriptor that the file was written through.
        drop(open);
        match writes {
            true => self.mapped.close(num, session, maps, self.leases.clone()).await,
            false => drop(self.replica.release_open(num, false, session)),
        }
    }

    /// Returns ESTALE for a file that was deleted while open for writing and restored by a remote change: the kernel knows the
    /// length of the restored file, and would show the deleted content up to that.
    pub(crate) fn not_deleted(&self, open: &OpenFile) -> Result<(), Errno> {
        if open.writes && self.is_stale(open) && self.replica.get(open.num).is_ok_and(|node| node.links > 0) {
            return Err(Errno::STALE);
        }
        Ok(())
    }

    /// Ensures that a range of a file is present in its backing file.
    pub(crate) fn bring(&self, open: &OpenFile, offset: u64, length: u64) -> Result<(), Errno> {
        if open.opened.complete {
            return Ok(());
        }
        let (num, session) = (open.num, open.opened.session);
        let range = offset..offset.saturating_add(length);
        let here = open.here.lock().clone();
        if here.start <= range.start && range.end <= here.end {
            return self.replica.read_on(num, session, &range);
        }
        let around = self.replica.ensure_open_present(num, session, range)?;
        *open.here.lock() = around;
        Ok(())
    }
}

fn request_node(open: &OpenFile) -> shunt_fuse::NodeId {
    shunt_fuse::NodeId(open.num)
}

/// Runs a change that may extend a file, after reserving the growth in the volume's limits. The kernel makes one such change of
/// an inode at a time.
pub(crate) fn limited<T>(
    replica: &Replica,
    open: &OpenFile,
    end: impl FnOnce(u64) -> u64,
    change: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if !replica.is_limited() {
        return change();
    }
    let length = || open.file().metadata().map(|now| now.len()).map_err(errno);
    let (before, session) = (length()?, open.opened.session);
    let end = end(before);
    if end > before {
        replica.grow(open.num, session, end)?;
    }
    let done = change();
    if length()? != before.max(end) {
        replica.recount(open.num, session)?;
    }
    done
}

pub(crate) fn fallocate(open: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
    let mode = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
    rustix::fs::fallocate(open.file(), mode, offset, length)
}

pub(crate) fn seek(open: &OpenFile, offset: u64, hole: bool) -> Result<u64, Errno> {
    if !open.opened.complete {
        let size = open.file().metadata().map_err(errno)?.len();
        return match offset < size {
            true => Ok(if hole { size } else { offset }),
            false => Err(Errno::NXIO),
        };
    }
    seek_in(open.file(), offset, hole)
}

pub(crate) fn seek_in(file: impl std::os::fd::AsFd, offset: u64, hole: bool) -> Result<u64, Errno> {
    use rustix::fs::SeekFrom;
    rustix::fs::seek(file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
}
