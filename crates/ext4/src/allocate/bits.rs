//! Search for runs of zeros (free blocks or inodes) in a bitmap.

/// A bitmap in which bits beyond `length` count as set.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Box<[u64]>,
    length: u32,
}

impl Bits {
    /// Loads the on-disk form of a bitmap.
    pub(super) fn new(bytes: &[u8], length: u32) -> Self {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        Self { words: bytes[..length.div_ceil(8) as usize].chunks(8).map(word).collect(), length }
    }

    /// Returns the first bit at or after `from` that has this value, or `length`.
    fn next(&self, from: u32, value: bool) -> u32 {
        let mut index = (from / 64) as usize;
        let mut mask = !0 << (from % 64);
        while let Some(&word) = self.words.get(index) {
            let word = if value { word } else { !word } & mask;
            if word != 0 {
                return (index as u32 * 64 + word.trailing_zeros()).min(self.length);
            }
            mask = !0;
            index += 1;
        }
        self.length
    }

    /// Finds a run of zeros in `from..`: the first of `want` bits, or else the longest. Returns its start and its length, which
    /// is at most `want`.
    pub(super) fn find(&self, from: u32, want: u32) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        let mut at = from;
        loop {
            let start = self.next(at, false);
            if start >= self.length {
                return best;
            }
            at = self.next(start, true);
            let length = at - start;
            if length >= want {
                return Some((start, want));
            }
            if best.is_none_or(|(_, longest)| length > longest) {
                best = Some((start, length));
            }
        }
    }

    /// Finds the first run of zeros in `from..` that starts at a multiple of `room` and is at least as long as both `room` and
    /// `want`. Returns its start and `want`.
    pub(super) fn find_aligned(&self, from: u32, room: u32, want: u32) -> Option<(u32, u32)> {
        let mut at = from;
        while at < self.length {
            let start = self.next(at, false);
            at = self.next(start, true);
            let aligned = start.next_multiple_of(room);
            if at >= aligned.saturating_add(room.max(want)) {
                return Some((aligned, want));
            }
        }
        None
    }

    /// Number of zeros from `start` on, at most `want`.
    pub(super) fn free_at(&self, start: u32, want: u32) -> u32 {
        if start >= self.length {
            return 0;
        }
        (self.next(start, true) - start).min(want)
    }

    pub(super) fn set(&mut self, start: u32, count: u32, value: bool) {
        for bit in start..start + count {
            let mask = 1 << (bit % 64);
            match value {
                true => self.words[(bit / 64) as usize] |= mask,
                false => self.words[(bit / 64) as usize] &= !mask,
            }
        }
    }

    pub(super) fn zeros(&self) -> u32 {
        let mut at = 0;
        let mut zeros = 0;
        while at < self.length {
            let start = self.next(at, false);
            at = self.next(start, true);
            zeros += at - start;
        }
        zeros
    }
}

/// Reports whether all bits of a range of an on-disk bitmap have this value.
pub(super) fn all(bytes: &[u8], start: u32, count: u32, value: bool) -> bool {
    (start..start + count).all(|bit| (bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1) == value)
}

/// Sets or clears a range of an on-disk bitmap.
pub(super) fn put(bytes: &mut [u8], start: u32, count: u32, value: bool) {
    let mut bit = start;
    while bit < start + count {
        let index = (bit / 8) as usize;
        if bit % 8 == 0 && start + count - bit >= 8 {
            bytes[index] = if value { 0xff } else { 0 };
            bit += 8;
            continue;
        }
        match value {
            true => bytes[index] |= 1 << (bit % 8),
            false => bytes[index] &= !(1 << (bit % 8)),
        }
        bit += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn as_bit_by_bit(bytes in proptest::collection::vec(proptest::sample::select(&[0_u8, 0xff, 0xf0, 1, 0x18][..]), 40),
                         length in 200_u32..320, from in 0_u32..200, want in 1_u32..100) {
            let bits = Bits::new(&bytes, length);
            let zero = |bit: u32| bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 0;
            proptest::prop_assert_eq!(bits.zeros() as usize, (0..length).filter(|&bit| zero(bit)).count());
            let run = |start: u32| (start..length).take_while(|&bit| zero(bit)).count() as u32;
            proptest::prop_assert_eq!(bits.free_at(from, want), run(from).min(want));
            let starts = (from..length).filter(|&bit| zero(bit) && (bit == from || !zero(bit - 1)));
            let starts: Vec<u32> = starts.collect();
            let expected = match starts.iter().find(|&&start| run(start) >= want) {
                Some(&start) => Some((start, want)),
                None => starts.iter().rev().max_by_key(|&&start| run(start)).map(|&start| (start, run(start))),
            };
            proptest::prop_assert_eq!(bits.find(from, want), expected);
            let mut changed = bytes.clone();
            put(&mut changed, from, want, true);
            proptest::prop_assert!(all(&changed, from, want, true));
            put(&mut changed, from, want, false);
            proptest::prop_assert!(all(&changed, from, want, false));
        }
    }
}
