//! The interface for authors of file systems: the trait, its arguments and its replies.

mod answer;
mod attributes;
mod device_number;
mod directory;
mod operation;

pub use answer::{Created, Entry, Expiry, IoctlReply, Opened, Serve, StatFs, StatxReply, XattrReply};
pub use attributes::{Attributes, FileType, Timestamp};
pub use device_number::{decode_device, encode_device};
pub use directory::{DirectoryBuffer, DirectoryPlusBuffer};
pub use operation::{
    CopyRange, CreateArgs, Fallocate, IoctlArgs, LockArgs, LockKind, LockRange, LockType, NewNode, OpenArgs,
    PollArgs, ReadArgs, ReleaseArgs, RenameFlags, SetAttributes, SetTime, Whence, WriteArgs, XattrSet,
};
pub use shunt_fuse_abi::Name;
