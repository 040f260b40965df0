//! Which inodes the kernel knows, so that one without names is freed once nobody can use it any more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;
use shunt_ext4::Time;

/// An inode that the kernel was told of.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Held {
    lookups: u64,
    /// It has no name any more.
    pub(crate) nameless: bool,
    /// It was last read then, which the image does not say yet.
    pub(crate) read: Option<Time>,
}

const SHARDS: usize = 16;

/// Counts what the kernel was told, and what it forgot.
#[derive(Debug, Default)]
pub(crate) struct Known([Mutex<HashMap<u32, Held>>; SHARDS]);

impl Known {
    fn shard(&self, number: u32) -> &Mutex<HashMap<u32, Held>> {
        &self.0[number as usize % SHARDS]
    }

    /// The kernel is told of it once more.
    pub(crate) fn tell(&self, number: u32) {
        self.shard(number).lock().entry(number).or_default().lookups += 1;
    }

    /// The kernel forgets it so many times. What was known of it, where it is not known any more.
    #[must_use]
    pub(crate) fn forget(&self, number: u32, lookups: u64) -> Option<Held> {
        let mut shard = self.shard(number).lock();
        let Entry::Occupied(mut held) = shard.entry(number) else { return None };
        held.get_mut().lookups = held.get().lookups.saturating_sub(lookups);
        (held.get().lookups == 0).then(|| held.remove())
    }

    /// It lost its last name. Whether it is to be freed now.
    #[must_use]
    pub(crate) fn unname(&self, number: u32) -> bool {
        match self.shard(number).lock().get_mut(&number) {
            Some(held) => {
                held.nameless = true;
                false
            }
            None => true,
        }
    }

    /// It has a name, again or at last.
    pub(crate) fn name(&self, number: u32) {
        if let Some(held) = self.shard(number).lock().get_mut(&number) {
            held.nameless = false;
        }
    }

    /// It was read. Whether that is remembered: it is, of what the kernel knows.
    pub(crate) fn note_read(&self, number: u32, time: Time) -> bool {
        let mut shard = self.shard(number).lock();
        let held = shard.get_mut(&number);
        held.map(|held| held.read = Some(time)).is_some()
    }

    /// When it was last read, where the image does not say.
    pub(crate) fn read(&self, number: u32) -> Option<Time> {
        self.shard(number).lock().get(&number)?.read
    }

    /// As [`read`](Self::read), and it is not remembered any more.
    pub(crate) fn take_read(&self, number: u32) -> Option<Time> {
        self.shard(number).lock().get_mut(&number)?.read.take()
    }

    /// As [`take_read`](Self::take_read), of all.
    pub(crate) fn take_reads(&self) -> Vec<(u32, Time)> {
        let mut reads = Vec::new();
        for shard in &self.0 {
            let mut shard = shard.lock();
            reads.extend(shard.iter_mut().filter_map(|(number, held)| Some((*number, held.read.take()?))));
        }
        reads
    }

    /// All that have no name. Nobody knows them any more: the mount is gone.
    pub(crate) fn take_nameless(&self) -> Vec<u32> {
        let all = self.0.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()));
        all.filter(|(_, held)| held.nameless).map(|(number, _)| number).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|shard| shard.lock().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_is_freed_with_the_last_use() {
        let known = Known::default();
        known.tell(7);
        known.tell(7);
        assert!(!known.unname(7));
        assert!(known.forget(7, 1).is_none());
        assert!(known.forget(7, 1).unwrap().nameless);
        assert!(known.forget(7, 1).is_none());
        assert!(known.unname(8), "nobody knew it");
    }

    #[test]
    fn reads_are_remembered_of_what_is_known() {
        let known = Known::default();
        let time = Time { seconds: 5, nanoseconds: 6 };
        assert!(!known.note_read(7, time));
        known.tell(7);
        assert!(known.note_read(7, time));
        assert_eq!((known.read(7), known.take_reads(), known.read(7)), (Some(time), vec![(7, time)], None));
        known.note_read(7, time);
        assert_eq!(known.forget(7, 1).unwrap().read, Some(time));
    }

    #[test]
    fn a_new_name_keeps_it() {
        let known = Known::default();
        known.tell(7);
        assert!(!known.unname(7));
        known.name(7);
        assert!(!known.forget(7, 1).unwrap().nameless);
        known.tell(9);
        assert!(!known.unname(9));
        assert_eq!((known.take_nameless(), known.len()), (vec![9], 0));
    }
}
