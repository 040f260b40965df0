//! Device that records its operations, to simulate power failures.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Device;

/// A recorded device operation.
#[derive(Debug, Clone)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// Data written.
        data: Arc<[u8]>,
    },
    /// A flush: earlier events are durable if a later event is recorded.
    Flush,
    /// A range was discarded; its content is undefined.
    Discard {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A marker set by the user of the device: later events happened after it.
    Mark(u64),
}

/// A device that logs its writes and flushes in order, in addition to executing them.
///
/// A write is logged after it is done, a flush before it begins. Each flush therefore covers the events logged before it,
/// regardless of concurrent threads. The log holds all written data; it is meant for tests.
#[derive(Debug)]
pub struct Recorder<D> {
    device: D,
    events: Mutex<Vec<Event>>,
}

impl<D: Device> Recorder<D> {
    /// Creates a recorder with an empty log.
    pub fn new(device: D) -> Self {
        Self { device, events: Mutex::default() }
    }

    /// Adds a marker to the log.
    pub fn mark(&self, mark: u64) {
        self.events.lock().push(Event::Mark(mark));
    }

    /// Returns the recorded events.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// Returns the underlying device.
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
        // One lock covers both steps, so that writes to the same location are logged in the order in which they take effect.
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
