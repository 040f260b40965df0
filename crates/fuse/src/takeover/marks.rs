//! A persistent set of numbers that a file system passes to the next server: one word each, 0 for a free slot.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::state::{MARKS_HIGH_WORD, MARKS_LOST_WORD, MAX_MARKS, TakeoverState};

#[derive(Debug)]
pub(super) struct Marks(Mutex<MarkSlots>);

#[derive(Debug)]
struct MarkSlots {
    of: HashMap<u64, usize>,
    free: Vec<usize>,
    /// Slots from here on were never used.
    high: usize,
}

impl Marks {
    /// Reads the set of an earlier server.
    pub(super) fn read(state: &TakeoverState) -> Self {
        let high = (state.word(MARKS_HIGH_WORD).load(Ordering::Acquire) as usize).min(MAX_MARKS);
        let mut slots = MarkSlots { of: HashMap::new(), free: Vec::new(), high };
        for slot in 0..high {
            let number = state.mark(slot).load(Ordering::Relaxed);
            if number == 0 || slots.of.insert(number, slot).is_some() {
                state.mark(slot).store(0, Ordering::Relaxed);
                slots.free.push(slot);
            }
        }
        Self(Mutex::new(slots))
    }

    /// Returns all numbers.
    pub(super) fn all(&self) -> Vec<u64> {
        self.0.lock().of.keys().copied().collect()
    }

    /// Reports whether every number found a slot.
    pub(super) fn are_complete(state: &TakeoverState) -> bool {
        state.word(MARKS_LOST_WORD).load(Ordering::Acquire) == 0
    }

    pub(super) fn add(&self, state: &TakeoverState, number: u64) {
        let mut slots = self.0.lock();
        if number == 0 || slots.of.contains_key(&number) {
            return;
        }
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None if slots.high < MAX_MARKS => {
                slots.high += 1;
                state.word(MARKS_HIGH_WORD).store(slots.high as u64, Ordering::Release);
                slots.high - 1
            }
            None => {
                state.word(MARKS_LOST_WORD).store(1, Ordering::Release);
                return;
            }
        };
        slots.of.insert(number, slot);
        state.mark(slot).store(number, Ordering::Release);
    }

    pub(super) fn remove(&self, state: &TakeoverState, number: u64) {
        let mut slots = self.0.lock();
        if let Some(slot) = slots.of.remove(&number) {
            state.mark(slot).store(0, Ordering::Release);
            slots.free.push(slot);
        }
    }
}
