//! Requests and replies over io_uring (Linux 6.14).
//!
//! The kernel has one queue per possible processor and hands a request to an entry of the caller's. An entry is memory
//! for one request and its reply, and holds the request until that reply: the command that sends it asks for the next
//! request at the same time, so a round trip is one system call.
//!
//! The rule that keeps queues flowing: *every entry that the kernel may fill has a thread of its own that waits for
//! that and for nothing else*, pinned to the queue's processor, with a ring of its own. So a handler that blocks holds
//! its own entry only; the kernel, which prefers the entry used last, finds another one, and after two milliseconds
//! without one the watch adds an entry. A handler that waits leaves its entry parked; the thread goes on with another,
//! and whoever makes the late reply hands the entry to a thread without one. Nothing is ever queued behind a handler.
//!
//! What bounds it: a queue has a limited number of entries ([`Sizes`]). A request that may wait for ever
//! ([`SETLKW`](shunt_fuse_abi::Opcode::Setlkw)) never takes the last of them, for that is how the request comes in
//! that ends its wait; it gets ENOLCK instead. FORGET, INTERRUPT and notifications stay on `/dev/fuse`, so waiting
//! requests can be given up even where a queue is full.

mod entry;
mod memory;
mod queue;
mod ring;
mod sizes;

pub(crate) use entry::{Entry, Received};
pub(crate) use queue::{Queue, Starter, Work};
pub(crate) use ring::Ring;
pub(crate) use sizes::{Sizes, possible_processors};

/// The least room for data in an entry, in bytes: a whole extended attribute (64 KiB) and more, however small WRITEs
/// are.
pub(crate) const LEAST_PAYLOAD: u32 = 128 << 10;
