//! Open files.

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
use crate::coherence::{FileStamp, stamp};
use crate::errseq::ErrSeq;
use crate::recent_invalidations::INVALIDATION_WINDOW;

/// A file that somebody has open.
pub(crate) struct OpenFile {
    pub(crate) num: u64,
    pub(crate) writes: bool,
    /// A mapping of it can be written.
    maps_writable: bool,
    pub(crate) opened: replica::Opened,
    /// The same, for replies that carry its data: most files are never read through the daemon.
    data: OnceLock<Arc<OwnedFd>>,
    /// What of it is here, around what was read last.
    present: Mutex<Range<u64>>,
    /// The kernel reads it through its pages, by the length that it knows.
    buffered: AtomicBool,
    /// How many lengths of other versions it had been told of, and one, when it last was sure to know that of this one.
    size_epoch: AtomicU64,
    /// As others were told of it last.
    pub(crate) published: Mutex<Option<FileStamp>>,
    pub(crate) errseq: ErrSeq,
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

/// The longest wait of an open for what the kernel is told: a page of it may be on its way from a store that is silent.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(10);

/// How often, a millisecond apart, a backing file is to be had.
const MAX_BACKING_TRIES: u32 = 20;

const SETID: u16 = 0o6000;

pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl VolumeFs {
    /// Opens a file for a caller. `is_known`: to the kernel, before this is answered.
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
        self.versions.add(node.ino, opened.session);
        let is_alone = self.versions.wait_for_older(node.ino, opened.session).await;
        if is_known {
            self.wait_for_invalidations(request, NodeId(node.ino)).await;
        }
        let maps = flags & OFlags::RWMODE == OFlags::RDWR;
        if maps {
            self.mappings.opened(node.ino);
        }
        let complete = opened.complete;
        let published = Mutex::default();
        let undone = ErrSeq::new(&self.replica);
        let (here, paged, known, data) = Default::default();
        let open = OpenFile {
            num: node.ino,
            writes,
            maps_writable: maps,
            opened,
            data,
            present: here,
            buffered: paged,
            size_epoch: known,
            published,
            errseq: undone,
        };
        // Somebody may come before it is closed, to whom that is worth a request.
        let flushes = writes && self.leases.is_some();
        if flushes {
            *open.published.lock() = stamp(&open).ok();
        }
        let (handle, open) = self.files.add(open);
        // What a write ends goes with the write itself; past the daemon the kernel would ask and tell first.
        let watched = writes && (node.mode & SETID != 0 || node.xattrs);
        // What is written past the daemon is held against no limit.
        let limited = writes && self.replica.limits_writes(node.owner.0);
        let backing = match complete && self.passthrough && !watched && !limited && is_alone {
            true => Some(self.backing(request, &open).await),
            false => None,
        };
        let maps_direct = request.session().negotiated().granted.contains(Capabilities::DIRECT_IO_ALLOW_MMAP);
        let served = match backing {
            Some(Ok(backing)) => Opened::passthrough(handle, backing),
            // Where the kernel goes on with the older version past the daemon, who reads gets that, all of it: what a program maps
            // is of it in any case. What is written is not for it.
            _ if !is_alone && !writes => Opened::direct(handle).joining(),
            _ if !is_alone => Opened::direct(handle).watched(),
            Some(Err(Errno::BUSY)) => Opened::direct(handle).watched(),
            // Another version may come while this one does, and what the kernel is told of the length of this one while news are
            // about is not taken in: by that of another it would cut this one off, or fill it up with zeros.
            _ if maps_direct && (!complete || self.versions.was_recently_invalidated(node.ino)) => {
                Opened::direct(handle).watched()
            }
            _ => Opened::cached(handle).watched(),
        };
        open.buffered.store(!matches!(served.serve, Serve::Direct), Ordering::Relaxed);
        Ok(if flushes { served } else { served.no_flush() })
    }

    /// Whether the file holds something else by now than what an open of it shows.
    fn is_stale(&self, open: &OpenFile) -> bool {
        !self.replica.is_latest(open.num, open.opened.session)
    }

    /// That by which something is asked of a node, where it is such.
    pub(crate) fn older(&self, node: NodeId, handle: Option<FileHandle>) -> Option<Arc<OpenFile>> {
        let open = self.files.get(handle?).ok()?;
        (open.num == node.0 && self.is_stale(&open)).then_some(open)
    }

    /// ESTALE where the kernel may go by the length of another version than that of an open: it would cut off what it reads, or fill
    /// it up with zeros. It does not take in what it is told while news of the file are about. `reads`: it asked for the length
    /// before, where it had to.
    pub(crate) fn check_kernel_size(
        &self,
        request: &Request<'_>,
        open: &OpenFile,
        reads: bool,
    ) -> Result<(), Errno> {
        if !open.buffered.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (invalidated, lengths) = self.versions.invalidation_state(open.num);
        let is_quiet = match invalidated {
            None => true,
            Some(ago) => {
                ago >= INVALIDATION_WINDOW && request.session().caches().settled(NodeId(open.num)).is_none()
            }
        };
        let known = lengths + 1;
        if is_quiet && reads {
            open.size_epoch.store(known, Ordering::Relaxed);
        }
        let is_known = is_quiet || open.size_epoch.load(Ordering::Relaxed) == known || !self.is_stale(open);
        if is_known { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Waits until the kernel knows of the version that is opened: it would show the length and the pages of an older one, and
    /// what is written over that would take the place of this one.
    async fn wait_for_invalidations(&self, request: &Request<'_>, node: NodeId) {
        if let Some(settled) = request.session().caches().settled(node) {
            let late = move || tracing::debug!("the kernel does not take in that node {} changed", node.0);
            Wait::new(async move { settled.await.unwrap_or_default() }, INVALIDATION_TIMEOUT, late).await;
        }
    }

    /// EBUSY: the kernel uses that of another version.
    async fn backing(&self, request: &Request<'_>, open: &OpenFile) -> Result<Backing, Errno> {
        let passthrough = request.session().passthrough().ok_or(Errno::OPNOTSUPP)?;
        let mut tries = 0..MAX_BACKING_TRIES;
        // The kernel opens it anew for each open. What it keeps besides is to be no writer: see `mappings`.
        let again = match open.writes {
            true => self.replica.reopen_read_only(open.num, open.file()).ok(),
            false => None,
        };
        let registered = again.as_ref().unwrap_or(open.file());
        if open.maps_writable {
            self.replica.mark_mapped(open.num, open.opened.session);
        }
        let shared = loop {
            match passthrough.share(request_node(open), registered.as_fd()) {
                // The last open of an older version has ended, and its registration is about to.
                Err(Errno::BUSY) if tries.next().is_some() => Wait::pause(Duration::from_millis(1)).await,
                shared => break shared,
            }
        };
        if let Err(errno) = &shared
            && *errno != Errno::BUSY
            && !self.passthrough_refused.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%errno, "data goes through the daemon");
        }
        shared
    }

    pub(crate) async fn close(&self, open: Arc<OpenFile>) {
        let OpenFile { num, writes, maps_writable: maps, ref opened, .. } = *open;
        let session = opened.session;
        self.versions.remove(num, session);
        // With it goes the descriptor that it was written by.
        drop(open);
        match writes {
            true => self.mappings.close(num, session, maps, self.leases.clone()).await,
            false => drop(self.replica.release_open(num, false, session)),
        }
    }

    /// ESTALE of a file that was deleted while it was open to be written, and is there again as others changed it: its length is
    /// that of the other one, up to which the kernel would show what it held.
    pub(crate) fn not_deleted(&self, open: &OpenFile) -> Result<(), Errno> {
        if open.writes && self.is_stale(open) && self.replica.get(open.num).is_ok_and(|node| node.links > 0) {
            return Err(Errno::STALE);
        }
        Ok(())
    }

    /// Has a range of a file be in its backing file.
    pub(crate) fn ensure_present(&self, open: &OpenFile, offset: u64, length: u64) -> Result<(), Errno> {
        if open.opened.complete {
            return Ok(());
        }
        let (num, session) = (open.num, open.opened.session);
        let range = offset..offset.saturating_add(length);
        let here = open.present.lock().clone();
        if here.start <= range.start && range.end <= here.end {
            return self.replica.read_on(num, session, &range);
        }
        let around = self.replica.ensure_open_present(num, session, range)?;
        *open.present.lock() = around;
        Ok(())
    }
}

fn request_node(open: &OpenFile) -> shunt_fuse::NodeId {
    shunt_fuse::NodeId(open.num)
}

/// A change of a file that may make it longer, held against the limits of the volume: the kernel makes one of an inode at a
/// time.
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
