//! What a file system author sees: the trait, its arguments and its answers.

mod answer;
mod attributes;
mod data;
mod directory;
mod filesystem;
mod id;
mod operation;
mod request;

pub use answer::{Created, Entry, Expiry, IoctlReply, Opened, Serve, StatFs, StatxReply, XattrReply};
pub use attributes::{Attributes, FileType, Timestamp};
pub use data::{Data, FileRange, WriteData};
pub(crate) use data::{Payload, SplicedPayload};
pub use directory::{DirectoryBuffer, DirectoryPlusBuffer};
pub use filesystem::{Answer, FileSystem};
pub use id::{FileHandle, LockOwner, NodeId, PollHandle, RequestId};
pub use operation::{
    CopyRange, CreateArgs, Fallocate, IoctlArgs, LockArgs, LockKind, LockRange, LockType, NewNode, OpenArgs,
    PollArgs, ReadArgs, ReleaseArgs, RenameFlags, SetAttributes, SetTime, Whence, WriteArgs, XattrSet,
};
pub use request::Request;
pub use shunt_fuse_abi::Name;
