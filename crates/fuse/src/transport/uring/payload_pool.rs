//! The pool of payload buffers that the entries of a queue share (Linux 7.3). The kernel assigns a buffer to each request that
//! has a payload or whose reply may have one, the lowest free one first: memory is used for the requests that are in flight at
//! once, not for all entries that ever were.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::memory::Memory;

/// A pool. It has a buffer for each entry that the queue may get, so that no request waits for one.
#[derive(Debug)]
pub(crate) struct PayloadPool {
    address: u64,
    size: usize,
    /// The buffers that no request uses.
    buffers: Mutex<Vec<Option<Memory>>>,
}

impl PayloadPool {
    /// Makes a pool of `count` buffers of `size` bytes, which must be the size that the kernel computes: see
    /// [`QueueSizes::payload`](super::QueueSizes::payload).
    pub(crate) fn new(size: usize, count: usize) -> io::Result<Arc<Self>> {
        let length = size.checked_mul(count).filter(|length| u32::try_from(*length).is_ok());
        let memory = Memory::new(length.ok_or(io::ErrorKind::OutOfMemory)?)?;
        let address = memory.address(0) as u64;
        let buffers = memory.split(size).into_iter().map(Some).collect();
        Ok(Arc::new(Self { address, size, buffers: Mutex::new(buffers) }))
    }

    /// Returns the address of the first buffer, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of all buffers in bytes.
    pub(crate) fn length(&self) -> u32 {
        (self.size * self.buffers.lock().len()) as u32
    }

    /// Takes the buffer at `offset`, which the kernel has assigned to a request. `None` where there is none, or where it belongs
    /// to another request.
    pub(crate) fn take(self: &Arc<Self>, offset: u32) -> Option<PooledPayload> {
        let offset = offset as usize;
        if offset % self.size != 0 {
            return None;
        }
        let index = offset / self.size;
        let memory = self.buffers.lock().get_mut(index)?.take()?;
        Some(PooledPayload { memory: Some(memory), index, pool: self.clone() })
    }
}

/// A buffer that belongs to one request. It must be dropped before the reply is sent: the kernel then uses it for another one.
#[derive(Debug)]
pub(crate) struct PooledPayload {
    memory: Option<Memory>,
    index: usize,
    pool: Arc<PayloadPool>,
}

impl Deref for PooledPayload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PooledPayload {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for PooledPayload {
    fn drop(&mut self) {
        if let Some(buffer) = self.pool.buffers.lock().get_mut(self.index) {
            *buffer = self.memory.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_belongs_to_one_request_at_a_time() {
        let pool = PayloadPool::new(8192, 3).unwrap();
        assert_eq!(pool.length(), 3 * 8192);
        let mut second = pool.take(8192).unwrap();
        second[0] = 7;
        assert_eq!(second.len(), 8192);
        assert!(pool.take(8192).is_none(), "it is in use");
        let first = pool.take(0).unwrap();
        assert_eq!(first[8191], 0);
        drop(second);
        assert_eq!(pool.take(8192).unwrap()[0], 7);
    }

    #[test]
    fn offsets_that_are_no_buffers_are_refused() {
        let pool = PayloadPool::new(8192, 3).unwrap();
        for offset in [1, 4096, 3 * 8192, u32::MAX] {
            assert!(pool.take(offset).is_none(), "{offset}");
        }
        assert!(PayloadPool::new(1 << 30, 4).is_err(), "longer than the kernel's field");
    }

    #[test]
    fn the_memory_outlives_the_pool_while_a_buffer_is_in_use() {
        let pool = PayloadPool::new(4096, 2).unwrap();
        let mut buffer = pool.take(4096).unwrap();
        drop(pool);
        buffer.fill(3);
        assert!(buffer.iter().all(|byte| *byte == 3));
    }
}
