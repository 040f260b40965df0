//! A chain of descriptors: one request, and the room for its reply.

use rustix::io::Errno;
use virtio_queue::DescriptorChain;

use super::memory::{Mapped, Pieces};

/// Descriptors of a chain. The driver of Linux uses one for each page of data, and four.
const MAX_DESCRIPTORS: usize = 4096 + 16;

/// A chain, read once: what the guest does to its descriptors afterwards changes nothing.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(super) memory: Mapped,
    /// What the guest knows it by.
    pub(super) head: u16,
    /// The request.
    pub(super) request: Pieces,
    /// The room for the reply.
    pub(super) reply: Pieces,
}

impl Chain {
    /// Takes a chain apart. A loop ends after as many descriptors as the table has.
    ///
    /// # Errors
    /// The chain's head and what is wrong: a part of the request behind the reply (EINVAL), addresses that are no
    /// memory (EFAULT), too many descriptors or bytes (E2BIG).
    pub(super) fn new(memory: Mapped, descriptors: DescriptorChain<Mapped>) -> Result<Self, (u16, Errno)> {
        let head = descriptors.head_index();
        let (mut request, mut reply) = (Pieces::default(), Pieces::default());
        for descriptor in descriptors {
            let pieces = match descriptor.is_write_only() {
                true => &mut reply,
                false if reply.count() > 0 => return Err((head, Errno::INVAL)),
                false => &mut request,
            };
            pieces.push(&memory, descriptor.addr(), descriptor.len()).map_err(|errno| (head, errno))?;
            if request.count() + reply.count() > MAX_DESCRIPTORS {
                return Err((head, Errno::TOOBIG));
            }
        }
        Ok(Self { memory, head, request, reply })
    }
}
