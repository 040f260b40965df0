//! Directory listings: buffered `getdents64`, with positions kept between requests.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::shares::Share;
use super::sys;

/// Size in bytes of a read from the lower directory.
const BUFFER_BYTES: usize = 32 << 10;

/// An invalid cookie, which forces a seek.
const INVALID_COOKIE: u64 = u64::MAX;

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// Inode number on the lower file system.
    pub ino: u64,
    /// The client already holds the inode.
    pub held: bool,
    /// The cookie from which a listing continues after this entry.
    pub next: u64,
    /// Its file type, if the file system reports it.
    pub kind: FileType,
}

impl DirEntry<'_> {
    /// Reports whether the name is `.` or `..`.
    pub fn is_dots(&self) -> bool {
        matches!(self.name.to_bytes(), b"." | b"..")
    }
}

/// Parses the first record of a `getdents64` buffer; returns it with its length.
fn first_record(buffer: &[u8]) -> Option<(DirEntry<'_>, usize)> {
    let (ino, rest) = buffer.split_first_chunk()?;
    let (next, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (&kind, _) = rest.split_first()?;
    let length = usize::from(u16::from_ne_bytes(*length));
    let name = CStr::from_bytes_until_nul(buffer.get(19..length)?).ok()?;
    let entry = DirEntry {
        name,
        ino: u64::from_ne_bytes(*ino),
        held: false,
        next: u64::from_ne_bytes(*next),
        kind: FileType::from_raw_mode(u32::from(kind) << 12),
    };
    Some((entry, length))
}

/// An open directory that is being listed.
#[derive(Debug)]
pub(crate) struct Listing {
    dir: OwnedFd,
    buffer: Vec<u8>,
    /// Offset of the first buffered byte that was not returned yet.
    taken: usize,
    /// The cookie of that entry.
    position: u64,
    /// The end of the directory was read.
    ended: bool,
    /// Change count of the directory's names when the buffer was read.
    epoch: u64,
    /// The share of the user that has it open.
    _share: Option<Share>,
}

impl Listing {
    /// Lists `dir`, which must be open for reading and at its beginning.
    pub(crate) fn new(dir: OwnedFd) -> Self {
        Self { dir, buffer: Vec::new(), taken: 0, position: 0, ended: false, epoch: 0, _share: None }
    }

    /// Counts the listing for the user that has it open.
    pub(crate) fn of_user(self, share: Share) -> Self {
        Self { _share: Some(share), ..self }
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    fn seek(&mut self, cookie: u64) -> Result<(), Errno> {
        rustix::fs::seek(&self.dir, SeekFrom::Start(cookie))?;
        self.buffer.clear();
        self.taken = 0;
        self.position = cookie;
        self.ended = false;
        Ok(())
    }

    /// Passes entries from the cookie `from` on to `take`, until `take` refuses one or the directory ends. A refused
    /// entry is returned again by the next call. Continuing where the last call ended needs no seek; a walk from 0
    /// reads the directory again.
    ///
    /// # Errors
    /// The errors of `lseek(2)`, `getdents64(2)` and `take`.
    pub(crate) fn walk(
        &mut self,
        from: u64,
        mut take: impl FnMut(BorrowedFd<'_>, DirEntry<'_>) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let fresh = self.position == 0 && self.taken == 0 && self.buffer.is_empty() && !self.ended;
        if self.position != from || (from == 0 && !fresh) {
            self.seek(from)?;
        }
        loop {
            if self.taken == self.buffer.len() {
                if self.ended {
                    return Ok(());
                }
                self.buffer.reserve_exact(BUFFER_BYTES);
                self.taken = 0;
                if sys::getdents(self.dir.as_fd(), &mut self.buffer)? == 0 {
                    self.ended = true;
                    // Most listings stay idle from here until the request that reads the end.
                    self.buffer = Vec::new();
                    return Ok(());
                }
            }
            let (entry, length) = first_record(&self.buffer[self.taken..]).ok_or(Errno::IO)?;
            let next = entry.next;
            if !take(self.dir.as_fd(), entry)? {
                return Ok(());
            }
            self.taken += length;
            self.position = next;
        }
    }

    /// Discards buffered entries if names changed since: the next walk reads again from its cookie.
    fn renew(&mut self, epoch: u64) {
        if self.epoch != epoch && !self.buffer.is_empty() {
            self.position = INVALID_COOKIE;
        }
        self.epoch = epoch;
    }

    fn is_at(&self, cookie: u64) -> bool {
        self.position == cookie && cookie != 0
    }
}

/// Listings without OPENDIR: a paused one is found again by directory and position.
#[derive(Debug)]
pub(crate) struct Listings {
    /// Idle listings, the least recently used first.
    idle: Mutex<Vec<(NodeId, Listing)>>,
    capacity: usize,
    /// Change counts of names, each shared by all directories with the same hash.
    epochs: [AtomicU64; EPOCH_SLOTS],
}

const EPOCH_SLOTS: usize = 64;

impl Listings {
    /// Creates a cache of up to `capacity` listings.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { idle: Mutex::default(), capacity, epochs: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Removes and returns the cached listing of `node` that is at `cookie`. Concurrent readers each have their own. A
    /// listing at the beginning is never cached: a new one starts there.
    pub(crate) fn take(&self, node: NodeId, cookie: u64) -> Option<Listing> {
        let mut idle = self.idle.lock();
        let position = idle.iter().rposition(|(of, listing)| *of == node && listing.is_at(cookie))?;
        let mut listing = idle.remove(position).1;
        drop(idle);
        listing.renew(self.epoch(node).load(Ordering::Acquire));
        Some(listing)
    }

    /// Starts a new listing of `node`.
    pub(crate) fn begin(&self, node: NodeId, dir: OwnedFd) -> Listing {
        Listing { epoch: self.epoch(node).load(Ordering::Acquire), ..Listing::new(dir) }
    }

    /// Invalidates buffered entries of a directory whose names changed.
    pub(crate) fn changed(&self, node: NodeId) {
        self.epoch(node).fetch_add(1, Ordering::AcqRel);
    }

    fn epoch(&self, node: NodeId) -> &AtomicU64 {
        &self.epochs[(node.0 ^ node.0 >> 8) as usize % EPOCH_SLOTS]
    }

    /// Caches a listing for the request that continues it.
    pub(crate) fn put(&self, node: NodeId, listing: Listing) {
        let mut idle = self.idle.lock();
        let oldest = (idle.len() >= self.capacity).then(|| idle.remove(0));
        idle.push((node, listing));
        drop(idle);
        // Closing a directory may take a while, so it happens outside the lock.
        drop(oldest);
    }

    /// Drops all cached listings of a directory.
    pub(crate) fn forget(&self, node: NodeId) {
        let forgotten: Vec<_> = self.idle.lock().extract_if(.., |(of, _)| *of == node).collect();
        drop(forgotten);
    }

    /// Number of cached listings.
    pub(crate) fn len(&self) -> usize {
        self.idle.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn listing(path: &std::path::Path) -> Listing {
        Listing::new(std::fs::File::open(path).unwrap().into())
    }

    /// Reads `limit` entries from a cookie; returns the names and the cookie after them.
    fn some(listing: &mut Listing, mut cookie: u64, limit: usize) -> (Vec<String>, u64) {
        let mut names = Vec::new();
        listing
            .walk(cookie, |_, entry| {
                if names.len() == limit {
                    return Ok(false);
                }
                names.push(entry.name.to_str().unwrap().to_owned());
                cookie = entry.next;
                Ok(true)
            })
            .unwrap();
        (names, cookie)
    }

    #[test]
    fn parts_make_the_whole_in_any_order_of_readers() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected: BTreeSet<String> = [".".to_owned(), "..".to_owned()].into();
        for number in 0..3000 {
            let name = format!("file-with-a-name-of-some-length-{number}");
            std::fs::write(dir.path().join(&name), "").unwrap();
            expected.insert(name);
        }
        let mut listing = listing(dir.path());
        // Two readers alternate on one listing, each from its own cookie.
        let (mut one, mut two) = (BTreeSet::new(), BTreeSet::new());
        let (mut at_one, mut at_two) = (0, 0);
        loop {
            let (names, next) = some(&mut listing, at_one, 70);
            let ended = names.is_empty();
            one.extend(names);
            at_one = next;
            let (names, next) = some(&mut listing, at_two, 90);
            two.extend(names.iter().cloned());
            at_two = next;
            if ended && names.is_empty() {
                break;
            }
        }
        assert_eq!(one, expected);
        assert_eq!(two, expected);
        std::fs::write(dir.path().join("late"), "").unwrap();
        assert!(
            some(&mut listing, 0, usize::MAX).0.contains(&"late".to_owned()),
            "a rewind reads the directory again"
        );
    }

    #[test]
    fn records_out_of_shape_are_an_error() {
        assert!(first_record(&[]).is_none());
        assert!(first_record(&[0; 18]).is_none());
        assert!(first_record(&[0; 64]).is_none());
        assert!(first_record(&[0xff; 64]).is_none());
    }

    #[test]
    fn listings_are_found_by_place_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let listings = Listings::new(4);
        let mut one = listing(dir.path());
        let (_, next) = some(&mut one, 0, 1);
        listings.put(NodeId(7), one);
        assert!(listings.take(NodeId(8), next).is_none());
        assert!(listings.take(NodeId(7), 0).is_none());
        assert!(listings.take(NodeId(7), next).is_some());
        for _ in 0..10 {
            listings.put(NodeId(7), listing(dir.path()));
        }
        assert_eq!(listings.len(), 4);
        listings.forget(NodeId(7));
        assert_eq!(listings.len(), 0);
    }
}
