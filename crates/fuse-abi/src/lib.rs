//! The FUSE wire format, protocol 7.46: structures, opcodes and flags, parsed without panics.
//!
//! This crate has no I/O and no policy. It parses the bytes that the kernel sends into a [`Request`], and has builders for
//! replies, notifications and (for a mock kernel or a fuzzer) requests.
//!
//! - Structures have the kernel's names without the `fuse_` prefix, and the kernel's field names. Their sizes and offsets are
//!   checked against the kernel's header at compile time.
//! - Parsing is total: any byte string is either a [`Request`] or a [`ParseError`]. It allocates nothing; small structures are
//!   copied out, names and data are borrowed. The input needs no alignment.
//! - All numbers are in native byte order, as the protocol specifies.
#![deny(unsafe_code)]

pub mod build;
mod bytes;
pub mod consts;
mod cursor;
pub mod dirent;
mod error;
mod ext;
mod flags;
#[cfg(test)]
mod kernel_header;
mod layout;
mod list;
mod name;
mod notify_code;
mod opcode;
mod operation;
mod parse;
mod request;
mod structs;

pub use build::dir::DirBuilder;
pub use build::ext::ExtBuilder;
pub use build::notify;
pub use build::request::RequestBuilder;
pub use bytes::Wire;
pub use error::{MessagePart, ParseError};
pub use ext::{Extensions, SecurityContext, SecurityContexts, SupplementaryGroups};
pub use flags::*;
pub use list::{ForgetItems, Items, MappingItems};
pub use name::Name;
pub use notify_code::NotifyCode;
pub use opcode::Opcode;
pub use operation::Operation;
pub use parse::ParseContext;
pub use request::Request;
pub use structs::*;

/// The examples of the README, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
