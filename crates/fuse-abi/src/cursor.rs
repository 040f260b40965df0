//! A cursor over the bytes of a request, which reads its parts in sequence.

use std::ffi::CStr;

use bytemuck::bytes_of_mut;

use crate::{MessagePart, Name, ParseError, Wire, consts};

/// The bytes that have not been read yet.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Copies a structure out, so that alignment does not matter.
    pub(crate) fn take<T: Wire>(&mut self, what: MessagePart) -> Result<T, ParseError> {
        let short = ParseError::TooShort { what, want: size_of::<T>(), got: self.0.len() };
        let (value, rest) = T::read_from_prefix(self.0).ok_or(short)?;
        self.0 = rest;
        Ok(value)
    }

    /// Reads the argument of the operation.
    pub(crate) fn arg<T: Wire>(&mut self) -> Result<T, ParseError> {
        self.take(MessagePart::Argument)
    }

    /// Reads the first `len` bytes of an argument that old kernels send in a shorter form; the rest of it is zero.
    pub(crate) fn short_arg<T: Wire>(&mut self, len: usize) -> Result<T, ParseError> {
        let short = ParseError::TooShort { what: MessagePart::Argument, want: len, got: self.0.len() };
        let (head, rest) = self.0.split_at_checked(len).ok_or(short)?;
        let mut value = T::zeroed();
        for (to, from) in bytes_of_mut(&mut value).iter_mut().zip(head) {
            *to = *from;
        }
        self.0 = rest;
        Ok(value)
    }

    /// Reads a string up to its NUL.
    pub(crate) fn cstr(&mut self, what: MessagePart, max: usize) -> Result<&'a CStr, ParseError> {
        let string = CStr::from_bytes_until_nul(self.0).map_err(|_| ParseError::MissingNul { what })?;
        let len = string.count_bytes();
        if len > max {
            return Err(ParseError::TooLong { what, len, max });
        }
        self.0 = self.0.get(len + 1..).unwrap_or_default();
        Ok(string)
    }

    /// Reads a name, which may be `.` or `..`.
    pub(crate) fn any_name(&mut self, what: MessagePart) -> Result<Name<'a>, ParseError> {
        Name::checked(self.cstr(what, consts::NAME_MAX)?, what)
    }

    /// Reads a name other than `.` and `..`.
    pub(crate) fn name(&mut self, what: MessagePart) -> Result<Name<'a>, ParseError> {
        let name = self.any_name(what)?;
        if name.is_dot() || name.is_dotdot() {
            return Err(ParseError::Dots { what });
        }
        Ok(name)
    }

    /// Reads the name of an extended attribute.
    pub(crate) fn xattr_name(&mut self) -> Result<&'a CStr, ParseError> {
        let name = self.cstr(MessagePart::XattrName, consts::XATTR_NAME_MAX)?;
        if name.is_empty() {
            return Err(ParseError::Empty { what: MessagePart::XattrName });
        }
        Ok(name)
    }

    /// Takes the remaining bytes, which must be exactly `len`.
    pub(crate) fn rest(&mut self, what: MessagePart, len: u64) -> Result<&'a [u8], ParseError> {
        if self.0.len() as u64 != len {
            return Err(ParseError::Mismatch { what, want: len, got: self.0.len() });
        }
        Ok(std::mem::take(&mut self.0))
    }

    /// Drops the remaining bytes.
    pub(crate) fn skip(&mut self) {
        self.0 = &[];
    }

    /// Returns the number of remaining bytes.
    pub(crate) const fn left(&self) -> usize {
        self.0.len()
    }

    /// Checks that no bytes remain.
    pub(crate) const fn finish(self) -> Result<(), ParseError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(ParseError::Trailing { left }),
        }
    }
}
