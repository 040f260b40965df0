//! Messages of the vhost-user protocol as the relay needs them: the header, the body as bytes, and the attached descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

const HEADER_BYTES: usize = 12;
/// Maximum size of a body: that of the specification.
const MAX_BODY_BYTES: usize = 4096;
/// Maximum number of descriptors of a message: one for each region of memory.
pub(crate) const MAX_FILES: usize = 32;

const PROTOCOL_VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// A request of the emulator. The relay forwards no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Request {
    GetFeatures = 1,
    SetFeatures = 2,
    SetOwner = 3,
    ResetOwner = 4,
    SetMemTable = 5,
    SetVringNum = 8,
    SetVringAddr = 9,
    SetVringBase = 10,
    GetVringBase = 11,
    SetVringKick = 12,
    SetVringCall = 13,
    SetVringErr = 14,
    GetProtocolFeatures = 15,
    SetProtocolFeatures = 16,
    GetQueueNum = 17,
    SetVringEnable = 18,
    GetConfig = 24,
    SetConfig = 25,
    GetInflightFd = 31,
    SetInflightFd = 32,
    GetMaxMemSlots = 36,
    AddMemReg = 37,
    RemMemReg = 38,
}

impl Request {
    fn from_number(number: u32) -> Option<Self> {
        use Request::{
            AddMemReg, GetConfig, GetFeatures, GetInflightFd, GetMaxMemSlots, GetProtocolFeatures,
            GetQueueNum, GetVringBase, RemMemReg, ResetOwner, SetConfig, SetFeatures, SetInflightFd,
            SetMemTable, SetOwner, SetProtocolFeatures, SetVringAddr, SetVringBase, SetVringCall,
            SetVringEnable, SetVringErr, SetVringKick, SetVringNum,
        };
        [
            GetFeatures,
            SetFeatures,
            SetOwner,
            ResetOwner,
            SetMemTable,
            SetVringNum,
            SetVringAddr,
            SetVringBase,
            GetVringBase,
            SetVringKick,
            SetVringCall,
            SetVringErr,
            GetProtocolFeatures,
            SetProtocolFeatures,
            GetQueueNum,
            SetVringEnable,
            GetConfig,
            SetConfig,
            GetInflightFd,
            SetInflightFd,
            GetMaxMemSlots,
            AddMemReg,
            RemMemReg,
        ]
        .into_iter()
        .find(|request| *request as u32 == number)
    }

    /// Reports whether the reply carries data. All others are acknowledged on demand only.
    pub(crate) fn has_reply(self) -> bool {
        matches!(
            self,
            Self::GetFeatures
                | Self::GetVringBase
                | Self::GetProtocolFeatures
                | Self::GetQueueNum
                | Self::GetConfig
                | Self::GetInflightFd
                | Self::GetMaxMemSlots
        )
    }
}

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) request: Request,
    flags: u32,
    pub(crate) body: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

impl Message {
    pub(crate) fn new(request: Request, body: Vec<u8>, files: Vec<OwnedFd>) -> Self {
        Self { request, flags: PROTOCOL_VERSION, body, files }
    }

    /// Reports whether the sender asked for an acknowledgement.
    pub(crate) fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// Asks for no acknowledgement.
    pub(crate) fn without_reply(mut self) -> Self {
        self.flags &= !NEED_REPLY;
        self
    }

    /// Returns the first number of the body, if it has one.
    pub(crate) fn number(&self) -> Option<u64> {
        self.body.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the queue that a message about a queue concerns.
    pub(crate) fn queue(&self) -> Option<u32> {
        let index = self.body.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        match self.request {
            // The lowest byte; a flag follows.
            Request::SetVringKick | Request::SetVringCall | Request::SetVringErr => Some(index & 0xff),
            _ => Some(index),
        }
    }

    /// Copies the message; descriptors are duplicated.
    pub(crate) fn try_clone(&self) -> Result<Self, Errno> {
        let copy = |file: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(file, 3);
        let files = self.files.iter().map(copy).collect::<Result<_, _>>()?;
        Ok(Self { request: self.request, flags: self.flags, body: self.body.clone(), files })
    }

    /// Sends the message.
    ///
    /// # Errors
    /// The other side has closed the connection.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut packet = Vec::with_capacity(HEADER_BYTES + self.body.len());
        for word in [self.request as u32, self.flags, self.body.len() as u32] {
            packet.extend(word.to_le_bytes());
        }
        packet.extend(&self.body);
        let files: Vec<_> = self.files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&files));
        }
        let mut sent =
            retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL))?;
        while sent < packet.len() {
            sent += retry_on_intr(|| rustix::net::send(socket, &packet[sent..], SendFlags::NOSIGNAL))?;
        }
        Ok(())
    }

    /// Receives a message; waits until it is complete.
    ///
    /// # Errors
    /// The connection ended (CONNRESET), or the message is none that the relay knows (PROTO).
    pub(crate) fn receive(socket: BorrowedFd<'_>, is_reply: bool) -> Result<Self, Errno> {
        let mut header = [0; HEADER_BYTES];
        let mut files = Vec::new();
        let mut have = 0;
        while have < HEADER_BYTES {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut room = [IoSliceMut::new(&mut header[have..])];
            let received =
                retry_on_intr(|| recvmsg(socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    files.extend(received);
                }
            }
            if received.bytes == 0 {
                return Err(Errno::CONNRESET);
            }
            have += received.bytes;
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (flags, length) = (word(4), word(8) as usize);
        let valid = flags & 3 == PROTOCOL_VERSION
            && (flags & REPLY != 0) == is_reply
            && length <= MAX_BODY_BYTES
            && files.len() <= MAX_FILES;
        let request = Request::from_number(word(0)).filter(|_| valid).ok_or(Errno::PROTO)?;
        let mut body = vec![0; length];
        let mut have = 0;
        while have < length {
            let received = retry_on_intr(|| {
                rustix::net::recv(socket, &mut body[have..], RecvFlags::empty()).map(|(count, _)| count)
            })?;
            if received == 0 {
                return Err(Errno::CONNRESET);
            }
            have += received;
        }
        Ok(Self { request, flags, body, files })
    }
}
