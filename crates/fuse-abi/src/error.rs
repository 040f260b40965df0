//! Errors of the parser, and the errno to reply with.

use std::fmt;

use crate::Opcode;

const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const ENAMETOOLONG: i32 = 36;
const ENOSYS: i32 = 38;

/// A part of a request, named in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessagePart {
    /// [`crate::InHeader`].
    Header,
    /// The fixed structure after the header.
    Argument,
    /// A name of a directory entry.
    Name,
    /// The second name of a rename.
    NewName,
    /// The target of a symbolic link.
    Target,
    /// The name of an extended attribute.
    XattrName,
    /// The data at the end.
    Data,
    /// The list of items at the end.
    Items,
    /// An extension.
    Extension,
    /// A security context in an extension.
    SecurityContext,
    /// The list of supplementary groups in an extension.
    Groups,
}

impl fmt::Display for MessagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Argument => "argument",
            Self::Name => "name",
            Self::NewName => "new name",
            Self::Target => "link target",
            Self::XattrName => "attribute name",
            Self::Data => "data",
            Self::Items => "items",
            Self::Extension => "extension",
            Self::SecurityContext => "security context",
            Self::Groups => "supplementary groups",
        })
    }
}

/// An error of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The bytes end within a part.
    TooShort {
        /// The part.
        what: MessagePart,
        /// Bytes needed.
        want: usize,
        /// Bytes available.
        got: usize,
    },
    /// The length in the header differs from the length of the message.
    Length {
        /// Length in the header.
        header: u32,
        /// Length of the message.
        got: usize,
    },
    /// The opcode is unknown.
    UnknownOpcode(u32),
    /// The opcode is not the expected one.
    WrongOpcode {
        /// The opcode expected.
        want: Opcode,
        /// The opcode found.
        got: Opcode,
    },
    /// A string has no terminating NUL.
    MissingNul {
        /// The part.
        what: MessagePart,
    },
    /// A string is empty where that is not allowed.
    Empty {
        /// The part.
        what: MessagePart,
    },
    /// A name contains a slash.
    Slash {
        /// The part.
        what: MessagePart,
    },
    /// A name is `.` or `..` where that is not allowed.
    Dots {
        /// The part.
        what: MessagePart,
    },
    /// A string exceeds its limit.
    TooLong {
        /// The part.
        what: MessagePart,
        /// Its length in bytes, without the NUL.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A size or count in the argument does not match the bytes that follow.
    Mismatch {
        /// The part.
        what: MessagePart,
        /// Bytes announced.
        want: u64,
        /// Bytes available.
        got: usize,
    },
    /// Bytes remain after the last part.
    Trailing {
        /// Number of bytes.
        left: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { what, want, got } => {
                write!(f, "{what} too short: {got} bytes instead of {want}")
            }
            Self::Length { header, got } => {
                write!(f, "length {header} in the header differs from the message length {got}")
            }
            Self::UnknownOpcode(opcode) => write!(f, "unknown opcode {opcode}"),
            Self::WrongOpcode { want, got } => write!(f, "unexpected opcode {got} instead of {want}"),
            Self::MissingNul { what } => write!(f, "{what} has no terminating NUL"),
            Self::Empty { what } => write!(f, "{what} is empty"),
            Self::Slash { what } => write!(f, "{what} contains a slash"),
            Self::Dots { what } => write!(f, "{what} is `.` or `..`"),
            Self::TooLong { what, len, max } => write!(f, "{what} of {len} bytes is longer than {max}"),
            Self::Mismatch { what, want, got } => {
                write!(f, "{what}: {want} bytes announced, {got} available")
            }
            Self::Trailing { left } => write!(f, "{left} bytes after the end of the message"),
        }
    }
}

impl std::error::Error for ParseError {}

impl ParseError {
    /// Returns the errno to reply with: ENOSYS for an unknown opcode (which the kernel may cache), ENAMETOOLONG and ERANGE for
    /// long names, otherwise EINVAL.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::UnknownOpcode(_) => ENOSYS,
            Self::TooLong { what: MessagePart::XattrName, .. } => ERANGE,
            Self::TooLong { .. } => ENAMETOOLONG,
            _ => EINVAL,
        }
    }
}
