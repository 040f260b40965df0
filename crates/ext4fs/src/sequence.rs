//! Order of opens and failed writes.

/// Position of an open or a failure in their common sequence. It has as many bits as a handle has room for, and wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sequence(u64);

impl Sequence {
    const BITS: u32 = 29;

    pub(crate) fn new(number: u64) -> Self {
        Self(number & ((1 << Self::BITS) - 1))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Reports whether this position comes before another one, if they are less than half of all numbers apart.
    pub(crate) fn precedes(self, other: Self) -> bool {
        let ahead = Self::new(other.0.wrapping_sub(self.0)).0;
        (1..1 << (Self::BITS - 1)).contains(&ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap() {
        let (last, first) = (Sequence::new(u64::MAX), Sequence::new(0));
        assert!(last.precedes(first) && !first.precedes(last) && !first.precedes(first));
    }
}
