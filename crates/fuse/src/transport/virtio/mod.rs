//! Requests of a virtual machine's kernel: a virtio device that the machine's emulator has us serve (vhost-user).
//!
//! A request is a chain of descriptors in the guest's memory: parts that it has written, then room for the reply. What
//! is small is copied out once, and only then looked at, for the guest may change it at any time. Data of READ and
//! WRITE goes between the guest's memory and the file in one system call.
//!
//! A guest is an attacker: addresses, lengths, order and number of descriptors are checked, and no request takes
//! memory by what it says of itself.

mod chain;
pub(crate) mod device;
mod exchange;
pub(crate) mod memory;
mod pool;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use device::{Device, Handler, QUEUES, Shared, TAG};
pub(crate) use exchange::GuestPayload;
