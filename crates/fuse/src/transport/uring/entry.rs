//! One entry of a queue: the memory of one request and of its reply, and the state machine that hands it between the kernel, the
//! receiving thread and the handler.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::consts::URING_ENT_ZERO_COPY;
use shunt_fuse_abi::{InHeader, Opcode, OutHeader, UringEntInOut, UringReqHeader, Wire};

use super::memory::Memory;
use super::pages::{Pages, PagesPayload};
use super::payload_pool::{PayloadPool, PooledPayload};
use super::queue::{Queue, Work};
use super::ring::{Direction, Ring};
use crate::transport::channel::FileRange;
use crate::transport::{Afterwards, Channel};

/// Offset in the kernel's header buffer of the first argument of a request.
const OP_IN_OFFSET: usize = std::mem::offset_of!(UringReqHeader, op_in);
const RING_HEADER_OFFSET: usize = std::mem::offset_of!(UringReqHeader, ring_ent_in_out);
const HEADER_BYTES: usize = size_of::<UringReqHeader>();
/// Offset of the payload: on a page of its own, with room before it for the two parts of a request's head, so that head and
/// payload can be joined to one message.
const PAYLOAD_OFFSET: usize = 4096;

/// The handler no longer uses the request's bytes.
const RETURNED: u8 = 1;
/// The reply has been written.
const REPLIED: u8 = 2;
/// The thread that received the request no longer waits for the reply.
const PARKED: u8 = 4;
/// The request is a zero-copy request, whose receiver waits for the reply.
const HELD: u8 = 8;
/// The reply can be sent.
const ANSWERED: u8 = RETURNED | REPLIED;

/// One entry of a queue.
pub(crate) struct Entry {
    queue: Arc<Queue>,
    me: Weak<Entry>,
    /// Bits of [`RETURNED`], [`REPLIED`], [`PARKED`] and [`HELD`] that are set. The thread that adds the last one of the first
    /// three has the reply sent.
    steps: AtomicU8,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The header buffer and the room for a message. `None` while a handler reads the request in place.
    memory: Option<Memory>,
    /// The pool's buffer of the request in flight; taken when it is first needed, because not every request has one.
    payload: Option<PooledPayload>,
    /// The offset of that buffer.
    payload_offset: u32,
    /// The registered pages of a zero-copy request.
    pages: Option<Arc<Pages>>,
    /// The request in flight.
    unique: u64,
    commit_id: u64,
    receiver: Option<ThreadId>,
    reply: Option<Reply>,
    afterwards: Vec<Afterwards>,
}

struct Reply {
    error: i32,
    /// Length of the payload in bytes.
    length: usize,
    /// The reply was made by another thread than the one that received the request.
    late: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("queue", &self.queue.id()).finish_non_exhaustive()
    }
}

/// The parameters for sending a reply.
pub(crate) struct Commit {
    pub(crate) commit_id: u64,
    /// Further steps may be necessary: submit, call [`Entry::sent`], and only then wait.
    pub(crate) followed: bool,
}

impl Entry {
    pub(crate) fn new(queue: Arc<Queue>) -> io::Result<Arc<Self>> {
        let memory = Memory::new(PAYLOAD_OFFSET + queue.payload())?;
        Ok(Arc::new_cyclic(|me| Self {
            queue,
            me: me.clone(),
            steps: AtomicU8::new(0),
            inner: Mutex::new(Inner { memory: Some(memory), ..Default::default() }),
        }))
    }

    /// Returns header and payload, for the command that registers the entry.
    pub(crate) fn vectors(&self) -> [libc::iovec; 2] {
        let inner = self.inner.lock();
        let at = |offset| inner.memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.address(offset));
        let payload = match self.queue.pool() {
            // The kernel assigns a buffer of the pool to each request.
            Some(_) => libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            None => libc::iovec { iov_base: at(PAYLOAD_OFFSET).cast(), iov_len: self.queue.payload() },
        };
        [libc::iovec { iov_base: at(0).cast(), iov_len: HEADER_BYTES }, payload]
    }

    /// Takes the request that the kernel has written here. `ring` received it. The data of a zero-copy WRITE is separate.
    ///
    /// # Errors
    /// The request is malformed; it must be answered with EIO all the same.
    pub(crate) fn receive(
        self: &Arc<Self>,
        ring: &Arc<Mutex<Ring>>,
    ) -> Result<(InHeader, Received, Option<PagesPayload>), Errno> {
        let mut inner = self.inner.lock();
        let Some(mut memory) = inner.memory.take() else { return Err(Errno::IO) };
        let own = own_part(&memory);
        let header = InHeader::read_from_bytes(&memory[..InHeader::SIZE]).unwrap_or_default();
        inner.reply = None;
        inner.receiver = Some(thread::current().id());
        inner.commit_id = own.commit_id;
        inner.unique = header.unique;
        inner.payload_offset = own.offset;
        let detour = self.queue.detour().filter(|_| own.flags & URING_ENT_ZERO_COPY != 0);
        inner.pages = detour.map(|detour| {
            let is_write = header.opcode == Opcode::Write.as_raw();
            let direction = if is_write { Direction::IntoFile } else { Direction::FromFile };
            Pages::new(ring.clone(), direction, detour.clone())
        });
        let held = if inner.pages.is_some() { HELD } else { 0 };
        self.steps.store(held, Ordering::Release);
        let taken = lay_out(&mut memory, &own, self.queue.payload()).and_then(|layout| {
            let parts = inner.take_payload(&mut memory, &header, &layout, self.queue.pool())?;
            Some((layout, parts))
        });
        let Some((layout, (data, payload))) = taken else {
            inner.memory = Some(memory);
            drop(inner);
            self.step(RETURNED);
            return Err(Errno::IO);
        };
        let joined = if data.is_some() || payload.is_some() { 0 } else { layout.payload };
        let received = Received {
            memory: Some(memory),
            start: PAYLOAD_OFFSET - layout.head,
            length: layout.head + joined,
            data: data.map(|buffer| (buffer, layout.payload)),
            is_zero_copy: held == HELD,
            entry: self.clone(),
        };
        Ok((header, received, payload))
    }

    /// Returns the id of the request in flight.
    pub(crate) fn unique(&self) -> u64 {
        self.inner.lock().unique
    }

    /// Returns the registered pages of a zero-copy request. Its receiver must send the reply, because the pages belong to its ring.
    pub(crate) fn pages(&self) -> Option<Arc<Pages>> {
        self.inner.lock().pages.clone()
    }

    /// Reports whether the reply of a zero-copy request can be sent.
    pub(crate) fn is_answered(&self) -> bool {
        self.steps.load(Ordering::Acquire) & ANSWERED == ANSWERED
    }

    /// Lets the receiving thread turn to other requests. Returns `false` where this one is answered already: the thread then
    /// sends the reply.
    pub(crate) fn park(&self) -> bool {
        self.steps.fetch_or(PARKED, Ordering::AcqRel) != ANSWERED
    }

    fn step(&self, step: u8) {
        let before = self.steps.fetch_or(step, Ordering::AcqRel);
        let after = before | step;
        if before == after || after & ANSWERED != ANSWERED {
            return;
        }
        if after & HELD != 0 {
            if let Some(pages) = self.pages() {
                pages.wake();
            }
        } else if after & PARKED != 0 {
            if let Some(me) = self.me.upgrade() {
                self.queue.hand_over(Work::Commit(me));
            }
        }
    }

    /// Writes the header of the reply.
    pub(crate) fn commit(&self) -> Commit {
        let mut inner = self.inner.lock();
        let (error, length, late) =
            inner.reply.as_ref().map_or((-libc::EIO, 0, true), |r| (r.error, r.length, r.late));
        let header = OutHeader { len: (OutHeader::SIZE + length) as u32, error, unique: inner.unique };
        let own =
            UringEntInOut { commit_id: inner.commit_id, payload_sz: length as u32, ..Default::default() };
        if let Some(memory) = &mut inner.memory {
            memory[..OutHeader::SIZE].copy_from_slice(header.as_bytes());
            memory[RING_HEADER_OFFSET..HEADER_BYTES].copy_from_slice(own.as_bytes());
        }
        // From here on the memory is the kernel's: a second reply finds no request.
        inner.receiver = None;
        inner.payload = None;
        if let Some(pages) = inner.pages.take() {
            pages.close();
        }
        Commit { commit_id: inner.commit_id, followed: late || !inner.afterwards.is_empty() }
    }

    /// Runs the callbacks that wait until the reply has reached the kernel.
    pub(crate) fn sent(&self) {
        let afterwards = {
            let mut inner = self.inner.lock();
            inner.reply = None;
            std::mem::take(&mut inner.afterwards)
        };
        afterwards.into_iter().for_each(|call| call());
    }

    fn answer(&self, unique: u64, make: impl FnOnce(&mut Inner) -> Result<usize, Errno>) -> io::Result<()> {
        {
            let mut inner = self.inner.lock();
            // A handler that replied and panicked afterwards: the entry may already serve another request.
            if inner.unique != unique || inner.reply.is_some() || inner.receiver.is_none() {
                return Err(Errno::NOENT.into());
            }
            let late = inner.receiver != Some(thread::current().id());
            let (error, length) = match make(&mut inner) {
                Ok(length) => (0, length),
                Err(errno) => (-errno.raw_os_error(), 0),
            };
            inner.reply = Some(Reply { error, length, late });
        }
        self.step(REPLIED);
        Ok(())
    }

    /// Returns the pages that the reply to a zero-copy READ fills.
    fn pages_to_fill(&self, unique: u64) -> Option<Arc<Pages>> {
        let inner = self.inner.lock();
        let pages = inner.pages.as_ref().filter(|pages| pages.direction() == Direction::FromFile);
        pages.filter(|_| inner.unique == unique).cloned()
    }
}

impl Inner {
    /// Returns `length` bytes of the payload buffer, for the reply.
    fn room(&mut self, queue: &Queue, length: usize) -> Option<&mut [u8]> {
        let Some(pool) = queue.pool() else {
            return self.memory.as_mut()?.get_mut(PAYLOAD_OFFSET..)?.get_mut(..length);
        };
        if self.payload.is_none() {
            self.payload = pool.take(self.payload_offset);
        }
        self.payload.as_mut()?.get_mut(..length)
    }

    /// Takes a request's payload from the pool. The data of a WRITE stays in its buffer, or in the pages of a zero-copy request;
    /// anything else is short, and joined to the head in `memory`.
    fn take_payload(
        &mut self,
        memory: &mut Memory,
        header: &InHeader,
        layout: &Layout,
        pool: Option<&Arc<PayloadPool>>,
    ) -> Option<(Option<PooledPayload>, Option<PagesPayload>)> {
        let is_write = header.opcode == Opcode::Write.as_raw();
        if let Some(pages) = self.pages.clone().filter(|_| is_write) {
            return Some((None, Some(PagesPayload { pages, length: layout.payload })));
        }
        let Some(pool) = pool.filter(|_| layout.payload > 0) else { return Some((None, None)) };
        let buffer = pool.take(self.payload_offset)?;
        if is_write {
            return Some((Some(buffer), None));
        }
        memory[PAYLOAD_OFFSET..][..layout.payload].copy_from_slice(&buffer[..layout.payload]);
        self.payload = Some(buffer);
        Some((None, None))
    }
}

/// Reads the ring's own part of the header buffer.
fn own_part(memory: &Memory) -> UringEntInOut {
    UringEntInOut::read_from_bytes(&memory[RING_HEADER_OFFSET..HEADER_BYTES]).unwrap_or_default()
}

/// The lengths of a request's parts in bytes.
struct Layout {
    /// The header and the first argument.
    head: usize,
    /// Everything else.
    payload: usize,
}

/// Moves a request's header and first argument in front of the payload, so that they are one message with it.
fn lay_out(memory: &mut Memory, own: &UringEntInOut, room: usize) -> Option<Layout> {
    let header = abi::Request::header(&memory[..InHeader::SIZE]).ok()?;
    let payload = own.payload_sz as usize;
    let head = (header.len as usize).checked_sub(payload)?;
    let argument = head.checked_sub(InHeader::SIZE)?;
    if argument > RING_HEADER_OFFSET - OP_IN_OFFSET || payload > room {
        return None;
    }
    let start = PAYLOAD_OFFSET - head;
    memory.copy_within(..InHeader::SIZE, start);
    memory.copy_within(OP_IN_OFFSET..OP_IN_OFFSET + argument, start + InHeader::SIZE);
    Some(Layout { head, payload })
}

impl Channel for Entry {
    fn reply(&self, unique: u64, result: Result<(), Errno>, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum();
        if let Some(pages) = self.pages_to_fill(unique).filter(|_| length > 0 && result.is_ok()) {
            let filled = pages.fill(0, parts);
            return self.answer(unique, |_| filled);
        }
        self.answer(unique, |inner| {
            result?;
            if length == 0 {
                return Ok(0);
            }
            let Some(mut room) = inner.room(&self.queue, length) else {
                tracing::error!(unique, length, "reply exceeds its ring entry: replying EIO");
                return Err(Errno::IO);
            };
            for part in parts {
                let (here, rest) = room.split_at_mut(part.len());
                here.copy_from_slice(part);
                room = rest;
            }
            Ok(length)
        })
    }

    fn reply_file(&self, unique: u64, range: &FileRange) -> io::Result<()> {
        let length = range.length as usize;
        if let Some(pages) = self.pages_to_fill(unique) {
            let filled = pages.transfer(range.file.as_fd(), range.offset, 0..length);
            return self.answer(unique, |_| filled);
        }
        self.answer(unique, |inner| range.read(inner.room(&self.queue, length).ok_or(Errno::IO)?))
    }

    fn after_reply(&self, unique: u64, call: Afterwards) {
        {
            let mut inner = self.inner.lock();
            if inner.unique == unique && inner.reply.is_some() {
                inner.afterwards.push(call);
                return;
            }
        }
        call();
    }
}

/// A request in the memory of its entry. Dropping it returns the memory, for the reply.
#[derive(Debug)]
pub(crate) struct Received {
    memory: Option<Memory>,
    start: usize,
    length: usize,
    /// The data of a WRITE in a buffer of the pool, and its length.
    data: Option<(PooledPayload, usize)>,
    is_zero_copy: bool,
    entry: Arc<Entry>,
}

impl Received {
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Returns the data of a WRITE that is not part of the message.
    pub(crate) fn data(&self) -> Option<&[u8]> {
        self.data.as_ref().map(|(buffer, length)| &buffer[..*length])
    }
}

impl Deref for Received {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[self.start..self.start + self.length])
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            {
                let mut inner = self.entry.inner.lock();
                inner.memory = Some(memory);
                if let Some((buffer, _)) = self.data.take() {
                    inner.payload = Some(buffer);
                }
            }
            self.entry.step(RETURNED);
        }
    }
}
