//! A pool of reusable buffers for requests.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of idle buffers that are kept; further ones are freed after use.
const MAX_POOLED_BUFFERS: usize = 8;

/// A pool of buffers of one size.
#[derive(Debug)]
pub(crate) struct BufferPool {
    size: usize,
    /// All pages of a buffer are populated when it is made.
    present: bool,
    idle: Mutex<Vec<Box<[u8]>>>,
}

impl BufferPool {
    /// Makes a pool. `present`: a reader that is killed while the kernel copies a request into a page that is not populated makes
    /// that request fail permanently. Where another server is to take over, buffers are therefore populated in advance.
    pub(crate) fn new(size: usize, present: bool) -> Arc<Self> {
        Arc::new(Self { size, present, idle: Mutex::default() })
    }

    fn make(&self) -> Box<[u8]> {
        // Zeroed memory that is never written stays unallocated: a large buffer for small requests costs a page.
        let mut bytes = vec![0; self.size].into_boxed_slice();
        if self.present {
            bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            if let Some(last) = bytes.last_mut() {
                *last = 1;
            }
        }
        bytes
    }

    pub(crate) fn take(self: &Arc<Self>) -> Buffer {
        let idle = self.idle.lock().pop();
        let bytes = idle.unwrap_or_else(|| self.make());
        Buffer { bytes, pool: self.clone() }
    }
}

/// A borrowed buffer; dropping it returns it to the pool.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    pool: Arc<BufferPool>,
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock();
        if idle.len() < MAX_POOLED_BUFFERS {
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}
