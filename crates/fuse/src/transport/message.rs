//! One message from the kernel, where the transport received it.

use std::ops::Deref;

use shunt_fuse_abi as abi;
use shunt_fuse_abi::{Operation, ParseError};

use super::buffer::Buffer;
use super::payload::Payload;
use super::uring::Received;

/// A message as the transport received it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Bytes,
    /// The data of a WRITE that was not copied; the bytes are then only what comes before it.
    pub(crate) payload: Option<Payload>,
}

/// Where a message lies.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// At the beginning of a buffer.
    Pooled { buffer: Buffer, length: usize },
    /// Where the kernel put it.
    InPlace(Received),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Pooled { buffer, length } => &buffer[..*length],
            Self::InPlace(received) => received,
        }
    }
}

impl Message {
    pub(crate) fn parse(&self, context: &abi::ParseContext) -> Result<abi::Request<'_>, ParseError> {
        if self.payload.is_none() {
            return abi::Request::parse(&self.bytes, context);
        }
        let (header, arg) = abi::Request::parse_write_head(&self.bytes)?;
        Ok(abi::Request { header, operation: Operation::Write { arg, data: &[] }, ext: Default::default() })
    }
}
