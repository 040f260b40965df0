//! A descriptor chain: one request, and the buffer for its reply.

use rustix::io::Errno;
use virtio_queue::DescriptorChain;

use super::memory::{Mapped, Pieces};

/// Maximum number of descriptors of a chain. The Linux driver uses one for each page of data, and four more.
const MAX_DESCRIPTORS: usize = 4096 + 16;

/// A chain, read once: later changes of its descriptors by the guest have no effect.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(super) memory: Mapped,
    /// Index of the head descriptor, by which the guest identifies the chain.
    pub(super) head: u16,
    /// The request.
    pub(super) request: Pieces,
    /// The buffer for the reply.
    pub(super) reply: Pieces,
}

impl Chain {
    /// Parses a chain. A loop ends after as many descriptors as the table has.
    ///
    /// # Errors
    /// The chain's head and the error: a part of the request after the reply (EINVAL), addresses outside of memory (EFAULT), too
    /// many descriptors or bytes (E2BIG).
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
