//! The lookup counts in a memory file that outlives the process.
//!
//! | words | meaning |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | from 64 | for each slot of a thread: the request whose lookups it counted last, and their number |
//! | then | the count of each inode |

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use shunt_ext4::MAX_OPERATIONS;
use shunt_fuse::takeover::Map;

const MAGIC: u64 = u64::from_le_bytes(*b"shunt\0lc");

const SLOTS_AT: usize = 64;
const SLOT_WORDS: usize = 2;
const COUNTS_AT: usize = SLOTS_AT + MAX_OPERATIONS * SLOT_WORDS;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// The memory file.
#[derive(Debug)]
pub(crate) struct LookupMemory {
    words: Map,
    /// Lookups that an earlier process counted, and that were not requested again yet, by request.
    counted: Mutex<HashMap<u64, u64>>,
}

impl LookupMemory {
    pub(super) fn create(inodes: u32) -> io::Result<Self> {
        let words = Map::create(COUNTS_AT + inodes as usize + 1)?;
        words[0].store(MAGIC, Ordering::Release);
        Ok(Self { words, counted: Mutex::default() })
    }

    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        let words = Map::open_any(file)?;
        if words.len() <= COUNTS_AT || words[0].load(Ordering::Acquire) != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file has no lookup counts"));
        }
        let mut counted = HashMap::new();
        for slot in 0..MAX_OPERATIONS {
            let [request, count] = slot_words(&words, slot);
            match request.swap(0, Ordering::AcqRel) {
                0 => {}
                number => _ = counted.insert(number, count.load(Ordering::Acquire)),
            }
        }
        Ok(Self { words, counted: Mutex::new(counted) })
    }

    /// Stores the count of an inode.
    pub(crate) fn store(&self, number: u32, count: u64) {
        if let Some(word) = self.words.get(COUNTS_AT + number as usize) {
            word.store(count, Ordering::Release);
        }
    }

    /// Returns the counts that are not zero.
    pub(crate) fn counts(&self) -> io::Result<Vec<(u32, u64)>> {
        let mut counts = Vec::new();
        let end = self.words.len() as u64 * WORD_BYTES;
        let mut at = COUNTS_AT as u64 * WORD_BYTES;
        // Nearly all of the file is a hole, and reading a hole of a memory file would allocate it.
        while at < end {
            let start = match rustix::fs::seek(&self.words, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                found => found?,
            };
            at = rustix::fs::seek(&self.words, SeekFrom::Hole(start))?;
            for index in (start / WORD_BYTES) as usize..(at.min(end) / WORD_BYTES) as usize {
                let count = self.words[index].load(Ordering::Acquire);
                if count > 0 {
                    counts.push(((index - COUNTS_AT) as u32, count));
                }
            }
        }
        Ok(counts)
    }

    /// Records that one more lookup was counted for a request.
    pub(super) fn record(&self, slot: usize, request: u64) {
        let [number, count] = slot_words(&self.words, slot);
        if number.load(Ordering::Relaxed) == request {
            count.fetch_add(1, Ordering::Release);
            return;
        }
        number.store(0, Ordering::Release);
        count.store(1, Ordering::Release);
        number.store(request, Ordering::Release);
    }

    /// Reports whether an earlier process counted one more lookup for a request, which is counted anew.
    pub(super) fn was_counted(&self, request: u64) -> bool {
        let mut counted = self.counted.lock();
        let Some(count) = counted.get_mut(&request) else { return false };
        let was_counted = *count > 0;
        *count = count.saturating_sub(1);
        was_counted
    }
}

fn slot_words(words: &Map, slot: usize) -> &[std::sync::atomic::AtomicU64; SLOT_WORDS] {
    words[SLOTS_AT + slot * SLOT_WORDS..].first_chunk().expect("the slot is inside the memory")
}

impl AsFd for LookupMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive() {
        let memory = LookupMemory::create(1 << 20).unwrap();
        memory.store(2, 1);
        memory.store(1 << 20, 70_000);
        memory.store(77_777, 3);
        memory.store(77_777, 0);
        memory.store(u32::MAX, 1);
        for _ in 0..3 {
            memory.record(0, 10);
        }
        memory.record(1, 11);
        memory.record(1, 12);
        let file = memory.as_fd().try_clone_to_owned().unwrap();
        drop(memory);
        let memory = LookupMemory::open(file).unwrap();
        assert_eq!(memory.counts().unwrap(), [(2, 1), (1 << 20, 70_000)]);
        let counted = |request| (0..5).filter(|_| memory.was_counted(request)).count();
        assert_eq!([counted(10), counted(11), counted(12), counted(10)], [3, 0, 1, 0]);
        assert!(
            LookupMemory::open(rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap())
                .is_err()
        );
    }
}
