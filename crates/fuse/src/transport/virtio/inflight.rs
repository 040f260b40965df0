//! The requests in flight of all queues, in memory that outlives the daemon: the inflight region of the vhost-user specification,
//! in its layout for split virtqueues. The emulator, or the guardian in its place, holds the memory and gives it to the next
//! daemon, which executes again what was taken from a queue and not returned.
//!
//! Each queue has a header of 16 bytes, then 16 bytes for each descriptor:
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..8 | features, 0 |
//! | 8..10 | version; 0 while nothing is known of the queue |
//! | 10..12 | number of descriptors |
//! | 12..14 | head of the chain that was returned last |
//! | 14..16 | index of the used ring |
//!
//! | bytes of a descriptor | meaning |
//! |---|---|
//! | 0 | 1 while the chain that begins here is in flight |
//! | 6..8 | unused: chains are returned one by one |
//! | 8..16 | position in the order in which chains were taken |
//!
//! Plain stores are enough: everything stored before a SIGKILL is visible afterwards, in program order.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

use super::crash_point::{Step, crash_point};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const QUEUE_ALIGNMENT_BYTES: usize = 64;
const VERSION: u16 = 1;

const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const LAST_RETURNED_AT: usize = 12;
const USED_INDEX_AT: usize = 14;
const COUNTER_AT: usize = 8;

/// Size of the region of `queues` queues in bytes, each with room for `entries` descriptors.
pub(crate) fn region_bytes(queues: usize, entries: u16) -> usize {
    queues * queue_bytes(entries)
}

fn queue_bytes(entries: u16) -> usize {
    (HEADER_BYTES + usize::from(entries) * ENTRY_BYTES).next_multiple_of(QUEUE_ALIGNMENT_BYTES)
}

/// Position of the version in the region: a store of 0 there makes the queue unknown again.
pub(crate) fn version_offset(queue: usize, entries: u16) -> u64 {
    (queue * queue_bytes(entries) + VERSION_AT) as u64
}

/// Makes the memory of a region; all of its queues are unknown.
///
/// # Errors
/// No descriptor is available.
pub(crate) fn create(queues: usize, entries: u16) -> io::Result<File> {
    let file = memfd_create("shunt-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, region_bytes(queues, entries) as u64)?;
    // A file that cannot shrink cannot cause SIGBUS.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

/// The mapped region of all queues.
#[derive(Debug)]
pub(crate) struct InflightRegion {
    memory: MmapRegion,
    queues: usize,
    entries: u16,
}

impl InflightRegion {
    /// Maps a region of `queues` queues of `entries` descriptors that begins at `offset` of the file.
    ///
    /// # Errors
    /// The file is too short, or cannot be mapped.
    pub(crate) fn map(file: File, offset: u64, queues: usize, entries: u16) -> io::Result<Arc<Self>> {
        let bytes = region_bytes(queues, entries);
        let end = offset.checked_add(bytes as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if bytes == 0 || file.metadata()?.len() < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = MmapRegion::from_file(FileOffset::new(file, offset), bytes).map_err(io::Error::other)?;
        Ok(Arc::new(Self { memory, queues, entries }))
    }

    /// Returns the part of one queue; `None` where the region has none for it, or too little room.
    pub(crate) fn queue(self: &Arc<Self>, index: usize, entries: u16) -> Option<InflightQueue> {
        let fits = index < self.queues && entries <= self.entries;
        let start = index * queue_bytes(self.entries);
        fits.then(|| InflightQueue { region: self.clone(), start, entries, taken: 0 })
    }

    fn load<T: AtomicAccess + Default>(&self, at: usize) -> T {
        // Positions are inside of the mapping by construction.
        self.memory.as_volatile_slice().load(at, Ordering::Acquire).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T) {
        let _ = self.memory.as_volatile_slice().store(value, at, Ordering::Release);
    }
}

/// The state of a queue that an earlier daemon served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Index of the used ring.
    pub(crate) next_used: u16,
    /// Index of the available ring.
    pub(crate) next_available: u16,
    /// The heads of the chains in flight, in the order in which they were taken.
    pub(crate) heads: Vec<u16>,
}

/// The chains of one queue in flight.
#[derive(Debug)]
pub(crate) struct InflightQueue {
    region: Arc<InflightRegion>,
    start: usize,
    entries: u16,
    taken: u64,
}

impl InflightQueue {
    fn entry(&self, head: u16) -> usize {
        self.start + HEADER_BYTES + usize::from(head) * ENTRY_BYTES
    }

    fn is_in_flight(&self, head: u16) -> bool {
        self.region.load::<u8>(self.entry(head)) != 0
    }

    /// Begins to use the queue, whose used ring has the index `used`. Returns what an earlier daemon left, if there was one.
    pub(crate) fn begin(&mut self, used: u16) -> Option<Recovered> {
        let at = |offset| self.start + offset;
        if self.region.load::<u16>(at(VERSION_AT)) != VERSION
            || self.region.load::<u16>(at(ENTRIES_AT)) != self.entries
        {
            self.region.store::<u16>(at(VERSION_AT), 0);
            (0..self.entries).for_each(|head| self.region.store::<u8>(self.entry(head), 0));
            self.region.store(at(ENTRIES_AT), self.entries);
            self.region.store(at(USED_INDEX_AT), used);
            self.region.store(at(VERSION_AT), VERSION);
            self.taken = 0;
            return None;
        }
        let known = self.region.load::<u16>(at(USED_INDEX_AT));
        // The guest can write its used ring. No value but the next one means anything, and no other is adopted.
        if used == known.wrapping_add(1) {
            let last = self.region.load::<u16>(at(LAST_RETURNED_AT));
            if last < self.entries {
                self.region.store::<u8>(self.entry(last), 0);
            }
            self.region.store(at(USED_INDEX_AT), used);
        }
        let next_used = self.region.load::<u16>(at(USED_INDEX_AT));
        let in_flight = (0..self.entries).filter(|head| self.is_in_flight(*head));
        let mut heads: Vec<(u64, u16)> =
            in_flight.map(|head| (self.region.load(self.entry(head) + COUNTER_AT), head)).collect();
        heads.sort_unstable();
        self.taken = heads.last().map_or(0, |(taken, _)| taken.wrapping_add(1));
        let heads: Vec<u16> = heads.into_iter().map(|(_, head)| head).collect();
        let next_available = next_used.wrapping_add(heads.len() as u16);
        Some(Recovered { next_used, next_available, heads })
    }

    /// Records that a chain was taken. Returns `false` for one that is in flight already: the guest is broken.
    pub(crate) fn take(&mut self, head: u16) -> bool {
        if head >= self.entries || self.is_in_flight(head) {
            return false;
        }
        self.region.store(self.entry(head) + COUNTER_AT, self.taken);
        self.taken = self.taken.wrapping_add(1);
        crash_point(Step::Take);
        self.region.store::<u8>(self.entry(head), 1);
        true
    }

    /// Records that a chain is about to be returned.
    pub(crate) fn begin_return(&self, head: u16) {
        self.region.store(self.start + LAST_RETURNED_AT, head);
    }

    /// Records that a chain was returned, and that the used ring has the index `used` since.
    pub(crate) fn finish_return(&self, head: u16, used: u16) {
        if head < self.entries {
            self.region.store::<u8>(self.entry(head), 0);
        }
        crash_point(Step::Clear);
        self.region.store(self.start + USED_INDEX_AT, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> (File, Arc<InflightRegion>) {
        let file = create(2, 8).unwrap();
        let region = InflightRegion::map(file.try_clone().unwrap(), 0, 2, 8).unwrap();
        (file, region)
    }

    #[test]
    fn chains_in_flight_are_found_in_the_order_of_taking() {
        let (_file, region) = region();
        let mut queue = region.queue(1, 8).unwrap();
        assert_eq!(queue.begin(7), None);
        assert!([5, 2, 3, 0].into_iter().all(|head| queue.take(head)));
        queue.begin_return(2);
        queue.finish_return(2, 8);
        let recovered = region.queue(1, 8).unwrap().begin(8).unwrap();
        assert_eq!(recovered, Recovered { next_used: 8, next_available: 11, heads: vec![5, 3, 0] });
        assert_eq!(region.queue(0, 8).unwrap().begin(0), None, "the other queue is unknown");
    }

    #[test]
    fn a_chain_that_was_returned_is_not_in_flight() {
        let (_file, region) = region();
        let mut queue = region.queue(0, 8).unwrap();
        queue.begin(0xffff);
        queue.take(4);
        queue.take(6);
        queue.begin_return(6);
        // The daemon was killed after it had published the used ring's new index, 0.
        let recovered = region.queue(0, 8).unwrap().begin(0).unwrap();
        assert_eq!(recovered, Recovered { next_used: 0, next_available: 1, heads: vec![4] });
    }

    #[test]
    fn an_index_that_the_guest_invents_is_ignored() {
        let (_file, region) = region();
        let mut queue = region.queue(0, 8).unwrap();
        queue.begin(3);
        queue.take(1);
        queue.begin_return(1);
        let recovered = region.queue(0, 8).unwrap().begin(900).unwrap();
        assert_eq!(recovered, Recovered { next_used: 3, next_available: 4, heads: vec![1] });
    }

    #[test]
    fn a_chain_is_not_taken_twice() {
        let (_file, region) = region();
        let mut queue = region.queue(0, 8).unwrap();
        queue.begin(0);
        assert_eq!([1, 1, 8, 0xffff].map(|head| queue.take(head)), [true, false, false, false]);
    }

    #[test]
    fn a_region_without_room_is_refused() {
        let (file, region) = region();
        assert!(region.queue(2, 8).is_none() && region.queue(0, 16).is_none());
        for (offset, queues, entries) in [(0, 3, 8), (4096, 2, 8), (u64::MAX, 2, 8), (0, 0, 8)] {
            assert!(InflightRegion::map(file.try_clone().unwrap(), offset, queues, entries).is_err());
        }
    }
}
