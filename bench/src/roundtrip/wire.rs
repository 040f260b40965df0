//! The handful of messages the empty server speaks, in bytes.

/// Opcodes of the wire that the server tells apart.
pub const FORGET: u32 = 2;
pub const GETATTR: u32 = 3;
pub const INIT: u32 = 26;
pub const INTERRUPT: u32 = 36;
pub const BATCH_FORGET: u32 = 42;

/// What the server needs of a request's header.
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

/// A reply in the making.
#[derive(Debug, Default)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// Starts with a header whose length is filled in by [`Reply::bytes`].
    pub fn new(unique: u64, errno: i32) -> Self {
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

    /// `fuse_init_out`, 64 bytes: version 7.31 and no capability at all.
    pub fn init(self) -> Self {
        let reply = self.u32(7).u32(31).u32(0).u32(0);
        // max_background and congestion_threshold, max_write, time granularity
        reply.u32(0x000c_0010).u32(65536).u32(1).u64(0).u64(0).u64(0).u64(0).u32(0)
    }

    /// `fuse_attr_out`, 104 bytes: a directory that must be asked for again at once.
    pub fn attributes(self) -> Self {
        let timeout = self.u64(0).u32(0).u32(0);
        let sizes_and_times = timeout.u64(1).u64(0).u64(0).u64(0).u64(0).u64(0);
        let mode = sizes_and_times.u32(0).u32(0).u32(0).u32(0o040_755).u32(2);
        mode.u32(0).u32(0).u32(0).u32(4096).u32(0)
    }

    /// The finished message.
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
        assert_eq!(Reply::new(1, 0).init().bytes().len(), 16 + 64);
        assert_eq!(Reply::new(1, 0).attributes().bytes().len(), 16 + 104);
    }
}
