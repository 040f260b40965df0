//! Read-only passthrough: maps files to the device when they are opened, so that the kernel reads them without the daemon.
//! Mappings stay in an LRU cache after the last close. Files that cannot be mapped are read through the daemon.

use std::os::fd::AsFd as _;

use hashbrown::HashMap;
use parking_lot::Mutex;
use shunt_ext4::Inode;
use shunt_extmap::{Connection, Extent};
use shunt_fuse::{Backing, Opened, Passthrough, Request};

use crate::Ext4;
use crate::opens::rights_of;

/// Maximum number of extents of a mapped file. A file with more is read through the daemon.
const MAX_EXTENTS_PER_FILE: usize = 1 << 16;

/// Maximum number of files that stay mapped after their last close. The kernel drops a file's page cache with its mapping.
const MAX_CACHED_FILES: usize = 4096;
/// Maximum number of extents of cached files, at 64 bytes of kernel memory each.
const MAX_CACHED_EXTENTS: usize = 1 << 18;

/// A device, and the files mapped to it.
#[derive(Debug)]
pub(crate) struct Mapped {
    connection: Connection,
    cache: Mutex<MappedFileCache>,
}

/// LRU cache of mapped files.
#[derive(Debug, Default)]
struct MappedFileCache {
    files: HashMap<u32, File>,
    extents: usize,
    /// Number of uses of all files.
    clock: u64,
}

#[derive(Debug)]
struct File {
    backing: Backing,
    extents: usize,
    used: u64,
}

impl MappedFileCache {
    fn find(&mut self, number: u32) -> Option<Backing> {
        self.clock += 1;
        let file = self.files.get_mut(&number)?;
        file.used = self.clock;
        Some(file.backing.clone())
    }

    /// Adds a file. Returns the evicted ones for the caller to drop.
    #[must_use]
    fn insert(&mut self, number: u32, backing: Backing, extents: usize) -> Vec<File> {
        let mut dropped = Vec::new();
        if self.files.len() >= MAX_CACHED_FILES || self.extents + extents > MAX_CACHED_EXTENTS {
            // Evicts the older half: finding the median is expensive, and done once for that many files.
            let mut uses: Vec<u64> = self.files.values().map(|file| file.used).collect();
            let middle = uses.len() / 2;
            let limit = if uses.is_empty() { 0 } else { *uses.select_nth_unstable(middle).1 };
            dropped = self.files.extract_if(|_, file| file.used <= limit).map(|(_, file)| file).collect();
            self.extents -= dropped.iter().map(|file| file.extents).sum::<usize>();
        }
        self.extents += extents;
        if let Some(before) = self.files.insert(number, File { backing, extents, used: self.clock }) {
            self.extents -= before.extents;
            dropped.push(before);
        }
        dropped
    }
}

impl Mapped {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, cache: Mutex::default() }
    }

    fn map(&self, passthrough: &Passthrough, fs: &Ext4, inode: &Inode) -> Option<Backing> {
        if let Some(backing) = self.cache.lock().find(inode.number) {
            return Some(backing);
        }
        let extents = fs.to_errno(fs.filesystem.extents(inode, MAX_EXTENTS_PER_FILE)).ok()??;
        let refused = |error: std::io::Error| tracing::debug!(inode = inode.number, %error, "extents not passed to the kernel");
        let file = self.connection.file(inode.size).map_err(refused).ok()?;
        let of_device = |extent: &shunt_ext4::Extent| {
            let shunt_ext4::Extent { offset, device, length, written } = *extent;
            Extent { offset, device, length, written }
        };
        let extents: Vec<Extent> = extents.iter().map(of_device).collect();
        file.push(&extents).map_err(refused).ok()?;
        let node = crate::reply::node(inode.number);
        let backing = passthrough.share(node, file.as_fd());
        let backing =
            backing.inspect_err(|errno| tracing::debug!(%errno, "cannot register a backing file")).ok()?;
        let evicted = self.cache.lock().insert(inode.number, backing.clone(), extents.len());
        // Unregistering backing files takes system calls, so it happens outside the lock.
        drop(evicted);
        Some(backing)
    }
}

impl Ext4 {
    /// Returns the reply to an open, with a backing file for passthrough where that is possible.
    pub(crate) fn opened_mapped(&self, request: &Request<'_>, inode: &Inode, opened: Opened) -> Opened {
        let Some(passthrough) = request.session().passthrough() else { return opened };
        let backing = match (&self.mapped, &self.writing) {
            (Some(mapped), _) => mapped.map(passthrough, self, inode),
            (None, Some(writing)) => writing.open(passthrough, inode.number, rights_of(opened.handle)),
            (None, None) => None,
        };
        match backing {
            Some(backing) => Opened::passthrough(opened.handle, backing).no_flush(),
            None => opened,
        }
    }
}
