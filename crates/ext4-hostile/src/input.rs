//! Decodes fuzz input into decisions. Zeros follow the end of the bytes, so that every input is valid.

/// The remaining bytes of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Takes the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Takes the next two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Takes the next four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Takes the next `limit` bytes, or all that are left.
    pub fn take(&mut self, limit: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(limit.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Picks an element of a slice; `None` if it is empty.
    pub fn pick<'b, T>(&mut self, among: &'b [T]) -> Option<&'b T> {
        let place = usize::from(self.short());
        among.get(place.checked_rem(among.len())?)
    }

    /// Reports whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
