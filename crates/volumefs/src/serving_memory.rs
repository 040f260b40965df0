//! Memory with the state of a mount that neither the replica's database nor the framework has.
//!
//! | words | meaning |
//! |---|---|
//! | 0 | [`MAGIC`], which includes the version |
//! | 1, 2 | number of invalidations begun, and of those that the kernel has processed |
//! | 3, 4 | id of the lease session, upper half first; 0 before the first one |
//! | from [`INVALIDATIONS_AT`] | the last [`MAX_INVALIDATIONS`] invalidations: an inode number, and in bit 0 whether a name changed |
//! | then | [`MAX_HISTORIC`] historical inodes of 4 words: number (written last), object id, log position |
//! | then | [`MAX_LISTINGS`] open directories of [`POSITIONS`] positions each: offset, length of the name, the name before it |

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse::FileHandle;
use shunt_fuse::takeover::Map;
use shunt_volume::id::{ObjectId, Seq};
use shunt_volume::lease::SessionMemory;

const MAGIC: u64 = u64::from_le_bytes(*b"volfs\0\0\x01");
const BEGUN: usize = 1;
const PROCESSED: usize = 2;
const SESSION: usize = 3;

const INVALIDATIONS_AT: usize = 8;
const MAX_INVALIDATIONS: usize = 1 << 16;

const HISTORIC_AT: usize = INVALIDATIONS_AT + MAX_INVALIDATIONS;
const MAX_HISTORIC: usize = 1 << 14;
const HISTORIC_WORDS: usize = 4;
/// Slots that are tried for an inode.
const MAX_PROBES: usize = 64;

const LISTINGS_AT: usize = HISTORIC_AT + MAX_HISTORIC * HISTORIC_WORDS;
const MAX_LISTINGS: usize = 1 << 12;
/// The ends of the last replies. A listing continues at one of them.
const POSITIONS: usize = 4;
const NAME_WORDS: usize = 32;
const POSITION_WORDS: usize = 2 + NAME_WORDS;
const LISTING_WORDS: usize = POSITIONS * POSITION_WORDS;

const WORDS: usize = LISTINGS_AT + MAX_LISTINGS * LISTING_WORDS;

/// State that outlives the daemon.
#[derive(Debug, Clone)]
pub(crate) struct ServingMemory(Arc<Map>);

impl ServingMemory {
    pub(super) fn create() -> io::Result<Self> {
        let map = Map::create(WORDS)?;
        map[0].store(MAGIC, Ordering::Relaxed);
        Ok(Self(Arc::new(map)))
    }

    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        let map = Map::open(file, WORDS)?;
        if map[0].load(Ordering::Relaxed) != MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the last daemon's state has another format",
            ));
        }
        Ok(Self(Arc::new(map)))
    }

    /// Records an invalidation that is about to be sent. Returns its number.
    pub(crate) fn begin_invalidation(&self, num: u64, is_name: bool) -> u64 {
        let number = self.0[BEGUN].load(Ordering::Relaxed);
        let slot = INVALIDATIONS_AT + number as usize % MAX_INVALIDATIONS;
        self.0[slot].store(num << 1 | u64::from(is_name), Ordering::Relaxed);
        self.0[BEGUN].store(number + 1, Ordering::Release);
        number
    }

    /// Records that the kernel has processed all invalidations before this number.
    pub(crate) fn invalidated_until(&self, number: u64) {
        self.0[PROCESSED].fetch_max(number, Ordering::Release);
    }

    /// Returns the number of the next invalidation.
    pub(crate) fn next_invalidation(&self) -> u64 {
        self.0[BEGUN].load(Ordering::Relaxed)
    }

    /// Returns the inodes with invalidations that the kernel may not have processed, and whether a name changed. `None`: there
    /// are more than were recorded.
    pub(super) fn pending_invalidations(&self) -> Option<Vec<(u64, bool)>> {
        let begun = self.0[BEGUN].load(Ordering::Acquire);
        let processed = self.0[PROCESSED].load(Ordering::Acquire).min(begun);
        if begun - processed > MAX_INVALIDATIONS as u64 {
            return None;
        }
        let of = |number: u64| {
            self.0[INVALIDATIONS_AT + number as usize % MAX_INVALIDATIONS].load(Ordering::Relaxed)
        };
        Some((processed..begun).map(of).map(|entry| (entry >> 1, entry & 1 != 0)).collect())
    }

    fn historic_slots(&self, num: u64) -> impl Iterator<Item = &[AtomicU64]> {
        (0..MAX_PROBES).map(move |probe| {
            let slot = (num as usize).wrapping_add(probe) % MAX_HISTORIC;
            &self.0[HISTORIC_AT + slot * HISTORIC_WORDS..][..HISTORIC_WORDS]
        })
    }

    /// Records what a historical inode is. Without room it is lost with this daemon.
    pub(crate) fn add_historic(&self, num: u64, id: ObjectId, at: Seq) {
        let is_free = |words: &&[AtomicU64]| {
            matches!(words[0].load(Ordering::Relaxed), 0) || words[0].load(Ordering::Relaxed) == num
        };
        if let Some(words) = self.historic_slots(num).find(is_free) {
            words[1].store((id.0 >> 64) as u64, Ordering::Relaxed);
            words[2].store(id.0 as u64, Ordering::Relaxed);
            words[3].store(at.0, Ordering::Relaxed);
            words[0].store(num, Ordering::Release);
        }
    }

    pub(crate) fn remove_historic(&self, num: u64) {
        for words in self.historic_slots(num).filter(|words| words[0].load(Ordering::Relaxed) == num) {
            words[0].store(0, Ordering::Release);
        }
    }

    pub(crate) fn historic(&self, num: u64) -> Option<(ObjectId, Seq)> {
        let words = self.historic_slots(num).find(|words| words[0].load(Ordering::Acquire) == num)?;
        let word = |index: usize| words[index].load(Ordering::Relaxed);
        Some((ObjectId(u128::from(word(1)) << 64 | u128::from(word(2))), Seq(word(3))))
    }

    fn listing(&self, handle: FileHandle) -> Option<&[AtomicU64]> {
        let index = handle.0 as u32 as usize;
        (index < MAX_LISTINGS).then(|| &self.0[LISTINGS_AT + index * LISTING_WORDS..][..LISTING_WORDS])
    }

    /// Forgets the positions of a listing that begins.
    pub(crate) fn begin_listing(&self, handle: FileHandle) {
        for words in self.listing(handle).into_iter().flat_map(|words| words.chunks_exact(POSITION_WORDS)) {
            words[0].store(0, Ordering::Release);
        }
    }

    /// Records the name before an offset at which a listing may continue.
    pub(crate) fn add_position(&self, handle: FileHandle, offset: u64, name: &[u8]) {
        let Some(words) = self.listing(handle) else { return };
        let mut positions = words.chunks_exact(POSITION_WORDS);
        let oldest = positions.clone().min_by_key(|words| words[0].load(Ordering::Relaxed));
        let same = positions.find(|words| words[0].load(Ordering::Relaxed) == offset);
        let (Some(words), true) = (same.or(oldest), name.len() <= NAME_WORDS * 8) else { return };
        words[0].store(0, Ordering::Release);
        words[1].store(name.len() as u64, Ordering::Relaxed);
        for (word, bytes) in words[2..].iter().zip(name.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        words[0].store(offset, Ordering::Release);
    }

    /// Returns the recorded offsets of a listing, each with the name before it.
    pub(crate) fn positions(&self, handle: FileHandle) -> Vec<(u64, Vec<u8>)> {
        let read = |words: &[AtomicU64]| {
            let offset = words[0].load(Ordering::Acquire);
            let length = words[1].load(Ordering::Relaxed) as usize;
            let bytes = words[2..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
            (offset != 0 && length <= NAME_WORDS * 8).then(|| (offset, bytes.take(length).collect()))
        };
        let words = self.listing(handle).into_iter().flat_map(|words| words.chunks_exact(POSITION_WORDS));
        words.filter_map(read).collect()
    }
}

impl SessionMemory for ServingMemory {
    fn last(&self) -> Option<u128> {
        let half = |index: usize| u128::from(self.0[index].load(Ordering::Acquire));
        Some(half(SESSION) << 64 | half(SESSION + 1)).filter(|session| *session != 0)
    }

    fn record(&self, session: u128) {
        self.0[SESSION].store((session >> 64) as u64, Ordering::Release);
        self.0[SESSION + 1].store(session as u64, Ordering::Release);
    }
}

impl AsFd for ServingMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(memory: &ServingMemory) -> ServingMemory {
        ServingMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn pending_invalidations_are_found_by_the_next_daemon() {
        let memory = ServingMemory::create().unwrap();
        memory.begin_invalidation(7, false);
        let second = memory.begin_invalidation(8, true);
        memory.invalidated_until(second);
        memory.begin_invalidation(9, false);
        assert_eq!(again(&memory).pending_invalidations().unwrap(), [(8, true), (9, false)]);
        assert_eq!(memory.last(), None);
        memory.record(5 << 70 | 3);
        assert_eq!(again(&memory).last(), Some(5 << 70 | 3));
        for num in 0..MAX_INVALIDATIONS as u64 {
            memory.begin_invalidation(num, false);
        }
        assert!(again(&memory).pending_invalidations().is_none(), "the first ones were overwritten");
    }

    #[test]
    fn historic_inodes_and_positions_come_back() {
        let memory = ServingMemory::create().unwrap();
        let num = (1 << 62) + 5;
        memory.add_historic(num, ObjectId(1 << 100 | 3), Seq(12));
        // Another one at the same slot.
        memory.add_historic(num + MAX_HISTORIC as u64, ObjectId(4), Seq(13));
        let next = again(&memory);
        assert_eq!(next.historic(num), Some((ObjectId(1 << 100 | 3), Seq(12))));
        next.remove_historic(num);
        assert_eq!(next.historic(num), None);
        assert_eq!(next.historic(num + MAX_HISTORIC as u64), Some((ObjectId(4), Seq(13))));

        let handle = FileHandle(1 << 32 | 6);
        let longest = [b'n'; 255];
        for offset in 1..=6 {
            next.add_position(handle, offset * 100, format!("name{offset}").as_bytes());
        }
        next.add_position(handle, 600, &longest);
        let mut positions = again(&next).positions(handle);
        positions.sort();
        assert_eq!(positions[0], (300, b"name3".to_vec()));
        assert_eq!(positions[3], (600, longest.to_vec()));
        next.begin_listing(handle);
        assert!(next.positions(handle).is_empty());
        assert!(next.positions(FileHandle(u64::from(u32::MAX))).is_empty(), "beyond the table");
    }

    #[test]
    fn memory_of_another_format_is_refused() {
        let map = Map::create(WORDS).unwrap();
        assert!(ServingMemory::open(map.as_fd().try_clone_to_owned().unwrap()).is_err());
        let short = Map::create(8).unwrap();
        assert!(ServingMemory::open(short.as_fd().try_clone_to_owned().unwrap()).is_err());
    }
}
