//! How much memory queues may take.

use std::fs;
use std::io;

/// All first entries together take at most this many bytes, were each filled to its end.
const FIRST: usize = 128 << 20;
/// All entries together take at most this many bytes, were each filled to its end.
const ALL: usize = 1 << 30;
/// Entries that a queue may have in any case.
const MIN_ENTRIES: usize = 4;
/// Entries that a queue may have at most.
const MAX_ENTRIES: usize = 64;

/// Queues, and entries of each. Memory that no request filled yet is not taken; what is, is bounded by the largest
/// number of requests that were ever under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// One queue for each processor that there may ever be.
    pub(crate) queues: u16,
    /// Bytes of data in one request.
    pub(crate) max_write: u32,
    /// Entries of one queue.
    pub(crate) most: usize,
}

impl Sizes {
    /// For this many queues; data of one request is cut to fewer bytes where there are very many.
    pub(crate) fn new(queues: u16, max_write: u32) -> Self {
        let count = usize::from(queues.max(1));
        let share = (FIRST / count).max(super::LEAST_PAYLOAD as usize);
        // A power of two, as all sizes of I/O are.
        let share = 1 << share.ilog2();
        let max_write = max_write.min(share.min(u32::MAX as usize) as u32);
        let entry = max_write.max(super::LEAST_PAYLOAD) as usize;
        Self { queues, max_write, most: (ALL / count / entry).clamp(MIN_ENTRIES, MAX_ENTRIES) }
    }
}

/// The number of possible processors: one more than the last of the list `0-3,8`.
///
/// # Errors
/// Those of reading the list.
pub(crate) fn possible_processors() -> io::Result<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count(&list).ok_or_else(|| io::Error::other(format!("processors `{}`", list.trim())))
}

fn count(list: &str) -> Option<u16> {
    list.trim().rsplit([',', '-']).next()?.parse::<u16>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0,2-7\n"), Some(8));
        assert_eq!(count(""), None);
    }

    #[test]
    fn memory_is_bounded_whatever_the_machine() {
        for queues in [1, 2, 8, 64, 128, 512, 4096] {
            for max_write in [4096, 1 << 20, 16 << 20] {
                let sizes = Sizes::new(queues, max_write);
                let entry = sizes.max_write.max(super::super::LEAST_PAYLOAD) as usize;
                let all = usize::from(queues) * sizes.most * entry;
                assert!(all <= ALL || sizes.most == MIN_ENTRIES, "{sizes:?}");
                assert!(all <= 2 * ALL, "{sizes:?}: {all}");
                assert!((MIN_ENTRIES..=MAX_ENTRIES).contains(&sizes.most));
            }
        }
        assert_eq!(Sizes::new(2, 1 << 20), Sizes { queues: 2, max_write: 1 << 20, most: 64 });
    }
}
