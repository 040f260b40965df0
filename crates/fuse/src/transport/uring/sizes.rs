//! Number and size of the entries of io_uring queues, within a memory limit.

use std::fs;
use std::io;

use crate::transport::PAGE_BYTES;

/// Memory limit of all first entries together, in bytes, if each is filled completely.
const MAX_FIRST_ENTRIES_BYTES: usize = 128 << 20;
/// Memory limit of all entries together, in bytes, if each is filled completely. With a pool, requests other than WRITE are
/// copied from their buffer to the entry, so that the limit is twice as high.
const MAX_ALL_ENTRIES_BYTES: usize = 1 << 30;
/// Minimum of the limit of entries per queue.
const MIN_ENTRIES: usize = 4;
/// Maximum number of entries of a queue.
const MAX_ENTRIES: usize = 64;

/// The number of queues, and of entries of each. Memory that no request has filled is not allocated; the rest is bounded by the
/// maximum number of requests that were ever in flight at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueSizes {
    /// One queue for each possible CPU.
    pub(crate) queues: u16,
    /// Maximum number of data bytes in one request.
    pub(crate) max_write: u32,
    /// Maximum number of entries of one queue.
    pub(crate) max_entries: usize,
}

impl QueueSizes {
    /// Returns the size of a payload buffer in bytes.
    pub(crate) fn payload(&self) -> usize {
        self.max_write.max(super::MIN_PAYLOAD_BYTES) as usize
    }

    /// Reports whether the kernel computes the same size for the buffers of a pool: the larger one of `max_write` and of
    /// `max_pages`, which a sysctl limits. The kernel accepts a pool of any size, and would place other buffers in it.
    pub(crate) fn kernel_agrees(&self) -> bool {
        let limit = fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
        let limit = limit.ok().and_then(|limit| limit.trim().parse().ok());
        limit.is_some_and(|limit| self.agrees_with(limit, rustix::param::page_size()))
    }

    fn agrees_with(&self, page_limit: usize, page: usize) -> bool {
        let pages = (self.payload() / PAGE_BYTES as usize).min(page_limit);
        (self.max_write as usize).max(pages.saturating_mul(page)) == self.payload()
    }

    /// Computes the sizes for this many queues; the data of one request is reduced where there are very many.
    pub(crate) fn new(queues: u16, max_write: u32) -> Self {
        let count = usize::from(queues.max(1));
        let share = (MAX_FIRST_ENTRIES_BYTES / count).max(super::MIN_PAYLOAD_BYTES as usize);
        // Rounded down to a power of two, as all I/O sizes are.
        let share = 1 << share.ilog2();
        let max_write = max_write.min(share.min(u32::MAX as usize) as u32);
        let entry = max_write.max(super::MIN_PAYLOAD_BYTES) as usize;
        Self {
            queues,
            max_write,
            max_entries: (MAX_ALL_ENTRIES_BYTES / count / entry).clamp(MIN_ENTRIES, MAX_ENTRIES),
        }
    }
}

/// Returns the number of possible CPUs: one more than the last of the list `0-3,8`.
///
/// # Errors
/// The error of reading the list.
pub(crate) fn possible_processors() -> io::Result<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count(&list)
        .ok_or_else(|| io::Error::other(format!("cannot parse the list of processors `{}`", list.trim())))
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
    fn the_size_of_a_pooled_buffer_is_the_one_that_the_kernel_computes() {
        let sizes = |max_write| QueueSizes { queues: 2, max_write, max_entries: 64 };
        assert!(sizes(1 << 20).agrees_with(256, 4096));
        assert!(sizes(4096).agrees_with(256, 4096));
        // Larger pages than those that INIT counted.
        assert!(!sizes(1 << 20).agrees_with(usize::MAX, 65536));
        // Fewer pages than an extended attribute needs.
        assert!(!sizes(4096).agrees_with(16, 4096));
        assert!(sizes(1 << 20).agrees_with(16, 4096));
    }

    #[test]
    fn memory_is_bounded_whatever_the_machine() {
        for queues in [1, 2, 8, 64, 128, 512, 4096] {
            for max_write in [4096, 1 << 20, 16 << 20] {
                let sizes = QueueSizes::new(queues, max_write);
                let entry = sizes.max_write.max(super::super::MIN_PAYLOAD_BYTES) as usize;
                let all = usize::from(queues) * sizes.max_entries * entry;
                assert!(all <= MAX_ALL_ENTRIES_BYTES || sizes.max_entries == MIN_ENTRIES, "{sizes:?}");
                assert!(all <= 2 * MAX_ALL_ENTRIES_BYTES, "{sizes:?}: {all}");
                assert!((MIN_ENTRIES..=MAX_ENTRIES).contains(&sizes.max_entries));
            }
        }
        assert_eq!(
            QueueSizes::new(2, 1 << 20),
            QueueSizes { queues: 2, max_write: 1 << 20, max_entries: 64 }
        );
    }
}
