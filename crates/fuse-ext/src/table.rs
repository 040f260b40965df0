//! A set-associative hash table that the daemon writes and a BPF program reads, without locks: each slot is a seqlock.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use bytemuck::{Pod, bytes_of, cast_slice, cast_slice_mut, pod_read_unaligned};

use crate::Memory;

/// Slots of one set; the same constant as in the programs.
const WAYS: usize = 4;

/// The content of a slot, without the sequence number before it. Eight-byte alignment, no padding.
pub trait Slot: Pod {
    /// Number of leading words that identify an entry.
    const KEY_WORDS: usize;
}

/// An array of sets of four slots, each guarded by a sequence number that is odd during a write.
#[derive(Debug)]
pub struct Table<S> {
    memory: Memory,
    victim: AtomicU64,
    slot: PhantomData<S>,
}

impl<S: Slot> Table<S> {
    /// Words of one slot, including its sequence number.
    pub const WORDS: usize = 1 + size_of::<S>() / 8;

    /// # Panics
    /// The memory must hold a power of two of slots, four at least.
    pub fn new(memory: Memory) -> Self {
        const { assert!(align_of::<S>() == 8 && S::KEY_WORDS > 0 && S::KEY_WORDS <= size_of::<S>() / 8) };
        let slots = memory.words().len() / Self::WORDS;
        assert!(slots >= WAYS && slots.is_power_of_two(), "{slots} slots");
        Self { memory, victim: AtomicU64::new(0), slot: PhantomData }
    }

    fn set(&self, hash: u64) -> impl Iterator<Item = &[AtomicU64]> {
        let slots = self.memory.words().len() / Self::WORDS;
        let first = hash as usize & (slots - 1) & !(WAYS - 1);
        self.memory.words()[first * Self::WORDS..(first + WAYS) * Self::WORDS].chunks_exact(Self::WORDS)
    }

    /// Stores an entry: replacing an older one with the same key, otherwise in a free slot, otherwise in any slot of its set.
    /// If another thread is writing that very slot, nothing is stored.
    pub fn store(&self, hash: u64, entry: &S) {
        let mut words = vec![0u64; Self::WORDS - 1];
        cast_slice_mut(&mut words).copy_from_slice(bytes_of(entry));
        let same_key = |slot: &[AtomicU64]| {
            let key = slot[1..].iter().zip(&words).take(S::KEY_WORDS);
            slot[0].load(Ordering::Acquire) != 0
                && key.into_iter().all(|(a, b)| a.load(Ordering::Relaxed) == *b)
        };
        let chosen = self
            .set(hash)
            .find(|slot| same_key(slot))
            .or_else(|| self.set(hash).find(|slot| slot[0].load(Ordering::Relaxed) == 0))
            .or_else(|| self.set(hash).nth(self.victim.fetch_add(1, Ordering::Relaxed) as usize % WAYS));
        let Some(slot) = chosen else { return };
        let seq = slot[0].load(Ordering::Relaxed);
        let begun = seq & 1 == 0
            && slot[0].compare_exchange(seq, seq + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !begun {
            return;
        }
        fence(Ordering::SeqCst);
        for (target, word) in slot[1..].iter().zip(&words) {
            target.store(*word, Ordering::Relaxed);
        }
        slot[0].store(seq + 2, Ordering::Release);
    }

    /// Returns the entry with the key words of `like`, if there is one.
    pub fn find(&self, hash: u64, like: &S) -> Option<S> {
        self.set(hash).find_map(|slot| {
            let seq = slot[0].load(Ordering::Acquire);
            if seq == 0 || seq & 1 == 1 {
                return None;
            }
            let words: Vec<u64> = slot[1..].iter().map(|word| word.load(Ordering::Relaxed)).collect();
            fence(Ordering::Acquire);
            let key = S::KEY_WORDS * 8;
            (slot[0].load(Ordering::Relaxed) == seq
                && cast_slice::<_, u8>(&words)[..key] == bytes_of(like)[..key])
                .then(|| pod_read_unaligned(cast_slice(&words)))
        })
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    #[repr(C)]
    struct Pair {
        key: u64,
        value: [u64; 3],
    }

    impl Slot for Pair {
        const KEY_WORDS: usize = 1;
    }

    fn table(slots: usize) -> Table<Pair> {
        Table::new(Memory::private(slots * Table::<Pair>::WORDS).unwrap())
    }

    fn pair(key: u64, value: u64) -> Pair {
        Pair { key, value: [value; 3] }
    }

    #[test]
    fn the_newest_entry_of_a_key_is_found_and_no_other() {
        let table = table(8);
        table.store(5, &pair(1, 10));
        table.store(5, &pair(2, 20));
        table.store(5, &pair(1, 11));
        assert_eq!(table.find(5, &pair(1, 0)), Some(pair(1, 11)));
        assert_eq!(table.find(5, &pair(2, 0)), Some(pair(2, 20)));
        assert_eq!(table.find(5, &pair(3, 0)), None);
    }

    #[test]
    fn a_full_set_gives_up_one_entry_for_another() {
        let table = table(4);
        (0..9).for_each(|key| table.store(0, &pair(key, key)));
        let left = (0..9).filter(|key| table.find(0, &pair(*key, 0)).is_some()).count();
        assert_eq!(left, 4);
    }

    #[test]
    fn a_reader_never_sees_half_an_entry() {
        let table = table(4);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let table = &table;
                scope.spawn(move || (0..20_000).for_each(|n| table.store(0, &pair(7, n * 2 + writer))));
            }
            for _ in 0..20_000 {
                if let Some(found) = table.find(0, &pair(7, 0)) {
                    assert!(found.value.iter().all(|value| *value == found.value[0]), "{found:?}");
                }
            }
        });
    }
}
