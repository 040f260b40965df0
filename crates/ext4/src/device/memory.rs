//! Device in memory.

use std::io;

use parking_lot::RwLock;

use super::{Device, within};

/// An image in memory, for tests and for images that are not in a file.
#[derive(Debug)]
pub struct MemoryDevice(RwLock<Vec<u8>>);

impl MemoryDevice {
    /// Creates a device with these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(RwLock::new(bytes))
    }

    /// Returns a copy of the current content.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.read().clone()
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.0.read().len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read();
        within(bytes.len() as u64, offset, buffer.len())?;
        let start = offset as usize;
        buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.write();
        within(bytes.len() as u64, offset, data.len())?;
        let start = offset as usize;
        bytes[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut bytes = self.0.write();
        within(bytes.len() as u64, offset, length as usize)?;
        bytes[offset as usize..][..length as usize].fill(0);
        Ok(())
    }
}
