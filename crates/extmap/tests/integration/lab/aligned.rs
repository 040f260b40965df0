//! A buffer for direct I/O.

use std::ops::{Deref, DerefMut};

use super::disk::BLOCK;

/// Bytes that start at an address which is a multiple of [`BLOCK`].
pub struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub fn new(length: usize, byte: u8) -> Self {
        let room = vec![byte; length + BLOCK as usize];
        let start = room.as_ptr().align_offset(BLOCK as usize);
        Self { room, start }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[self.start..][..self.room.len() - BLOCK as usize]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.room.len() - BLOCK as usize;
        &mut self.room[self.start..][..length]
    }
}
