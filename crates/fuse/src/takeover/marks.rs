//! A persistent set of numbers that a file system passes to the next server: one word each, 0 for a free slot.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::state::{MARKS_HIGH, MARKS_LOST, MAX_MARKS, TakeoverState};

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
        let high = (state.word(MARKS_HIGH).load(Ordering::Acquire) as usize).min(MAX_MARKS);
        let mut places = MarkSlots { of: HashMap::new(), free: Vec::new(), high };
        for place in 0..high {
            let number = state.mark(place).load(Ordering::Relaxed);
            if number == 0 || places.of.insert(number, place).is_some() {
                state.mark(place).store(0, Ordering::Relaxed);
                places.free.push(place);
            }
        }
        Self(Mutex::new(places))
    }

    /// Returns all numbers.
    pub(super) fn all(&self) -> Vec<u64> {
        self.0.lock().of.keys().copied().collect()
    }

    /// Reports whether every number found a slot.
    pub(super) fn are_complete(state: &TakeoverState) -> bool {
        state.word(MARKS_LOST).load(Ordering::Acquire) == 0
    }

    pub(super) fn add(&self, state: &TakeoverState, number: u64) {
        let mut places = self.0.lock();
        if number == 0 || places.of.contains_key(&number) {
            return;
        }
        let place = match places.free.pop() {
            Some(place) => place,
            None if places.high < MAX_MARKS => {
                places.high += 1;
                state.word(MARKS_HIGH).store(places.high as u64, Ordering::Release);
                places.high - 1
            }
            None => {
                state.word(MARKS_LOST).store(1, Ordering::Release);
                return;
            }
        };
        places.of.insert(number, place);
        state.mark(place).store(number, Ordering::Release);
    }

    pub(super) fn remove(&self, state: &TakeoverState, number: u64) {
        let mut places = self.0.lock();
        if let Some(place) = places.of.remove(&number) {
            state.mark(place).store(0, Ordering::Release);
            places.free.push(place);
        }
    }
}
