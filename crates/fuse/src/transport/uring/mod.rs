//! The io_uring transport of requests and replies (Linux 6.14).
//!
//! The kernel has one queue per possible CPU and gives a request to an entry of the caller's queue. An entry is memory for one
//! request and its reply, and holds the request until that reply: the command that sends the reply asks for the next request at
//! the same time, so a round trip is one system call.
//!
//! One rule avoids deadlocks: *every entry that the kernel may fill has a thread of its own that waits for that and for nothing
//! else*, bound to the queue's CPU, with a ring of its own. A handler that blocks therefore occupies its own entry only; the
//! kernel, which prefers the entry used last, finds another one, and after two milliseconds without one the watch adds an entry.
//! A handler that waits leaves its entry parked; the thread goes on with another one, and the thread that makes the late reply
//! hands the entry to a thread without one. Nothing is ever queued behind a handler.
//!
//! If the kernel offers it (Linux 7.3), the entries of a queue share a [pool](payload_pool::PayloadPool) of payload buffers, and
//! READs and WRITEs of files opened for it are zero-copy requests: their data stays in the kernel's [pages](pages::Pages). Those
//! are registered with the ring that received the request, so its thread keeps it until it is answered, as if the handler
//! blocked.
//!
//! The number of entries of a queue is limited ([`QueueSizes`]). A request that may wait forever
//! ([`SETLKW`](shunt_fuse_abi::Opcode::Setlkw)) never takes the last entry, which must receive the request that ends its wait; it
//! gets ENOLCK instead. FORGET, INTERRUPT and notifications stay on `/dev/fuse`, so waiting requests can be interrupted even
//! where a queue is full.

mod entry;
mod memory;
mod pages;
mod payload_pool;
mod queue;
mod ring;
mod sizes;

pub(crate) use entry::{Entry, Received};
pub(crate) use pages::{MemoryFile, Pages, PagesPayload};
pub(crate) use payload_pool::PayloadPool;
pub(crate) use queue::{Queue, Starter, Work};
pub(crate) use ring::Ring;
pub(crate) use sizes::{QueueSizes, possible_processors};

/// Minimum room for data in an entry, in bytes: a whole extended attribute (64 KiB) and more, however small WRITEs are.
pub(crate) const MIN_PAYLOAD_BYTES: u32 = 128 << 10;
