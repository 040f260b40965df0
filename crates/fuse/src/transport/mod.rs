//! Transports of requests and replies. File systems do not see which one serves them.

pub(crate) mod buffer;
pub(crate) mod channel;
pub(crate) mod dev;
pub(crate) mod device;
pub(crate) mod message;
pub(crate) mod payload;
pub(crate) mod pipe;
pub(crate) mod uring;
#[cfg(feature = "virtiofs")]
pub(crate) mod virtio;

pub(crate) use channel::{Afterwards, Channel};

/// The size of the pages that INIT counts; not that of the machine, which a server in a sandbox cannot ask for.
pub(crate) const PAGE_BYTES: u32 = 4096;
