//! A device that remembers what was done to it, to play power cuts.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Device;

/// Something that was done to a device.
#[derive(Debug, Clone)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// All that stands before this lasts, once something stands behind it.
    Flush,
    /// A range may read as anything.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A note of who uses the device: what follows happened after it.
    Mark(u64),
}

/// A device that keeps a log of its writes and flushes, in their order, beside doing them.
///
/// A write stands in the log once it is done, and a flush from when it begins: so each flush covers what stands before it,
/// whatever other threads do meanwhile. The log grows with all that is written; it is for tests.
#[derive(Debug)]
pub struct Recorder<D> {
    device: D,
    events: Mutex<Vec<Event>>,
}

impl<D: Device> Recorder<D> {
    /// A recorder with an empty log.
    pub fn new(device: D) -> Self {
        Self { device, events: Mutex::default() }
    }

    /// Puts a mark into the log.
    pub fn mark(&self, mark: u64) {
        self.events.lock().push(Event::Mark(mark));
    }

    /// What happened until now.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D: Device> Device for Recorder<D> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // One lock over both: writes to the same place stand in the order that has the last word.
        let mut events = self.events.lock();
        self.device.write_at(offset, data)?;
        events.push(Event::Write { offset, data: data.into() });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.events.lock().push(Event::Flush);
        self.device.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut events = self.events.lock();
        self.device.discard(offset, length)?;
        events.push(Event::Discard { offset, length });
        Ok(())
    }
}
