//! A buffer that O_DIRECT accepts.

/// Alignment that every device accepts, in bytes.
const ALIGNMENT: usize = 4096;

/// Bytes at an aligned address. They do not compress.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub fn new(length: usize) -> Self {
        let mut bytes = vec![0; length + ALIGNMENT];
        rand::fill(&mut bytes[..]);
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { bytes, start, length }
    }

    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn buffers_are_aligned() {
        for length in [4096, 8192, 1 << 20] {
            let mut buffer = super::Buffer::new(length);
            assert_eq!((buffer.get().len(), buffer.get().as_ptr() as usize % 4096), (length, 0));
            buffer.get_mut().fill(1);
        }
    }
}
