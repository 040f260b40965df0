//! Reply construction shared by several operations: expiry, open modes, backing files.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{OFlags, StatVfs};
use shunt_fuse::{Capabilities, Entry, Errno, FileHandle, Handle, NodeId, OpenArgs, Opened, Request, StatFs};

use super::convert::caller;
use super::expiry::NameRequest;
use super::lease::past_leases;
use crate::hot_files::MAX_HOT_FILE_BYTES;
use crate::lower::{Found, Opening};
use crate::{CacheMode, Mirror, PassthroughMode};

impl Mirror {
    pub(super) fn entry(&self, found: Found, name_request: &NameRequest<'_>) -> Entry {
        self.pruner.check(&self.lower);
        let (attributes, attributes_expiry) = self.expiring(found.id, &found.stat, name_request.since);
        let entry = Entry::new(found.id, attributes, self.name_expiry(name_request));
        Entry { attributes_expiry, ..entry }
    }

    /// Returns the inode of a file handle. Searches the source if no cached path proves that the inode lies below it.
    pub(super) async fn reconnected(&self, request: &Request<'_>, node: NodeId) -> Result<Found, Errno> {
        match self.lower.reconnect(node) {
            Err(Errno::STALE) if self.lower.is_worth_a_search(node) => {
                self.searches.find(request, &self.lower, node).await?;
                self.lower.reconnect(node)
            }
            found => found,
        }
    }

    /// Opens the lower file, waiting for leases unless the caller passed O_NONBLOCK.
    ///
    /// # Errors
    /// The error of `open(2)`; ENFILE at the limit on open files; ENXIO if it is not a regular file; EINTR while waiting
    /// for a lease.
    pub async fn open_below(
        &self,
        request: &Request<'_>,
        node: NodeId,
        OpenArgs { flags, kill_suidgid, .. }: OpenArgs,
    ) -> Result<Opening, Errno> {
        let open = || self.lower.open_file(node, flags, kill_suidgid, caller(request));
        if flags & OFlags::NONBLOCK.bits() != 0 { open() } else { past_leases(request, open).await }
    }

    /// Chooses how an open file is served: by passthrough to the lower file if possible, else through the page cache.
    /// `flags` are the caller's.
    pub(super) fn opened(&self, request: &Request<'_>, opening: Opening, flags: u32) -> Opened {
        let node = opening.file.node;
        let handle = FileHandle(opening.handle);
        let flags = OFlags::from_bits_retain(flags);
        if self.lower.is_generated(node) {
            return self.closing(Opened::direct(handle));
        }
        if self.is_hot(node, &opening, flags) {
            // Safe even if passthrough writes changed the file: the kernel drops these pages when it opens the file for
            // passthrough.
            return self.closing(Opened::cached(handle).keep_cache());
        }
        let backing = request.session().passthrough().and_then(|passthrough| {
            let shared = passthrough.share(node, opening.file.as_fd());
            if let Err(errno) = &shared {
                self.passthrough_failed.call_once(|| {
                    tracing::warn!(%errno, source = %self.source.display(), "cannot register a backing file: its data goes through the daemon");
                });
            }
            shared.ok()
        });
        let opened = match backing {
            Some(backing) => {
                let made = flags.intersects(OFlags::CREATE | OFlags::TMPFILE);
                let maps = self.cache == CacheMode::Exclusive && flags & OFlags::RWMODE == OFlags::RDWR;
                if maps && self.writable_mappings.note(node) && !made {
                    // The kernel may already have cached the attributes without expiry.
                    request.session().caches().invalidate_node(node, None);
                }
                let passed = Opened::passthrough(handle, backing);
                if is_setid_to_write(&opening, flags) { passed.watched() } else { passed }
            }
            None if self.cache == CacheMode::Exclusive => Opened::cached(handle).keep_cache(),
            None => Opened::cached(handle),
        };
        // An append is written from memory: the kernel does not know its offset.
        let opened = if flags.contains(OFlags::APPEND) { opened } else { opened.zero_copy() };
        self.closing(opened)
    }

    /// Reports whether a file is better read from the mount's own page cache: see [`hot_files`](crate::hot_files).
    fn is_hot(&self, node: NodeId, opening: &Opening, flags: OFlags) -> bool {
        // A mapping that outlives its open may write the lower file at any time, bypassing this page cache.
        !flags.intersects(OFlags::RWMODE | OFlags::DIRECT | OFlags::TRUNC)
            && self.cache == CacheMode::Exclusive
            && !self.passes_rereads
            && self.lower.features().relatime
            && self.recent_opens.note(node)
            && !self.writable_mappings.contains(node)
            && rustix::fs::fstat(&opening.file)
                .is_ok_and(|stat| stat.st_size.cast_unsigned() <= MAX_HOT_FILE_BYTES)
    }

    /// Omits FLUSH on a local file system, which has no errors to report at close.
    fn closing(&self, opened: Opened) -> Opened {
        if self.lower.features().local { opened.no_flush() } else { opened }
    }

    /// Chooses how a file that was just created is served.
    pub(super) fn made(&self, request: &Request<'_>, found: &Found, opening: Opening, flags: u32) -> Opened {
        if self.serves_without_open(request.session()) {
            self.lower.cache_no_open_file(found, opening);
            return self.closing(Opened::cached(FileHandle(0)).keep_cache());
        }
        self.opened(request, opening, flags)
    }

    /// Reports whether files are read and written without OPEN. That is possible if all data goes through the mount's
    /// own page cache, only this mount changes it, and `close` has no error to report: an OPEN then serves no
    /// purpose.
    pub fn serves_without_open(&self, session: &Handle) -> bool {
        self.cache == CacheMode::Exclusive
            && self.passthrough == PassthroughMode::Off
            && !self.always_opens.load(Ordering::Acquire)
            && self.lower.features().local
            && !self.lower.may_generate()
            && session.negotiated().has(Capabilities::NO_OPEN_SUPPORT)
    }

    /// Returns the open file that a request addresses, by handle or, without OPEN, by node.
    pub(super) async fn file(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        write: bool,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if self.serves_without_open(request.session()) {
            return past_leases(request, || self.lower.no_open_file(node, write)).await;
        }
        Ok(self.lower.file(handle.0)?.file.clone())
    }

    /// Reports whether directories are listed without OPENDIR.
    pub(super) fn lists_without_open(&self, request: &Request<'_>) -> bool {
        self.cache == CacheMode::Exclusive
            && !self.lists_opened
            && request.session().negotiated().has(Capabilities::NO_OPENDIR_SUPPORT)
    }

    pub(super) fn dir_handle(&self, request: &Request<'_>, handle: FileHandle) -> Option<u64> {
        (!self.lists_without_open(request)).then_some(handle.0)
    }

    /// Returns ENOSYS, which the kernel remembers, if the file system has no extended attributes at all.
    pub(super) fn has_xattrs(&self) -> Result<(), Errno> {
        if self.lower.features().xattrs { Ok(()) } else { Err(Errno::NOSYS) }
    }
}

/// Reports whether a file opened for writing has setuid or setgid. The kernel checks passthrough writes with the rights
/// of the thread that registered the backing file, so even a write by root would clear the bits.
fn is_setid_to_write(opening: &Opening, flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
        && rustix::fs::fstat(&opening.file).map_or(true, |stat| stat.st_mode & 0o6000 != 0)
}

pub(super) fn statfs(statvfs: &StatVfs) -> StatFs {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    StatFs {
        blocks: statvfs.f_blocks,
        bfree: statvfs.f_bfree,
        bavail: statvfs.f_bavail,
        files: statvfs.f_files,
        ffree: statvfs.f_ffree,
        bsize: narrow(statvfs.f_bsize),
        namelen: narrow(statvfs.f_namemax),
        frsize: narrow(statvfs.f_frsize),
    }
}
