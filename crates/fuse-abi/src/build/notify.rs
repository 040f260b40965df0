//! Notifications: messages that the server sends to the kernel without a request.
//!
//! Some of them make the kernel wait for locks that it holds while a request is unanswered. Send them after the reply, never from
//! within the request that caused them.

use std::io::IoSlice;

use crate::{
    ExpireFlags, NotifyCode, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut,
    NotifyPruneOut, NotifyRetrieveOut, NotifyStoreOut, OutHeader, Wire,
};

/// Room for the header and the longest body.
const HEAD: usize = OutHeader::SIZE + size_of::<NotifyRetrieveOut>();

/// A notification: its own head, a borrowed payload, and the NUL that terminates names.
#[derive(Debug, Clone, Copy)]
pub struct Notification<'a> {
    head: [u8; HEAD],
    head_len: usize,
    payload: &'a [u8],
    tail: &'static [u8],
}

impl<'a> Notification<'a> {
    fn new(code: NotifyCode, body: &impl Wire, payload: &'a [u8], tail: &'static [u8]) -> Self {
        let body = body.as_bytes();
        let head_len = OutHeader::SIZE + body.len();
        let len = head_len.saturating_add(payload.len()).saturating_add(tail.len());
        let header = OutHeader { len: saturate(len), error: code.as_raw(), unique: 0 };
        let mut head = [0; HEAD];
        for (to, from) in head.iter_mut().zip(header.as_bytes().iter().chain(body)) {
            *to = *from;
        }
        Self { head, head_len, payload, tail }
    }

    /// Returns the slices to write with one `writev`; some may be empty.
    #[must_use]
    pub fn slices(&self) -> [IoSlice<'_>; 3] {
        [IoSlice::new(self.head()), IoSlice::new(self.payload), IoSlice::new(self.tail)]
    }

    /// Returns header and body.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.head_len).unwrap_or(&self.head)
    }

    /// Returns the part after the head: a name, data, or node ids.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the whole message.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head(), self.payload, self.tail].concat()
    }
}

/// Reports that a polled file became ready; `kh` is from [`crate::PollIn`].
#[must_use]
pub fn poll(kh: u64) -> Notification<'static> {
    Notification::new(NotifyCode::Poll, &NotifyPollWakeupOut { kh }, &[], &[])
}

/// Drops the attributes of a node, and with `off` 0 or more the pages from there on: `len` bytes, or all if 0 or less.
#[must_use]
pub fn inval_inode(nodeid: u64, off: i64, len: i64) -> Notification<'static> {
    Notification::new(NotifyCode::InvalInode, &NotifyInvalInodeOut { ino: nodeid, off, len }, &[], &[])
}

/// Drops or expires a name. Without [`ExpireFlags::EXPIRE_ONLY`] mounts below it are detached.
#[must_use]
pub fn inval_entry(parent: u64, name: &[u8], flags: ExpireFlags) -> Notification<'_> {
    let body = NotifyInvalEntryOut { parent, namelen: saturate(name.len()), flags: flags.bits() };
    Notification::new(NotifyCode::InvalEntry, &body, name, b"\0")
}

/// Drops a removed name; no effect if the name refers to another node than `child`.
#[must_use]
pub fn delete(parent: u64, child: u64, name: &[u8]) -> Notification<'_> {
    let body = NotifyDeleteOut { parent, child, namelen: saturate(name.len()), padding: 0 };
    Notification::new(NotifyCode::Delete, &body, name, b"\0")
}

/// Stores data in the page cache, at a byte offset. The file grows if it is shorter.
#[must_use]
pub fn store(nodeid: u64, offset: u64, data: &[u8]) -> Notification<'_> {
    let body = NotifyStoreOut { nodeid, offset, size: saturate(data.len()), padding: 0 };
    Notification::new(NotifyCode::Store, &body, data, &[])
}

/// Requests up to `size` bytes of cached data, which arrive as [`crate::Operation::NotifyReply`] with id `unique`.
#[must_use]
pub fn retrieve(unique: u64, nodeid: u64, offset: u64, size: u32) -> Notification<'static> {
    let body = NotifyRetrieveOut { notify_unique: unique, nodeid, offset, size, padding: 0 };
    Notification::new(NotifyCode::Retrieve, &body, &[], &[])
}

/// Requests that all unanswered requests are sent again.
#[must_use]
pub fn resend() -> Notification<'static> {
    Notification::new(NotifyCode::Resend, &(), &[], &[])
}

/// Expires all cached names.
#[must_use]
pub fn inc_epoch() -> Notification<'static> {
    Notification::new(NotifyCode::IncEpoch, &(), &[], &[])
}

/// Evicts those of the nodes that are unused.
#[must_use]
pub fn prune(nodeids: &[u64]) -> Notification<'_> {
    let body = NotifyPruneOut { count: saturate(nodeids.len()), padding: 0, spare: 0 };
    Notification::new(NotifyCode::Prune, &body, bytemuck::cast_slice(nodeids), &[])
}

/// Saturates a length above 32 bits, so that the kernel refuses the message.
fn saturate(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
