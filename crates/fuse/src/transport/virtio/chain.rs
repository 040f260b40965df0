//! A descriptor chain: one request, and the buffer for its reply.

use rustix::io::Errno;

use super::descriptors::Descriptors;
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
    /// An earlier daemon had taken it: the request may have been executed already.
    pub(super) is_resubmitted: bool,
}

impl Chain {
    /// Parses a chain. A loop ends after as many descriptors as the table has.
    ///
    /// # Errors
    /// A part of the request after the reply (EINVAL), addresses outside of memory (EFAULT), too many descriptors or bytes (E2BIG).
    pub(super) fn new(
        memory: Mapped,
        head: u16,
        descriptors: Descriptors,
        is_resubmitted: bool,
    ) -> Result<Self, Errno> {
        let (mut request, mut reply) = (Pieces::default(), Pieces::default());
        for descriptor in descriptors {
            let pieces = match descriptor.is_write_only() {
                true => &mut reply,
                false if reply.count() > 0 => return Err(Errno::INVAL),
                false => &mut request,
            };
            pieces.push(&memory, descriptor.addr(), descriptor.len())?;
            if request.count() + reply.count() > MAX_DESCRIPTORS {
                return Err(Errno::TOOBIG);
            }
        }
        Ok(Self { memory, head, request, reply, is_resubmitted })
    }
}
