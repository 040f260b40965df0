//! Numbers within bytes. Out-of-bounds fields read as zero and ignore writes, because the bytes may be corrupt.

/// Position and format of a number within a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Offset in bytes from the start of the structure.
    pub at: usize,
    /// Width: 1 to 8 bytes.
    pub width: usize,
    /// Big-endian.
    pub big: bool,
}

impl Field {
    pub(crate) fn little(at: usize, width: usize) -> Self {
        Self { at, width, big: false }
    }

    pub(crate) fn big(at: usize, width: usize) -> Self {
        Self { at, width, big: true }
    }

    /// Reads the number.
    pub fn get(self, bytes: &[u8]) -> u64 {
        let Some(bytes) = bytes.get(self.at..self.at.saturating_add(self.width)) else { return 0 };
        let more = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
        if self.big { bytes.iter().fold(0, more) } else { bytes.iter().rev().fold(0, more) }
    }

    /// Writes the number, truncated to the field's width.
    pub fn put(self, bytes: &mut [u8], value: u64) {
        let Some(bytes) = bytes.get_mut(self.at..self.at.saturating_add(self.width)) else { return };
        let value = value.to_le_bytes();
        let last = self.width - 1;
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = value[if self.big { last - place } else { place }];
        }
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> usize {
    Field::little(at, 2).get(bytes) as usize
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    Field::little(at, 4).get(bytes) as u32
}

pub(crate) fn big_u32_at(bytes: &[u8], at: usize) -> u32 {
    Field::big(at, 4).get(bytes) as u32
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    Field::little(at, 4).put(bytes, value.into());
}
