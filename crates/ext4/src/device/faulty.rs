//! Fault injection: a device that fails according to a plan.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::Device;

/// A device operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads a range, in bytes.
    Read(u64, u64),
    /// Writes a range, in bytes.
    Write(u64, u64),
    /// Flushes earlier writes to stable storage.
    Flush,
    /// Discards a range, in bytes.
    Discard(u64, u64),
}

/// A way in which an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation has no effect and returns this error, such as EIO or ENOSPC.
    Error(Errno),
    /// Only this number of bytes of a write reach the device, and EIO is returned. Like `Error(EIO)` for other operations.
    Torn(usize),
    /// The operation has no effect and reports success. Reads return zeros.
    Lost,
}

/// A device that fails the operations that `plan` selects. `plan` receives the number of the operation, from 0, and the
/// operation.
pub struct Faulty<D, P> {
    device: D,
    plan: P,
    count: AtomicU64,
}

impl<D: Device, P: Fn(u64, Operation) -> Option<Fault> + Send + Sync> Faulty<D, P> {
    /// Creates a device that fails as planned.
    pub fn new(device: D, plan: P) -> Self {
        Self { device, plan, count: AtomicU64::new(0) }
    }

    /// Returns the number of operations.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the underlying device.
    pub fn device(&self) -> &D {
        &self.device
    }

    fn fault(&self, operation: Operation) -> Option<Fault> {
        (self.plan)(self.count.fetch_add(1, Ordering::Relaxed), operation)
    }

    /// Executes what the plan permits: `whole`, or `part` for a torn operation.
    fn run(
        &self,
        operation: Operation,
        whole: impl FnOnce() -> io::Result<()>,
        part: impl FnOnce(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.fault(operation) {
            None => whole(),
            Some(Fault::Error(error)) => Err(error.into()),
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Torn(bytes)) => {
                part(bytes)?;
                Err(Errno::IO.into())
            }
        }
    }
}

impl<D: Device, P: Fn(u64, Operation) -> Option<Fault> + Send + Sync> Device for Faulty<D, P> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.fault(Operation::Read(offset, buffer.len() as u64)) {
            None => self.device.read_at(offset, buffer),
            Some(Fault::Lost) => {
                buffer.fill(0);
                Ok(())
            }
            Some(Fault::Error(error)) => Err(error.into()),
            Some(Fault::Torn(_)) => Err(Errno::IO.into()),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let part = |bytes: usize| self.device.write_at(offset, &data[..bytes.min(data.len())]);
        self.run(Operation::Write(offset, data.len() as u64), || self.device.write_at(offset, data), part)
    }

    fn flush(&self) -> io::Result<()> {
        self.run(Operation::Flush, || self.device.flush(), |_| Ok(()))
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.run(Operation::Discard(offset, length), || self.device.discard(offset, length), |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Event, MemoryDevice, Recorder};

    #[test]
    fn fails_as_planned() {
        let plan = |number, operation| match (number, operation) {
            (1, _) => Some(Fault::Error(Errno::NOSPC)),
            (2, _) => Some(Fault::Torn(3)),
            (3, _) => Some(Fault::Lost),
            (_, Operation::Flush | Operation::Discard(..)) => Some(Fault::Torn(0)),
            _ => None,
        };
        let device = Faulty::new(Recorder::new(MemoryDevice::new(vec![0; 100])), plan);
        let errno = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        assert_eq!(errno(device.write_at(0, b"hello")), None);
        assert_eq!(errno(device.write_at(10, b"hello")), Some(28));
        assert_eq!(errno(device.write_at(20, b"hello")), Some(5));
        assert_eq!(errno(device.write_at(30, b"hello")), None);
        assert_eq!(errno(device.flush()), Some(5));
        assert_eq!(errno(device.discard(0, 5)), Some(5));
        assert_eq!(device.count(), 6);
        let mut expected = vec![0; 100];
        expected[..5].copy_from_slice(b"hello");
        expected[20..23].copy_from_slice(b"hel");
        assert_eq!(device.device().device().bytes(), expected);
        // The underlying recorder saw the operations that took effect, and nothing else.
        let events = device.device().events();
        assert!(
            matches!(&*events, [Event::Write { offset: 0, .. }, Event::Write { offset: 20, data }] if **data == *b"hel")
        );
    }
}
