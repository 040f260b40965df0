//! Cache misses while the store is unreachable.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::replica::{Inner, Replica};

/// Maximum number of files remembered.
const MAX_REMEMBERED_FILES: usize = 16;

#[derive(Default)]
pub(crate) struct OfflineMisses(Mutex<(u64, VecDeque<u64>)>);

impl Inner {
    pub(crate) fn record_offline_miss(&self, num: u64) {
        let mut unmet = self.shared.offline_misses.0.lock();
        unmet.0 += 1;
        unmet.1.retain(|other| *other != num);
        unmet.1.push_back(num);
        if unmet.1.len() > MAX_REMEMBERED_FILES {
            unmet.1.pop_front();
        }
    }
}

impl Replica {
    /// Returns the number of cache misses while the store was unreachable, and the paths of the last files that are still not
    /// cached.
    ///
    /// # Errors
    /// EIO.
    pub fn offline_misses(&self) -> Result<(u64, Vec<Vec<u8>>), Errno> {
        let (count, nums) = self.inner.shared.offline_misses.0.lock().clone();
        self.read(|db| {
            let mut paths = Vec::new();
            for num in nums {
                let is_away =
                    db.find(num)?.is_some_and(|inode| inode.state != crate::replica::CacheState::Complete);
                if is_away {
                    paths.push(db.path(num)?);
                }
            }
            Ok((count, paths))
        })
    }
}
