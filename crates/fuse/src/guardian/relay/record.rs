//! The settings of an emulator's device, as the messages that set up another daemon: one for each setting, in the order in which a
//! daemon needs them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::message::{Message, Request};

/// Protocol feature: requests in flight are tracked in shared memory.
pub(super) const INFLIGHT_SHMFD: u64 = 1 << 12;
/// Protocol feature: any message may be acknowledged.
const REPLY_ACK: u64 = 1 << 3;

/// Maximum number of settings; more than an emulator has: bounds the memory.
const MAX_SETTINGS: usize = 1024;

/// Position of a setting in the order of replay, and what it is about: a queue, or a region of memory.
type Setting = (u32, u64);

/// The state of a connection, independent of the daemon that serves it.
#[derive(Debug, Default)]
pub(super) struct Record {
    settings: BTreeMap<Setting, Message>,
    offered: u64,
}

impl Record {
    /// Reports whether the daemon replies to a message.
    pub(super) fn is_answered(&self, message: &Message) -> bool {
        let features = match message.request {
            Request::SetProtocolFeatures => message.number().unwrap_or(0),
            _ => self.protocol_features(),
        };
        message.request.has_reply() || (message.needs_reply() && features & REPLY_ACK != 0)
    }

    /// Reports whether the daemon tracks requests in flight.
    pub(super) fn tracks_inflight(&self) -> bool {
        self.protocol_features() & INFLIGHT_SHMFD != 0
    }

    fn protocol_features(&self) -> u64 {
        let set = position(Request::SetProtocolFeatures).and_then(|at| self.settings.get(&(at, 0)));
        set.and_then(Message::number).unwrap_or(0)
    }

    /// Records the protocol features that the daemon offers.
    pub(super) fn offer(&mut self, features: u64) {
        self.offered = features;
    }

    /// Returns what the daemon offers of these protocol features.
    pub(super) fn offered(&self, features: u64) -> u64 {
        self.offered & features
    }

    /// Returns the memory that tracks requests in flight, with the message that describes it.
    pub(super) fn inflight(&self) -> Option<(&Message, &OwnedFd)> {
        let message = self.settings.get(&(position(Request::SetInflightFd)?, 0))?;
        Some((message, message.files.first()?))
    }

    /// Adds what a message sets.
    ///
    /// # Errors
    /// There is no room, or a descriptor cannot be duplicated.
    pub(super) fn apply(&mut self, message: &Message) -> Result<(), Errno> {
        let Some(at) = position(message.request) else {
            self.remove(message);
            return Ok(());
        };
        let about = match message.request {
            Request::AddMemReg => region(message).ok_or(Errno::PROTO)?,
            Request::SetVringNum
            | Request::SetVringAddr
            | Request::SetVringBase
            | Request::SetVringErr
            | Request::SetVringCall
            | Request::SetVringKick
            | Request::SetVringEnable => message.queue().ok_or(Errno::PROTO)?.into(),
            Request::SetMemTable => {
                let regions = position(Request::AddMemReg);
                self.settings.retain(|(at, _), _| Some(*at) != regions);
                0
            }
            _ => 0,
        };
        if self.settings.len() >= MAX_SETTINGS && !self.settings.contains_key(&(at, about)) {
            return Err(Errno::NOSPC);
        }
        self.settings.insert((at, about), message.try_clone()?.without_reply());
        Ok(())
    }

    fn remove(&mut self, message: &Message) {
        if message.request == Request::RemMemReg {
            if let (Some(at), Some(region)) = (position(Request::AddMemReg), region(message)) {
                self.settings.remove(&(at, region));
            }
        }
    }

    /// Records that a queue was stopped, and the index at which it goes on.
    ///
    /// # Errors
    /// The reply is malformed.
    pub(super) fn stop(&mut self, reply: &Message) -> Result<u32, Errno> {
        let queue = reply.queue().ok_or(Errno::PROTO)?;
        for request in [Request::SetVringKick, Request::SetVringCall] {
            position(request).and_then(|at| self.settings.remove(&(at, queue.into())));
        }
        self.apply(&Message::new(Request::SetVringBase, reply.body.clone(), Vec::new()))?;
        Ok(queue)
    }

    /// Returns the messages in the order in which another daemon needs them.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.settings.values()
    }
}

/// Returns the position in the order of replay; `None` for a message that sets nothing.
fn position(request: Request) -> Option<u32> {
    let order = [
        Request::SetOwner,
        Request::SetProtocolFeatures,
        Request::SetFeatures,
        Request::SetMemTable,
        Request::AddMemReg,
        Request::SetVringNum,
        Request::SetVringAddr,
        Request::SetVringBase,
        Request::SetInflightFd,
        Request::SetVringErr,
        Request::SetVringCall,
        Request::SetVringKick,
        Request::SetVringEnable,
    ];
    order.iter().position(|each| *each == request).map(|at| at as u32)
}

/// Returns the guest address of a region of memory: the second number of the body, after padding.
fn region(message: &Message) -> Option<u64> {
    message.body.get(8..16)?.try_into().map(u64::from_le_bytes).ok()
}

/// Makes the queue unknown in the memory that tracks requests in flight: it was stopped, and begins anew when it is started again.
pub(super) fn forget_queue(message: &Message, file: &OwnedFd, queue: u32) {
    let part = |at: usize| message.body.get(at..at + 2)?.try_into().map(u16::from_le_bytes).ok();
    let offset = message.body.get(8..16).and_then(|bytes| bytes.try_into().map(u64::from_le_bytes).ok());
    let (Some(offset), Some(queues), Some(entries)) = (offset, part(16), part(18)) else { return };
    let within = crate::transport::virtio::inflight::version_offset(queue as usize, entries);
    if let (Some(at), true) = (offset.checked_add(within), queue < queues.into()) {
        let _ = rustix::io::pwrite(file.as_fd(), &[0, 0], at);
    }
}
