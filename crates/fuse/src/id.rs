//! Identifiers that travel over the wire, each with a type of its own.

use std::fmt;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// The number by which kernel and server name an inode. Valid from the answer that introduced it until FORGET.
    NodeId
}
id! {
    /// The server's own mark on an open file or directory; the kernel hands it back untouched.
    FileHandle
}
id! {
    /// The kernel's mark on a request, unique while the request lives.
    RequestId
}
id! {
    /// The owner of a POSIX lock: an opaque, scrambled pointer of the kernel.
    LockOwner
}
id! {
    /// The kernel's mark on a poll that wants to be told of readiness.
    PollHandle
}

impl NodeId {
    /// The root of every FUSE file system.
    pub const ROOT: NodeId = NodeId(1);
}
