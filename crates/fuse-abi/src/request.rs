//! A complete request: header, operation and extensions.

use crate::cursor::Cursor;
use crate::{Extensions, InHeader, MessagePart, Opcode, Operation, ParseContext, ParseError, WriteIn, parse};

/// A request of the kernel, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The header.
    pub header: InHeader,
    /// The operation with its arguments.
    pub operation: Operation<'a>,
    /// The extensions.
    pub ext: Extensions<'a>,
}

impl<'a> Request<'a> {
    /// Parses exactly one complete message of the kernel. No alignment is needed.
    ///
    /// # Errors
    /// Any [`ParseError`]. For the reply, [`Self::header`] returns the id as long as the header itself is complete, and
    /// [`Opcode::has_reply`] reports whether a reply is expected.
    pub fn parse(bytes: &'a [u8], ctx: &ParseContext) -> Result<Self, ParseError> {
        let header = Self::header(bytes)?;
        if header.len as usize != bytes.len() {
            return Err(ParseError::Length { header: header.len, got: bytes.len() });
        }
        let opcode = Opcode::from_raw(header.opcode).ok_or(ParseError::UnknownOpcode(header.opcode))?;
        let body = bytes.get(InHeader::SIZE..).unwrap_or_default();
        let (args, ext) = split_extensions(body, header.total_extlen)?;
        let operation = parse::operation(opcode, args, ctx)?;
        Ok(Self { header, operation, ext: Extensions::parse(ext)? })
    }

    /// Returns the header alone, unchecked.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    pub fn header(bytes: &[u8]) -> Result<InHeader, ParseError> {
        Cursor::new(bytes).take(MessagePart::Header)
    }

    /// Parses the head of a WRITE whose data is elsewhere, for example in a pipe: the first 80 bytes suffice, and the rest is
    /// ignored. The length in the header must be that of head and data together. Requires protocol 7.9 or later.
    ///
    /// # Errors
    /// Any [`ParseError`]; [`ParseError::WrongOpcode`] where it is not a WRITE.
    pub fn parse_write_head(bytes: &[u8]) -> Result<(InHeader, WriteIn), ParseError> {
        const HEAD: u64 = (InHeader::SIZE + size_of::<WriteIn>()) as u64;
        let mut cursor = Cursor::new(bytes);
        let header: InHeader = cursor.take(MessagePart::Header)?;
        match Opcode::from_raw(header.opcode).ok_or(ParseError::UnknownOpcode(header.opcode))? {
            Opcode::Write => {}
            got => return Err(ParseError::WrongOpcode { want: Opcode::Write, got }),
        }
        let arg: WriteIn = cursor.arg()?;
        let got = u64::from(header.len).saturating_sub(HEAD);
        if got != u64::from(arg.size) || u64::from(header.len) < HEAD {
            return Err(ParseError::Mismatch {
                what: MessagePart::Data,
                want: arg.size.into(),
                got: got as usize,
            });
        }
        Ok((header, arg))
    }
}

/// Splits the body at the start of the extensions, `units` times 8 bytes before its end.
fn split_extensions(body: &[u8], units: u16) -> Result<(&[u8], &[u8]), ParseError> {
    let want = usize::from(units) * 8;
    let short = ParseError::TooShort { what: MessagePart::Extension, want, got: body.len() };
    let start = body.len().checked_sub(want).ok_or(short)?;
    body.split_at_checked(start).ok_or(short)
}
