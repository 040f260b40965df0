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
    /// The payload of a WRITE that was not copied; `bytes` then holds only the part before it.
    pub(crate) payload: Option<Payload>,
}

/// The memory of a message.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// The start of a pooled buffer.
    Pooled { buffer: Buffer, length: usize },
    /// The memory of the transport, into which the kernel wrote it.
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
    /// Reports whether the data of this READ or WRITE stays in the kernel's pages.
    pub(crate) fn is_zero_copy(&self) -> bool {
        matches!(&self.bytes, Bytes::InPlace(received) if received.is_zero_copy())
    }

    pub(crate) fn parse(&self, context: &abi::ParseContext) -> Result<abi::Request<'_>, ParseError> {
        let Some(data) = self.separate_data() else { return abi::Request::parse(&self.bytes, context) };
        let (header, arg) = abi::Request::parse_write_head(&self.bytes)?;
        Ok(abi::Request { header, operation: Operation::Write { arg, data }, ext: Default::default() })
    }

    /// Returns the data of a WRITE that does not follow its head in memory; none of it where it is a payload.
    fn separate_data(&self) -> Option<&[u8]> {
        match (&self.payload, &self.bytes) {
            (Some(_), _) => Some(&[]),
            (None, Bytes::InPlace(received)) => received.data(),
            (None, Bytes::Pooled { .. }) => None,
        }
    }
}
