//! The virtio transport: requests of a virtual machine's kernel, to a virtio device that we serve for the machine's emulator
//! (vhost-user).
//!
//! A request is a chain of descriptors in the guest's memory: parts that the guest has written, then room for the reply. Small
//! parts are copied out once, and parsed only then, because the guest may change them at any time. The data of READ and WRITE is
//! moved between the guest's memory and the file by one system call.
//!
//! A guest is an attacker: addresses, lengths, order and number of descriptors are checked, and no request allocates memory
//! according to its own claims.

mod chain;
pub(crate) mod crash_point;
mod descriptors;
pub(crate) mod device;
mod exchange;
pub(crate) mod inflight;
pub(crate) mod memory;
mod pool;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use device::{Device, Handler, MAX_CHAINS, MAX_QUEUES, Shared, TAG_BYTES};
pub(crate) use exchange::GuestPayload;
