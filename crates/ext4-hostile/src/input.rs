//! Bytes as decisions. Where they end, zeros follow: every input is a valid one.

/// What is left of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// The next two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// The next so many bytes, or those that are there.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// One of several.
    pub fn pick<'b, T>(&mut self, among: &'b [T]) -> Option<&'b T> {
        let place = usize::from(self.short());
        among.get(place.checked_rem(among.len())?)
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
