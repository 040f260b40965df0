//! One request of a guest, and its reply.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, Opcode, OutHeader, WriteIn};
use zerocopy::IntoBytes;

use super::chain::Chain;
use super::queue::Queue;
use crate::transport::Channel;
use crate::transport::buffer::BufferPool;
use crate::transport::channel::FileRange;
use crate::transport::message::{Bytes, Message};
use crate::transport::payload::Payload;

/// What comes before the data of a WRITE.
const WRITE_HEAD: usize = InHeader::SIZE + size_of::<WriteIn>();

/// Bytes of the largest request, the data of a WRITE not counted: attributes of 64 KiB, and names.
pub(crate) const LARGEST: usize = 128 << 10;

/// One request, and the way back to the guest that sent it. Whatever becomes of the request, the guest gets its
/// descriptors back: dropping this unanswered gives them back without a reply, as FORGET wants it.
#[derive(Debug)]
pub(crate) struct Exchange {
    queue: Arc<Queue>,
    chain: Chain,
    answered: AtomicBool,
    numbers: Arc<Numbers>,
    /// Its own, once it is known and nobody else's.
    number: OnceLock<u64>,
}

/// The numbers of a guest's requests under way. Interrupts name requests by them, so none may be there twice.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<HashSet<u64>>);

impl Exchange {
    pub(super) fn new(queue: Arc<Queue>, chain: Chain, numbers: Arc<Numbers>) -> Arc<Self> {
        Arc::new(Self { queue, chain, answered: AtomicBool::new(false), numbers, number: OnceLock::new() })
    }

    /// The beginning of the request's header; the guest may still change it.
    fn look<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.chain.request.read(&self.chain.memory, offset, &mut bytes) == N).then_some(bytes)
    }

    /// What seems to be asked.
    pub(super) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_raw(u32::from_ne_bytes(self.look(std::mem::offset_of!(InHeader, opcode))?))
    }

    /// The number that the request seems to have.
    pub(super) fn unique(&self) -> u64 {
        self.look(std::mem::offset_of!(InHeader, unique)).map_or(0, u64::from_ne_bytes)
    }

    /// Copies the request out of the guest's memory. The data of a WRITE stays there, for the kernel to copy.
    ///
    /// # Errors
    /// The request is shorter or longer than it says, or than any can be; or has the number of another one.
    pub(super) fn receive(
        self: &Arc<Self>,
        buffers: &Arc<BufferPool>,
        max_write: u32,
    ) -> Result<(InHeader, Message), Errno> {
        let Chain { memory, request, .. } = &self.chain;
        let mut buffer = buffers.take();
        let head = request.read(memory, 0, &mut buffer[..WRITE_HEAD]);
        let header = abi::Request::header(&buffer[..head]).map_err(|_| Errno::INVAL)?;
        if header.len as usize != request.len() {
            return Err(Errno::INVAL);
        }
        if Opcode::from_raw(header.opcode).is_none_or(Opcode::has_reply) {
            if !self.numbers.0.lock().insert(header.unique) {
                return Err(Errno::EXIST);
            }
            self.number.set(header.unique).ok();
        }
        if header.opcode == Opcode::Write.as_raw() && head == WRITE_HEAD && header.total_extlen == 0 {
            let length = request.len() - WRITE_HEAD;
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

    /// Says once that the reply is there, of so many bytes.
    fn finish(&self, make: impl FnOnce() -> usize) -> io::Result<()> {
        if self.answered.swap(true, Ordering::AcqRel) {
            return Err(Errno::NOENT.into());
        }
        // The chain is 4 GiB at most.
        let length = make() as u32;
        if let Some(number) = self.number.get() {
            self.numbers.0.lock().remove(number);
        }
        self.queue.give_back(self.chain.head, length);
        Ok(())
    }

    /// Writes the head of a reply whose body, if any, is there.
    fn write_head(&self, unique: u64, error: i32, body: usize) -> usize {
        let length = OutHeader::SIZE + body;
        let header = OutHeader { len: length as u32, error, unique };
        match self.chain.reply.write(&self.chain.memory, 0, header.as_bytes()) {
            OutHeader::SIZE => length,
            // Without room for a head there is no reply.
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
                tracing::warn!(unique, body, "a reply finds no room in its descriptors: EIO");
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

/// The data of a WRITE, in the guest's memory.
#[derive(Debug)]
pub(crate) struct GuestPayload {
    exchange: Arc<Exchange>,
    length: usize,
}

impl GuestPayload {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// A copy.
    ///
    /// # Errors
    /// EFAULT where it is not all there.
    pub(crate) fn to_vec(&self) -> Result<Vec<u8>, Errno> {
        let Chain { memory, request, .. } = &self.exchange.chain;
        let mut bytes = vec![0; self.length];
        match request.read(memory, WRITE_HEAD, &mut bytes) == self.length {
            true => Ok(bytes),
            false => Err(Errno::FAULT),
        }
    }

    /// Writes all of it to a file. Tells how much was written: less only where an error followed some progress.
    ///
    /// # Errors
    /// Those of `pwritev(2)` where nothing was written.
    pub(crate) fn write_to(&self, file: BorrowedFd<'_>, offset: u64) -> Result<usize, Errno> {
        let Chain { memory, request, .. } = &self.exchange.chain;
        request.write_file(memory, WRITE_HEAD, self.length, file, offset)
    }
}
