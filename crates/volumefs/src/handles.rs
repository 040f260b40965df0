//! Sharded table of open files or directories, by file handle.
//!
//! The lower half of a handle is a small number, which is used again once it is free; the upper half counts, so that a handle as
//! a whole is not reused soon. Handles stay valid when another daemon takes over.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_fuse::{Errno, FileHandle};
use shunt_sharded::Sharded;

/// Handles that each daemon of a mount begins above those of the last one.
const OPENS_PER_DAEMON: u32 = 1 << 24;

/// Allocator of handles, which several tables share if the kernel may confuse their handles.
#[derive(Default)]
pub(crate) struct HandleNumbers(Mutex<Numbers>);

#[derive(Default)]
struct Numbers {
    /// Numbers below `next` that are free. The oldest is reused first.
    free: VecDeque<u32>,
    next: u32,
    opens: u32,
}

impl HandleNumbers {
    fn allocate(&self) -> u64 {
        let mut numbers = self.0.lock();
        let number = numbers.free.pop_front().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        numbers.opens = numbers.opens.wrapping_add(1).max(1);
        u64::from(numbers.opens) << 32 | u64::from(number)
    }

    fn release(&self, handle: u64) {
        self.0.lock().free.push_back(handle as u32);
    }

    /// Reserves the handles of earlier daemons; call it before the first open. `takeovers`: the number of earlier daemons.
    pub(crate) fn reserve(&self, handles: impl Iterator<Item = FileHandle>, takeovers: u32) {
        let mut taken: Vec<u32> = handles.map(|handle| handle.0 as u32).collect();
        taken.sort_unstable();
        let mut numbers = self.0.lock();
        numbers.next = taken.last().map_or(0, |last| last + 1);
        numbers.free = (0..numbers.next).filter(|number| taken.binary_search(number).is_err()).collect();
        numbers.opens = takeovers.wrapping_mul(OPENS_PER_DAEMON);
    }
}

/// Open files, or open directories.
pub(crate) struct Handles<T> {
    numbers: Arc<HandleNumbers>,
    shards: Sharded<Mutex<HashMap<u64, Arc<T>>>, 8>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl<T> Handles<T> {
    pub(crate) fn new(numbers: Arc<HandleNumbers>) -> Self {
        Self { numbers, shards: Sharded::default() }
    }

    pub(crate) fn numbers(&self) -> Arc<HandleNumbers> {
        self.numbers.clone()
    }

    fn shard(&self, handle: u64) -> &Mutex<HashMap<u64, Arc<T>>> {
        self.shards.by_low_bits(handle)
    }

    pub(crate) fn add(&self, open: T) -> (FileHandle, Arc<T>) {
        let handle = FileHandle(self.numbers.allocate());
        (handle, self.insert(handle, open))
    }

    /// Adds an open file under a [reserved](HandleNumbers::reserve) handle.
    pub(crate) fn insert(&self, handle: FileHandle, open: T) -> Arc<T> {
        let open = Arc::new(open);
        self.shard(handle.0).lock().insert(handle.0, open.clone());
        open
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        self.shard(handle.0).lock().get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn remove(&self, handle: FileHandle) -> Option<Arc<T>> {
        let removed = self.shard(handle.0).lock().remove(&handle.0);
        if removed.is_some() {
            self.numbers.release(handle.0);
        }
        removed
    }

    /// Returns the open files that fulfil a condition.
    pub(crate) fn find(&self, condition: impl Fn(&T) -> bool) -> Vec<(FileHandle, Arc<T>)> {
        let mut found = Vec::new();
        for shard in self.shards.iter() {
            let shard = shard.lock();
            let all = shard.iter().filter(|(_, open)| condition(open));
            found.extend(all.map(|(handle, open)| (FileHandle(*handle), open.clone())));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_handles_are_not() {
        let handles = Handles::<u32>::default();
        let (first, _) = handles.add(1);
        let (second, _) = handles.add(2);
        assert!(first.0 != 0 && first.0 as u32 == 0 && second.0 as u32 == 1);
        handles.remove(first).unwrap();
        assert!(handles.remove(first).is_none(), "its number is free once");
        let (third, _) = handles.add(3);
        assert_eq!(third.0 as u32, 0);
        assert_ne!(third, first);
        assert!(handles.get(first).is_err());
    }

    #[test]
    fn handles_of_an_earlier_daemon_stay_valid_and_their_numbers_taken() {
        let earlier = Handles::<u32>::default();
        let all: Vec<_> = (0..4).map(|n| earlier.add(n).0).collect();
        let handles = Handles::<u32>::default();
        handles.numbers().reserve([all[3], all[1]].into_iter(), 1);
        [all[3], all[1]].into_iter().for_each(|handle| drop(handles.insert(handle, 9)));
        let new: Vec<_> = (0..3).map(|n| handles.add(n).0).collect();
        assert_eq!(new.iter().map(|handle| handle.0 as u32).collect::<Vec<_>>(), [0, 2, 4]);
        assert!(new.iter().all(|handle| !all.contains(handle)));
        assert_eq!(*handles.get(all[1]).unwrap(), 9);
    }
}
