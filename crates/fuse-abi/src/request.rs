//! A whole request.

use crate::cursor::Cursor;
use crate::{Extensions, InHeader, Opcode, Operation, ParseContext, ParseError, What, WriteIn, parse};

/// A request of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The header.
    pub header: InHeader,
    /// What is asked.
    pub operation: Operation<'a>,
    /// What comes with it.
    pub ext: Extensions<'a>,
}

impl<'a> Request<'a> {
    /// Parses one message of the kernel, which must be complete and nothing more. No alignment is needed.
    ///
    /// # Errors
    /// [`ParseError`]. To answer, [`Self::header`] gives the id as long as the header itself is there, and
    /// [`Opcode::has_reply`] tells whether an answer is due.
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

    /// Just the header, unchecked.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    pub fn header(bytes: &[u8]) -> Result<InHeader, ParseError> {
        Cursor::new(bytes).take(What::Header)
    }

    /// Parses the head of a WRITE whose data stays elsewhere, in a pipe say: the first 80 bytes suffice, more are
    /// not looked at. The length in the header must be that of head and data together. Speaks 7.9 and later.
    ///
    /// # Errors
    /// [`ParseError`]; [`ParseError::WrongOpcode`] where it is no WRITE.
    pub fn parse_write_head(bytes: &[u8]) -> Result<(InHeader, WriteIn), ParseError> {
        const HEAD: u64 = (InHeader::SIZE + size_of::<WriteIn>()) as u64;
        let mut cursor = Cursor::new(bytes);
        let header: InHeader = cursor.take(What::Header)?;
        match Opcode::from_raw(header.opcode).ok_or(ParseError::UnknownOpcode(header.opcode))? {
            Opcode::Write => {}
            got => return Err(ParseError::WrongOpcode { want: Opcode::Write, got }),
        }
        let arg: WriteIn = cursor.arg()?;
        let got = u64::from(header.len).saturating_sub(HEAD);
        if got != u64::from(arg.size) || u64::from(header.len) < HEAD {
            return Err(ParseError::Mismatch { what: What::Data, want: arg.size.into(), got: got as usize });
        }
        Ok((header, arg))
    }
}

/// Splits the body where the extensions begin, `units` times 8 bytes before its end.
fn split_extensions(body: &[u8], units: u16) -> Result<(&[u8], &[u8]), ParseError> {
    let want = usize::from(units) * 8;
    let short = ParseError::TooShort { what: What::Extension, want, got: body.len() };
    let start = body.len().checked_sub(want).ok_or(short)?;
    body.split_at_checked(start).ok_or(short)
}
