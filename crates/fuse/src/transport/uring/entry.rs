//! One entry of a queue: the memory of one request and of its reply, and the state machine that hands it between the kernel, the
//! receiving thread and the handler.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, OutHeader, UringEntInOut, UringReqHeader, Wire};

use super::memory::Memory;
use super::queue::{Queue, Work};
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

/// One entry of a queue.
pub(crate) struct Entry {
    queue: Arc<Queue>,
    me: Weak<Entry>,
    /// Bits of [`RETURNED`], [`REPLIED`] and [`PARKED`] that are set. The thread that adds the last one has the reply sent.
    steps: AtomicU8,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// `None` while a handler reads the request in place.
    memory: Option<Memory>,
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
        [
            libc::iovec { iov_base: at(0).cast(), iov_len: HEADER_BYTES },
            libc::iovec { iov_base: at(PAYLOAD_OFFSET).cast(), iov_len: self.queue.payload() },
        ]
    }

    /// Takes the request that the kernel has written here.
    ///
    /// # Errors
    /// The request is malformed; it must be answered with EIO all the same.
    pub(crate) fn receive(self: &Arc<Self>) -> Result<(InHeader, Received), Errno> {
        self.steps.store(0, Ordering::Release);
        let mut inner = self.inner.lock();
        let Some(mut memory) = inner.memory.take() else { return Err(Errno::IO) };
        let length = lay_out(&mut memory, self.queue.payload());
        inner.reply = None;
        inner.receiver = Some(thread::current().id());
        let own = own_part(&memory);
        inner.commit_id = own.commit_id;
        let header = InHeader::read_from_bytes(&memory[..InHeader::SIZE]).unwrap_or_default();
        inner.unique = header.unique;
        if let Some((head, length)) = length {
            let (start, entry) = (PAYLOAD_OFFSET - head, self.clone());
            return Ok((header, Received { memory: Some(memory), start, length, entry }));
        }
        inner.memory = Some(memory);
        drop(inner);
        self.step(RETURNED);
        Err(Errno::IO)
    }

    /// Returns the id of the request in flight.
    pub(crate) fn unique(&self) -> u64 {
        self.inner.lock().unique
    }

    /// Lets the receiving thread turn to other requests. Returns `false` where this one is answered already: the thread then
    /// sends the reply.
    pub(crate) fn park(&self) -> bool {
        self.steps.fetch_or(PARKED, Ordering::AcqRel) != RETURNED | REPLIED
    }

    fn step(&self, step: u8) {
        let before = self.steps.fetch_or(step, Ordering::AcqRel);
        let all = RETURNED | REPLIED | PARKED;
        if before != all && before | step == all {
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

    fn answer(
        &self,
        unique: u64,
        make: impl FnOnce(Option<&mut [u8]>) -> Result<usize, Errno>,
    ) -> io::Result<()> {
        {
            let mut inner = self.inner.lock();
            // A handler that replied and panicked afterwards: the entry may already serve another request.
            if inner.unique != unique || inner.reply.is_some() || inner.receiver.is_none() {
                return Err(Errno::NOENT.into());
            }
            let late = inner.receiver != Some(thread::current().id());
            let payload = inner.memory.as_mut().map(|memory| &mut memory[PAYLOAD_OFFSET..]);
            let (error, length) = match make(payload) {
                Ok(length) => (0, length),
                Err(errno) => (-errno.raw_os_error(), 0),
            };
            inner.reply = Some(Reply { error, length, late });
        }
        self.step(REPLIED);
        Ok(())
    }
}

/// Reads the ring's own part of the header buffer.
fn own_part(memory: &Memory) -> UringEntInOut {
    UringEntInOut::read_from_bytes(&memory[RING_HEADER_OFFSET..HEADER_BYTES]).unwrap_or_default()
}

/// Joins a request's three parts to one message, by moving the first two in front of the payload. Returns their length and the
/// length of the message.
fn lay_out(memory: &mut Memory, room: usize) -> Option<(usize, usize)> {
    let header = abi::Request::header(&memory[..InHeader::SIZE]).ok()?;
    let (length, payload) = (header.len as usize, own_part(memory).payload_sz as usize);
    let head = length.checked_sub(payload)?;
    let argument = head.checked_sub(InHeader::SIZE)?;
    if argument > RING_HEADER_OFFSET - OP_IN_OFFSET || payload > room {
        return None;
    }
    let start = PAYLOAD_OFFSET - head;
    memory.copy_within(..InHeader::SIZE, start);
    memory.copy_within(OP_IN_OFFSET..OP_IN_OFFSET + argument, start + InHeader::SIZE);
    Some((head, length))
}

impl Channel for Entry {
    fn reply(&self, unique: u64, result: Result<(), Errno>, parts: &[&[u8]]) -> io::Result<()> {
        self.answer(unique, |payload| {
            result?;
            let length = parts.iter().map(|part| part.len()).sum();
            if length == 0 {
                return Ok(0);
            }
            let room = payload.and_then(|payload| payload.get_mut(..length));
            let Some(mut room) = room else {
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
        self.answer(unique, |payload| {
            let room =
                payload.and_then(|payload| payload.get_mut(..range.length as usize)).ok_or(Errno::IO)?;
            range.read(room)
        })
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
    entry: Arc<Entry>,
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
            self.entry.inner.lock().memory = Some(memory);
            self.entry.step(RETURNED);
        }
    }
}
