//! Names of directory entries.

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::{MessagePart, ParseError, consts};

/// A validated name of a directory entry: not empty, no slash, no NUL, at most [`consts::NAME_MAX`] bytes, otherwise any bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a CStr);

impl<'a> Name<'a> {
    /// Validates a string.
    ///
    /// # Errors
    /// [`ParseError::Empty`], [`ParseError::Slash`] or [`ParseError::TooLong`].
    pub fn new(name: &'a CStr) -> Result<Self, ParseError> {
        let len = name.count_bytes();
        if len > consts::NAME_MAX {
            return Err(ParseError::TooLong { what: MessagePart::Name, len, max: consts::NAME_MAX });
        }
        Self::checked(name, MessagePart::Name)
    }

    /// Validates a string whose length has been checked.
    pub(crate) fn checked(name: &'a CStr, what: MessagePart) -> Result<Self, ParseError> {
        if name.is_empty() {
            return Err(ParseError::Empty { what });
        }
        if name.to_bytes().contains(&b'/') {
            return Err(ParseError::Slash { what });
        }
        Ok(Self(name))
    }

    /// Returns the name as a C string.
    #[must_use]
    pub const fn as_cstr(self) -> &'a CStr {
        self.0
    }

    /// Returns the bytes, without the NUL.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0.to_bytes()
    }

    /// Returns the name as an [`OsStr`].
    #[must_use]
    pub fn as_os_str(self) -> &'a OsStr {
        OsStr::from_bytes(self.as_bytes())
    }

    /// Reports whether the name is `.`, which occurs only in a lookup for NFS or a file handle.
    #[must_use]
    pub const fn is_dot(self) -> bool {
        matches!(self.as_bytes(), b".")
    }

    /// Reports whether the name is `..`, which occurs only in a lookup for NFS or a file handle.
    #[must_use]
    pub const fn is_dotdot(self) -> bool {
        matches!(self.as_bytes(), b"..")
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl AsRef<OsStr> for Name<'_> {
    fn as_ref(&self) -> &OsStr {
        self.as_os_str()
    }
}
