//! Open and release of files.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use shunt_fuse::{Capabilities, Errno, NodeId, Opened, Request, Serve};
use shunt_volume::replica::Inode;

use crate::VolumeFs;
use crate::errseq::ErrSeq;
use crate::io_mode::OpenFacts;
use crate::open_file::{OpenFile, stamp};

/// The set-user-id and set-group-id bits of a mode.
const SETID: u16 = 0o6000;

impl VolumeFs {
    /// Opens a file. `is_known`: the kernel knew the inode before the reply to this request.
    pub(crate) async fn open_inode(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        flags: u32,
        is_known: bool,
    ) -> Result<Opened, Errno> {
        let flags = OFlags::from_bits_retain(flags);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if writes {
            self.changeable(NodeId(inode.ino))?;
        }
        let opened = self.replica.open_file(inode.ino, writes, false)?;
        self.versions.add(inode.ino, opened.session);
        let is_only_version = self.versions.wait_for_older(inode.ino, opened.session).await;
        if is_known {
            self.wait_for_invalidations(request, NodeId(inode.ino)).await;
        }
        let maps = flags & OFlags::RWMODE == OFlags::RDWR;
        if maps {
            self.mappings.opened(inode.ino);
        }
        let complete = opened.complete;
        if complete && is_known {
            self.replica.record_cache_hit();
        }
        let errseq = ErrSeq::new(&self.replica);
        let (present, buffered, size_epoch, data) = Default::default();
        let published = Mutex::default();
        let open = OpenFile {
            num: inode.ino,
            writes,
            maps_writable: maps,
            opened,
            data,
            present,
            buffered,
            size_epoch,
            published,
            errseq,
            stored: AtomicBool::new(false),
        };
        // A FLUSH is worth its cost only if peers may connect before the file is closed.
        let flushes = writes && self.leases.is_some();
        if flushes {
            *open.published.lock() = stamp(&open).ok();
        }
        let (handle, open) = self.files.add(open);
        // A write through the daemon clears setid bits and capabilities by itself; with passthrough the kernel would have to
        // send requests first.
        let drops_privileges = writes && (inode.mode & SETID != 0 || inode.xattrs);
        // Writes past the daemon are not counted against limits.
        let is_limited = writes && self.replica.limits_writes(inode.owner.0);
        let passes = complete && self.passthrough && !drops_privileges && !is_limited && is_only_version;
        let backing = match passes {
            true => Some(self.register_backing(request, &open).await),
            false => None,
        };
        let granted = request.session().negotiated().granted;
        let facts = OpenFacts {
            complete,
            writes,
            is_only_version,
            is_invalidating: !matches!(backing, Some(Ok(_)))
                && self.versions.was_recently_invalidated(inode.ino),
            maps_direct: granted.contains(Capabilities::DIRECT_IO_ALLOW_MMAP),
        };
        let served = facts.mode(handle, backing);
        // An append is written from memory: the kernel does not know its offset.
        let served = if flags.contains(OFlags::APPEND) { served } else { served.zero_copy() };
        open.buffered.store(!matches!(served.serve, Serve::Direct), Ordering::Relaxed);
        Ok(if flushes { served } else { served.no_flush() })
    }

    pub(crate) async fn close(&self, open: Arc<OpenFile>) {
        let OpenFile { num, writes, maps_writable, ref opened, .. } = *open;
        let session = opened.session;
        self.versions.remove(num, session);
        // Closes the descriptor that the file was written through.
        drop(open);
        match writes {
            true => self.mappings.close(num, session, maps_writable, self.leases.clone()).await,
            false => drop(self.replica.release_open(num, false, session)),
        }
    }

    /// Fetches the missing chunks of a range of an open file into its backing file.
    pub(crate) fn fetch_range(&self, open: &OpenFile, offset: u64, length: u64) -> Result<(), Errno> {
        if open.opened.complete {
            return Ok(());
        }
        let (num, session) = (open.num, open.opened.session);
        let range: Range<u64> = offset..offset.saturating_add(length);
        let here = open.present.lock().clone();
        if here.start <= range.start && range.end <= here.end {
            return self.replica.record_read(num, session, &range);
        }
        let around = self.replica.ensure_open_present(num, session, range)?;
        *open.present.lock() = around;
        Ok(())
    }
}
