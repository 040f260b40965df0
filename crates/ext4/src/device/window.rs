//! A range of a device: a partition, or an image that starts at an offset.

use std::io;

use super::{Device, within};

/// A range of `size` bytes of a device, from `start` on.
#[derive(Debug)]
pub struct Window<D> {
    device: D,
    start: u64,
    size: u64,
}

impl<D: Device> Window<D> {
    /// Creates a window of `size` bytes from `start`; `None` if it exceeds the device.
    pub fn new(device: D, start: u64, size: u64) -> Option<Self> {
        (start.checked_add(size)? <= device.size()).then_some(Self { device, start, size })
    }
}

impl<D: Device> Device for Window<D> {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        within(self.size, offset, buffer.len())?;
        self.device.read_at(self.start + offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        within(self.size, offset, data.len())?;
        self.device.write_at(self.start + offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = length.min(self.size.saturating_sub(offset));
        self.device.discard(self.start + offset, length)
    }

    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        let inside = offset.checked_add(length)? <= self.size;
        self.device.backing_offset(self.start + offset, length).filter(|_| inside)
    }

    fn writable_offset(&self, offset: u64, length: u64) -> Option<u64> {
        let inside = offset.checked_add(length)? <= self.size;
        self.device.writable_offset(self.start + offset, length).filter(|_| inside)
    }
}
