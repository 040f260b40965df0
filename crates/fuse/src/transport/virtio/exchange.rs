//! One request of a guest and its reply channel. The guest's descriptors are returned exactly once, with or without a reply.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::consts::UNIQUE_RESEND;
use shunt_fuse_abi::{InHeader, Opcode, OutHeader, Wire, WriteIn};

use super::chain::Chain;
use super::crash_point::{Step, crash_point};
use super::queue::Queue;
use crate::transport::Channel;
use crate::transport::buffer::BufferPool;
use crate::transport::channel::FileRange;
use crate::transport::message::{Bytes, Message};
use crate::transport::payload::Payload;

/// Size of a WRITE request without its data.
const WRITE_HEAD_BYTES: usize = InHeader::SIZE + size_of::<WriteIn>();

/// Maximum size of a request in bytes, without the data of a WRITE: attributes of 64 KiB, and names.
pub(crate) const MAX_REQUEST_BYTES: usize = 128 << 10;

/// A request, and the channel to the guest that sent it. The guest gets its descriptors back in any case: dropping this without a
/// reply returns them without one, as FORGET requires.
#[derive(Debug)]
pub(crate) struct Exchange {
    queue: Arc<Queue>,
    chain: Chain,
    answered: AtomicBool,
    numbers: Arc<InflightIds>,
    /// The request's id, once it was read and found to be unique.
    number: OnceLock<u64>,
}

/// The ids of a guest's requests in flight. Interrupts refer to requests by id, so ids must be unique.
#[derive(Debug, Default)]
pub(super) struct InflightIds(Mutex<HashSet<u64>>);

impl Exchange {
    pub(super) fn new(queue: Arc<Queue>, chain: Chain, numbers: Arc<InflightIds>) -> Arc<Self> {
        Arc::new(Self { queue, chain, answered: AtomicBool::new(false), numbers, number: OnceLock::new() })
    }

    /// Reads a part of the request's header; the guest may still change it.
    fn read_header_part<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.chain.request.read(&self.chain.memory, offset, &mut bytes) == N).then_some(bytes)
    }

    /// Returns the opcode of the request, unverified.
    pub(super) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_raw(u32::from_ne_bytes(self.read_header_part(std::mem::offset_of!(InHeader, opcode))?))
    }

    /// Returns the id of the request, unverified.
    pub(super) fn unique(&self) -> u64 {
        self.read_header_part(std::mem::offset_of!(InHeader, unique)).map_or(0, u64::from_ne_bytes)
    }

    /// Copies the request out of the guest's memory. The data of a WRITE stays there, for the kernel to copy.
    ///
    /// # Errors
    /// The request's length is inconsistent or exceeds the maximum; or its id is in use by another request.
    pub(super) fn receive(
        self: &Arc<Self>,
        buffers: &Arc<BufferPool>,
        max_write: u32,
    ) -> Result<(InHeader, Message), Errno> {
        let Chain { memory, request, .. } = &self.chain;
        let mut buffer = buffers.take();
        let head = request.read(memory, 0, &mut buffer[..WRITE_HEAD_BYTES]);
        let mut header = abi::Request::header(&buffer[..head]).map_err(|_| Errno::INVAL)?;
        // No guest's kernel resends a request itself.
        if header.len as usize != request.len() || header.is_resend() {
            return Err(Errno::INVAL);
        }
        let unique = header.unique;
        if self.chain.is_resubmitted {
            header.unique |= UNIQUE_RESEND;
            buffer[..InHeader::SIZE].copy_from_slice(header.as_bytes());
        }
        if Opcode::from_raw(header.opcode).is_none_or(Opcode::has_reply) {
            if !self.numbers.0.lock().insert(unique) {
                return Err(Errno::EXIST);
            }
            self.number.set(unique).ok();
        }
        if header.opcode == Opcode::Write.as_raw() && head == WRITE_HEAD_BYTES && header.total_extlen == 0 {
            let length = request.len() - WRITE_HEAD_BYTES;
            if length > max_write as usize {
                return Err(Errno::INVAL);
            }
            let data = GuestPayload { exchange: self.clone(), length };
            let bytes = Bytes::Pooled { buffer, length: head };
            return Ok((header, Message { bytes, payload: Some(Payload::Guest(data)) }));
        }
        let rest = buffer.get_mut(head..request.len()).ok_or(Errno::TOOBIG)?;
        if request.read(memory, head, rest) != rest.len() {
            return Err(Errno::FAULT);
        }
        let bytes = Bytes::Pooled { buffer, length: request.len() };
        Ok((header, Message { bytes, payload: None }))
    }

    /// Completes the exchange, once: `make` writes the reply and returns its length.
    fn finish(&self, make: impl FnOnce() -> usize) -> io::Result<()> {
        if self.answered.swap(true, Ordering::AcqRel) {
            return Err(Errno::NOENT.into());
        }
        crash_point(Step::Executed);
        // The chain is 4 GiB at most.
        let length = make() as u32;
        if let Some(number) = self.number.get() {
            self.numbers.0.lock().remove(number);
        }
        self.queue.return_chain(self.chain.head, length);
        Ok(())
    }

    /// Writes the header of a reply whose body, if any, has been written.
    fn write_head(&self, unique: u64, error: i32, body: usize) -> usize {
        let length = OutHeader::SIZE + body;
        let header = OutHeader { len: length as u32, error, unique: unique & !UNIQUE_RESEND };
        match self.chain.reply.write(&self.chain.memory, 0, header.as_bytes()) {
            OutHeader::SIZE => length,
            // Without room for a header there is no reply.
            _ => 0,
        }
    }

    fn room(&self) -> usize {
        self.chain.reply.len().saturating_sub(OutHeader::SIZE)
    }

    fn write_error(&self, unique: u64, errno: Errno) -> usize {
        self.write_head(unique, -errno.raw_os_error(), 0)
    }
}

impl Channel for Exchange {
    fn reply(&self, unique: u64, result: Result<(), Errno>, parts: &[&[u8]]) -> io::Result<()> {
        self.finish(|| {
            if let Err(errno) = result {
                return self.write_error(unique, errno);
            }
            let body = parts.iter().map(|part| part.len()).sum();
            if body > self.room() {
                tracing::warn!(unique, body, "reply exceeds its descriptors: replying EIO");
                return self.write_error(unique, Errno::IO);
            }
            let mut position = OutHeader::SIZE;
            for part in parts {
                position += self.chain.reply.write(&self.chain.memory, position, part);
            }
            self.write_head(unique, 0, body)
        })
    }

    fn reply_file(&self, unique: u64, range: &FileRange) -> io::Result<()> {
        self.finish(|| {
            let length = (range.length as usize).min(self.room());
            let Chain { memory, reply, .. } = &self.chain;
            match reply.read_file(memory, OutHeader::SIZE, length, range.file.as_fd(), range.offset) {
                Ok(done) => self.write_head(unique, 0, done),
                Err(errno) => self.write_error(unique, errno),
            }
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.finish(|| 0).ok();
    }
}

/// The payload of a WRITE, in the guest's memory.
#[derive(Debug)]
pub(crate) struct GuestPayload {
    exchange: Arc<Exchange>,
    length: usize,
}

impl GuestPayload {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Copies the payload.
    ///
    /// # Errors
    /// EFAULT where it is not completely mapped.
    pub(crate) fn to_vec(&self) -> Result<Vec<u8>, Errno> {
        let Chain { memory, request, .. } = &self.exchange.chain;
        let mut bytes = vec![0; self.length];
        match request.read(memory, WRITE_HEAD_BYTES, &mut bytes) == self.length {
            true => Ok(bytes),
            false => Err(Errno::FAULT),
        }
    }

    /// Writes the whole payload to a file. Returns the number of bytes written: fewer only where an error followed some progress.
    ///
    /// # Errors
    /// The error of `pwritev(2)` where nothing was written.
    pub(crate) fn write_to(&self, file: BorrowedFd<'_>, offset: u64) -> Result<usize, Errno> {
        let Chain { memory, request, .. } = &self.exchange.chain;
        request.write_file(memory, WRITE_HEAD_BYTES, self.length, file, offset)
    }
}
