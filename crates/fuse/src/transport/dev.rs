//! The `/dev/fuse` transport. Requests are copied into pooled buffers; after a large WRITE the next message is spliced into a
//! pipe instead, where the data of a WRITE stays. Replies with 64 KiB of file data or more are spliced, all others are copied.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, Opcode, OutHeader, Wire, WriteIn};

use super::Channel;
use super::buffer::BufferPool;
use super::device::Device;
use super::pipe::PipePool;
use crate::transport::channel::FileRange;
use crate::transport::message::{Bytes, Message};
use crate::transport::payload::{Payload, SplicedPayload};

/// Minimum size of a spliced reply: below it a copy is cheaper than moving pages through a pipe.
const MIN_SPLICED_REPLY_BYTES: u32 = 64 << 10;
/// A WRITE of at least this size makes the thread receive the next message by splice.
const MIN_SPLICED_WRITE_BYTES: usize = 128 << 10;
/// Size of a WRITE request without its data.
const WRITE_HEAD_BYTES: usize = InHeader::SIZE + size_of::<WriteIn>();

/// Receives requests from one descriptor.
pub(crate) struct Receiver {
    device: Arc<Device>,
    buffers: Arc<BufferPool>,
    pipes: Option<Arc<PipePool>>,
    max_write: usize,
    /// The last message was a large WRITE: the next one likely is too.
    expect_large_write: bool,
}

impl Receiver {
    pub(crate) fn new(
        device: Arc<Device>,
        buffers: Arc<BufferPool>,
        pipes: Option<Arc<PipePool>>,
        max_write: u32,
    ) -> Self {
        Self { device, buffers, pipes, max_write: max_write as usize, expect_large_write: false }
    }

    pub(crate) fn receive(&mut self) -> Result<(InHeader, Message), Errno> {
        let (header, message) = match &self.pipes {
            Some(pipes) if self.expect_large_write => self.receive_by_splice(pipes)?,
            _ => self.receive_by_copy()?,
        };
        self.expect_large_write =
            header.opcode == Opcode::Write.as_raw() && header.len as usize >= MIN_SPLICED_WRITE_BYTES;
        Ok((header, message))
    }

    fn receive_by_copy(&self) -> Result<(InHeader, Message), Errno> {
        let mut buffer = self.buffers.take();
        let length = self.device.receive(&mut buffer)?;
        let header = abi::Request::header(&buffer[..length]).map_err(|_| Errno::AGAIN)?;
        Ok((header, Message { bytes: Bytes::Pooled { buffer, length }, payload: None }))
    }

    /// Receives a message through a pipe. The data of a WRITE stays there; everything else is copied out.
    fn receive_by_splice(&self, pipes: &PipePool) -> Result<(InHeader, Message), Errno> {
        let pipe = match pipes.take() {
            Ok(pipe) if pipe.capacity >= self.max_write + 2 * 4096 => pipe,
            _ => return self.receive_by_copy(),
        };
        let length = rustix::pipe::splice(
            self.device.as_fd(),
            None,
            pipe.writer.as_fd(),
            None,
            self.max_write + 2 * 4096,
            SpliceFlags::empty(),
        );
        let length = match length {
            Ok(length) => length,
            Err(errno) => {
                pipes.put(pipe);
                return Err(errno);
            }
        };
        let mut buffer = self.buffers.take();
        let head = WRITE_HEAD_BYTES.min(length);
        pipe.read_exact(&mut buffer[..head])?;
        let header = abi::Request::header(&buffer[..head]).map_err(|_| Errno::AGAIN)?;
        if header.opcode == Opcode::Write.as_raw() && length > WRITE_HEAD_BYTES && header.total_extlen == 0 {
            let spliced = SplicedPayload { pipe, length: length - WRITE_HEAD_BYTES };
            let bytes = Bytes::Pooled { buffer, length: head };
            return Ok((header, Message { bytes, payload: Some(Payload::Pipe(spliced)) }));
        }
        let rest = buffer.get_mut(head..length).ok_or(Errno::IO)?;
        pipe.read_exact(rest)?;
        pipes.put(pipe);
        Ok((header, Message { bytes: Bytes::Pooled { buffer, length }, payload: None }))
    }
}

/// Sends replies into one descriptor: the one from which the request was read, because the kernel looks for the request there.
pub(crate) struct DevChannel {
    device: Arc<Device>,
    pipes: Option<Arc<PipePool>>,
}

thread_local! {
    /// Buffer for file data that is copied into a reply.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl DevChannel {
    pub(crate) fn new(device: Arc<Device>, pipes: Option<Arc<PipePool>>) -> Self {
        Self { device, pipes }
    }

    fn reply_by_copy(&self, unique: u64, range: &FileRange) -> io::Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let want = range.length as usize;
            if scratch.len() < want {
                scratch.resize(want, 0);
            }
            let done = match range.read(&mut scratch[..want]) {
                Ok(done) => done,
                Err(errno) => return self.reply(unique, Err(errno), &[]),
            };
            self.reply(unique, Ok(()), &[&scratch[..done]])
        })
    }

    /// Sends the pages of the file itself. Returns `false`, with nothing sent, where that failed.
    fn reply_by_splice(&self, pipes: &PipePool, unique: u64, range: &FileRange) -> io::Result<bool> {
        let Ok(pipe) = pipes.take() else { return Ok(false) };
        let want = range.length as usize;
        if pipe.capacity < want + 4096 {
            pipes.put(pipe);
            return Ok(false);
        }
        let header = OutHeader { len: (OutHeader::SIZE + want) as u32, error: 0, unique };
        if rustix::io::write(&pipe.writer, header.as_bytes()) != Ok(OutHeader::SIZE) {
            pipes.put(pipe);
            return Ok(false);
        }
        let (mut done, mut position) = (0, range.offset);
        while done < want {
            let step = rustix::pipe::splice(
                range.file.as_fd(),
                Some(&mut position),
                pipe.writer.as_fd(),
                None,
                want - done,
                SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
            );
            match step {
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        // The header announces the full length, but the file ended or failed earlier. The copying path finds out which.
        if done < want {
            pipes.put(pipe);
            return Ok(false);
        }
        let sent = pipe.splice_out(&*self.device, OutHeader::SIZE + want);
        pipes.put(pipe);
        sent.map(|()| true)
    }
}

impl Channel for DevChannel {
    fn reply(&self, unique: u64, result: Result<(), Errno>, parts: &[&[u8]]) -> io::Result<()> {
        let header = match result {
            Ok(()) => {
                let length = OutHeader::SIZE + parts.iter().map(|part| part.len()).sum::<usize>();
                OutHeader { len: length as u32, error: 0, unique }
            }
            Err(errno) => OutHeader { len: OutHeader::SIZE as u32, error: -errno.raw_os_error(), unique },
        };
        self.device.send(&header, parts)
    }

    fn reply_file(&self, unique: u64, range: &FileRange) -> io::Result<()> {
        if let Some(pipes) = &self.pipes {
            if range.length >= MIN_SPLICED_REPLY_BYTES && self.reply_by_splice(pipes, unique, range)? {
                return Ok(());
            }
        }
        self.reply_by_copy(unique, range)
    }
}
