//! A mock kernel: it speaks the FUSE protocol to any server over a socket, so that protocol tests, property tests and fuzzing
//! need no mount and no privilege.
//!
//! ```
//! use shunt_fuse::{Config, Profile};
//! use shunt_fuse_mock::{Served, memfs::MemFs};
//!
//! let kernel = Served::new(MemFs::new(), Config::new(Profile::Passthrough));
//! let made = kernel.create(1, "hello", 0o644).unwrap();
//! assert_eq!(kernel.write(&made.file, 0, b"world").unwrap(), 5);
//! assert_eq!(kernel.read(&made.file, 0, 100).unwrap(), b"world");
//! kernel.release(made.file).unwrap();
//! kernel.finish();
//! ```
//!
//! It models INIT, requests out of order, INTERRUPT with its EAGAIN, the inode cache with its lookup counts and FORGET, I/O modes
//! of open files, stored pages, and the kernel's validation of every reply. A violated rule is recorded as one line;
//! [`MockKernel::finish`] fails on the first.
//!
//! It does not model the ioctls of `/dev/fuse` (so no passthrough), splice, and the errors that a write of a reply or a
//! notification can return: a socket accepts everything, until [`MockKernel::refuse_replies`] makes it accept nothing. A RESEND
//! is recorded without effect.

#![forbid(unsafe_code)]

pub mod memfs;

mod caller;
mod calls;
mod check;
mod icache;
mod kernel;
mod notification;
mod offer;
mod pending;
mod served;
mod wire;

pub use caller::Caller;
pub use calls::{CreatedFile, DirEntry, OpenFile};
pub use check::Expected;
pub use icache::{CachedInode, NodeCache};
pub use kernel::{Event, MockKernel};
pub use notification::Notification;
pub use offer::Offer;
pub use pending::{Pending, REPLY_TIMEOUT};
pub use served::Served;

/// The examples of the README, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
