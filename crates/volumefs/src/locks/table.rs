//! File locks of one file on this node: POSIX record locks and BSD locks, which do not conflict with each other. Locks of peers
//! are not in the table.

use shunt_fuse::{FileHandle, LockArgs, LockKind, LockOwner, LockRange, LockType};

/// Maximum number of locks of a file, more than any program uses. Beyond, ENOLCK.
const MAX_LOCKS: usize = 16_384;

#[derive(Debug, Clone, Copy)]
struct Lock {
    kind: LockKind,
    owner: LockOwner,
    range: LockRange,
    /// The open file through which it was set.
    handle: FileHandle,
}

/// Locks held on a file.
#[derive(Debug, Default)]
pub(super) struct Table(Vec<Lock>);

impl Table {
    /// Returns a lock of another owner that conflicts.
    pub(super) fn conflict(&self, args: &LockArgs) -> Option<LockRange> {
        let wants = args.range;
        let exclude = |held: LockType| {
            wants.kind != LockType::Unlock && (held == LockType::Write || wants.kind == LockType::Write)
        };
        let found = self.0.iter().find(|lock| {
            lock.kind == args.kind
                && lock.owner != args.owner
                && lock.range.start <= wants.end
                && wants.start <= lock.range.end
                && exclude(lock.range.kind)
        });
        found.map(|lock| lock.range)
    }

    /// Replaces an owner's locks in a range. Returns false if there would be too many.
    pub(super) fn set(&mut self, args: &LockArgs) -> bool {
        if self.0.len() >= MAX_LOCKS && args.range.kind != LockType::Unlock {
            return false;
        }
        let mut kept = Vec::with_capacity(self.0.len() + 1);
        for lock in self.0.drain(..) {
            let (at, new) = (lock.range, args.range);
            if lock.kind != args.kind || lock.owner != args.owner || at.end < new.start || new.end < at.start
            {
                kept.push(lock);
                continue;
            }
            if at.start < new.start {
                kept.push(Lock { range: LockRange { end: new.start - 1, ..at }, ..lock });
            }
            if at.end > new.end {
                kept.push(Lock { range: LockRange { start: new.end + 1, ..at }, ..lock });
            }
        }
        if args.range.kind != LockType::Unlock {
            let LockArgs { kind, owner, range, handle, .. } = *args;
            kept.push(Lock { kind, owner, range, handle });
        }
        self.0 = kept;
        true
    }

    /// Removes all locks of an owner.
    pub(super) fn end(&mut self, kind: LockKind, owner: LockOwner) {
        self.0.retain(|lock| lock.kind != kind || lock.owner != owner);
    }

    /// Removes the process locks that were set through a released open file. A lock of an open file description ends only with
    /// that file; locks of processes ended before.
    pub(super) fn end_of(&mut self, handle: FileHandle) {
        self.0.retain(|lock| lock.kind != LockKind::Posix || lock.handle != handle);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(owner: u64, start: u64, end: u64, kind: LockType) -> LockArgs {
        LockArgs {
            handle: FileHandle(0),
            owner: LockOwner(owner),
            range: LockRange { start, end, kind, pid: 0 },
            kind: LockKind::Posix,
            wait: false,
        }
    }

    #[test]
    fn locks_of_one_owner_replace_each_other_and_stand_in_the_way_of_others() {
        let mut table = Table::default();
        assert!(table.set(&args(1, 0, 99, LockType::Write)));
        assert!(table.set(&args(1, 40, 59, LockType::Unlock)));
        let conflict = |table: &Table, start, end, kind| {
            table.conflict(&args(2, start, end, kind)).map(|at| (at.start, at.end))
        };
        assert_eq!(conflict(&table, 0, 200, LockType::Read), Some((0, 39)));
        assert_eq!(conflict(&table, 45, 59, LockType::Write), None);
        assert_eq!(conflict(&table, 59, 60, LockType::Read), Some((60, 99)));
        assert!(table.conflict(&args(1, 0, 200, LockType::Write)).is_none());
        // A shared lock in its place permits readers.
        assert!(table.set(&args(1, 60, 99, LockType::Read)));
        assert_eq!(conflict(&table, 60, 60, LockType::Read), None);
        assert_eq!(conflict(&table, 60, 60, LockType::Write), Some((60, 99)));
        let flock = LockArgs { kind: LockKind::Flock, ..args(2, 0, u64::MAX >> 1, LockType::Write) };
        assert!(table.conflict(&flock).is_none(), "flock and POSIX locks do not conflict");
        table.end(LockKind::Posix, LockOwner(1));
        assert!(table.is_empty());
    }
}
