//! The few FUSE messages of the empty server, in bytes.

use rustix::io::Errno;

const FORGET: u32 = 2;
const GETATTR: u32 = 3;
/// The first request of a session.
pub const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// INIT flags: the one that makes the upper half valid, and the one in the upper half that enables io_uring.
const INIT_EXT: u32 = 1 << 30;
const OVER_IO_URING: u32 = 1 << (41 - 32);

/// The fields of a request's header that the server needs.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub opcode: u32,
    pub unique: u64,
}

/// Reads a request's header; none when the message is too short to have one.
pub fn parse(message: &[u8]) -> Option<Request> {
    let header = message.first_chunk::<40>()?;
    let opcode = u32::from_ne_bytes(*header[4..].first_chunk()?);
    let unique = u64::from_ne_bytes(*header[8..].first_chunk()?);
    Some(Request { opcode, unique })
}

/// The reply to INIT.
pub fn init(request: Request, rings: bool) -> Reply {
    let (flags, flags2) = if rings { (INIT_EXT, OVER_IO_URING) } else { (0, 0) };
    Reply::new(request.unique, 0).init(flags, flags2)
}

/// The reply to any other request, if it has one: attributes for GETATTR, else ENOSYS.
pub fn answer(request: Request) -> Option<Reply> {
    match request.opcode {
        FORGET | BATCH_FORGET | INTERRUPT => None,
        GETATTR => Some(Reply::new(request.unique, 0).attributes()),
        _ => Some(Reply::new(request.unique, Errno::NOSYS.raw_os_error())),
    }
}

/// A reply under construction.
#[derive(Debug, Default)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// Starts with a header whose length is filled in by [`Reply::bytes`].
    fn new(unique: u64, errno: i32) -> Self {
        Self(Vec::with_capacity(128)).u32(0).u32((-errno).cast_unsigned()).u64(unique)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// `fuse_init_out`, 64 bytes.
    fn init(self, flags: u32, flags2: u32) -> Self {
        let reply = self.u32(7).u32(42).u32(0).u32(flags);
        // max_background and congestion_threshold, max_write, time granularity, max_pages and map_alignment
        reply.u32(0x000c_0010).u32(65536).u32(1).u32(0).u32(flags2).u64(0).u64(0).u64(0).u32(0)
    }

    /// `fuse_attr_out`, 104 bytes: a directory with a timeout of zero, so that the kernel asks again at once.
    fn attributes(self) -> Self {
        let timeout = self.u64(0).u32(0).u32(0);
        let sizes_and_times = timeout.u64(1).u64(0).u64(0).u64(0).u64(0).u64(0);
        let mode = sizes_and_times.u32(0).u32(0).u32(0).u32(0o040_755).u32(2);
        mode.u32(0).u32(0).u32(0).u32(4096).u32(0)
    }

    /// The finished message: a header of 16 bytes and the body.
    pub fn bytes(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Reply;

    #[test]
    fn replies_have_the_sizes_of_the_wire() {
        assert_eq!(Reply::new(1, 0).bytes().len(), 16);
        assert_eq!(Reply::new(1, 0).init(0, 0).bytes().len(), 16 + 64);
        assert_eq!(Reply::new(1, 0).attributes().bytes().len(), 16 + 104);
    }
}
