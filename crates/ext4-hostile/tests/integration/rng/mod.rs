/// Deterministic pseudo-random numbers.
pub struct Rng(pub u64);

impl Rng {
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let roll = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as u8
        };
        std::iter::repeat_with(roll).take(count).collect()
    }
}
