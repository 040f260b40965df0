//! Per-inode reader-writer locks, created on demand.
//!
//! Inode locks are taken before a handle. Of two inodes, a directory is locked before an inode in it; otherwise, the lower number
//! is locked first.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
use shunt_sharded::{CachePadded, Sharded};

type Lock = Arc<RwLock<()>>;

/// Table of the locks in use.
pub(crate) struct Locks(Sharded<CachePadded<Mutex<HashMap<u32, Lock>>>, 64>);

/// Shared lock: the inode does not change while it is held.
pub(crate) struct Shared<'a> {
    _release: Release<'a>,
}

/// Exclusive lock: no other thread accesses the inode while it is held.
pub(crate) struct Exclusive<'a> {
    _release: Release<'a>,
}

/// Removes the lock from the table if no other thread uses it.
struct Release<'a> {
    locks: &'a Locks,
    number: u32,
    guard: Option<Guard>,
}

enum Guard {
    Shared { _guard: ArcRwLockReadGuard<RawRwLock, ()> },
    Exclusive { _guard: ArcRwLockWriteGuard<RawRwLock, ()> },
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self(Sharded::default())
    }

    fn shard(&self, number: u32) -> &Mutex<HashMap<u32, Lock>> {
        self.0.by_hash(number.into())
    }

    fn lock(&self, number: u32) -> Lock {
        self.shard(number).lock().entry(number).or_default().clone()
    }

    pub(crate) fn read(&self, number: u32) -> Shared<'_> {
        let guard = Some(Guard::Shared { _guard: self.lock(number).read_arc() });
        Shared { _release: Release { locks: self, number, guard } }
    }

    pub(crate) fn write(&self, number: u32) -> Exclusive<'_> {
        let guard = Some(Guard::Exclusive { _guard: self.lock(number).write_arc() });
        Exclusive { _release: Release { locks: self, number, guard } }
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut shard = self.locks.shard(self.number).lock();
        // The table's reference is the last one: a thread that wants the lock now waits for the table.
        if shard.get(&self.number).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            shard.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_exclude_writers_and_are_removed() {
        let locks = Locks::new();
        let counts: [Mutex<u32>; 2] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000_u32 {
                        let number = n % 2;
                        let _guard = locks.write(number);
                        let mut count = counts[number as usize].try_lock().unwrap();
                        *count += 1;
                    }
                });
            }
        });
        assert_eq!(counts.map(|count| count.into_inner()), [40_000; 2]);
        assert!(locks.0.iter().all(|shard| shard.lock().is_empty()));
    }
}
