//! Which inodes the kernel knows, so that one without names is freed once nobody can use it any more.
//!
//! The kernel may know all inodes of an image at once: those that have a name and were not read lately, which are nearly
//! all, cost a count alone.

mod counts;

use hashbrown::{HashMap, HashSet};

use parking_lot::{Mutex, MutexGuard};
use shunt_ext4::Time;

use counts::{Counts, TOGETHER};

/// An inode that the kernel knew.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Held {
    /// It has no name any more.
    pub(crate) nameless: bool,
    /// It was last read then, which the image does not say yet.
    pub(crate) read: Option<Time>,
}

const SHARDS: usize = 16;

/// Reads of one shard that are remembered: 64 Ki in all, in 4 MiB at most.
const MAX_PENDING_ATIMES: usize = 4096;

#[derive(Debug, Default)]
struct Shard {
    /// How often the kernel was told of each.
    lookups: Counts,
    /// Inodes with a count.
    inodes: u64,
    nameless: HashSet<u32>,
    reads: HashMap<u32, Time>,
}

/// Counts what the kernel was told, and what it forgot.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts([Mutex<Shard>; SHARDS]);

impl LookupCounts {
    fn shard(&self, number: u32) -> MutexGuard<'_, Shard> {
        self.0[(number / TOGETHER) as usize % SHARDS].lock()
    }

    /// The kernel is told of it once more.
    pub(crate) fn tell(&self, number: u32) {
        let mut shard = self.shard(number);
        let lookups = shard.lookups.get(number);
        shard.inodes += u64::from(lookups == 0);
        shard.lookups.set(number, lookups.saturating_add(1));
    }

    /// The kernel forgets it so many times. What was known of it, where it is not known any more.
    #[must_use]
    pub(crate) fn forget(&self, number: u32, lookups: u64) -> Option<Held> {
        let mut shard = self.shard(number);
        let before = shard.lookups.get(number);
        let left = before.saturating_sub(lookups);
        if before == 0 {
            return None;
        }
        shard.lookups.set(number, left);
        if left > 0 {
            return None;
        }
        shard.inodes -= 1;
        Some(Held { nameless: shard.nameless.remove(&number), read: shard.reads.remove(&number) })
    }

    /// It lost its last name. Whether it is to be freed now.
    #[must_use]
    pub(crate) fn unname(&self, number: u32) -> bool {
        let mut shard = self.shard(number);
        let known = shard.knows(number);
        if known {
            shard.nameless.insert(number);
        }
        !known
    }

    /// It has a name, again or at last.
    pub(crate) fn name(&self, number: u32) {
        self.shard(number).nameless.remove(&number);
    }

    /// It was read. Whether that is remembered: it is of what the kernel knows, while there are not too many.
    pub(crate) fn note_read(&self, number: u32, time: Time) -> bool {
        let mut shard = self.shard(number);
        if !shard.knows(number) {
            return false;
        }
        if let Some(read) = shard.reads.get_mut(&number) {
            *read = time;
            return true;
        }
        let room = shard.reads.len() < MAX_PENDING_ATIMES;
        if room {
            shard.reads.insert(number, time);
        }
        room
    }

    /// When it was last read, where the image does not say.
    pub(crate) fn read(&self, number: u32) -> Option<Time> {
        self.shard(number).reads.get(&number).copied()
    }

    /// As [`read`](Self::read), and it is not remembered any more.
    pub(crate) fn take_read(&self, number: u32) -> Option<Time> {
        self.shard(number).reads.remove(&number)
    }

    /// As [`take_read`](Self::take_read), of all.
    pub(crate) fn take_reads(&self) -> Vec<(u32, Time)> {
        self.0.iter().flat_map(|shard| std::mem::take(&mut shard.lock().reads)).collect()
    }

    /// All that have no name. Nobody knows them any more: the mount is gone.
    pub(crate) fn take_nameless(&self) -> Vec<u32> {
        self.0.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()).nameless).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|shard| shard.lock().inodes).sum()
    }
}

impl Shard {
    fn knows(&self, number: u32) -> bool {
        self.lookups.get(number) > 0
    }
}

#[cfg(test)]
mod tests;
