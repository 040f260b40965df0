//! Newtypes for the 64-bit identifiers of the FUSE protocol, so that they cannot be mixed up.

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
    /// The number by which kernel and server identify an inode. Valid from the reply that introduced it until FORGET.
    NodeId
}
id! {
    /// The server's identifier of an open file or directory; the kernel returns it unchanged with each request on that file.
    FileHandle
}
id! {
    /// The kernel's identifier of a request, unique while the request is in flight.
    RequestId
}
id! {
    /// The owner of a POSIX lock: an opaque, scrambled pointer of the kernel.
    LockOwner
}
id! {
    /// The kernel's identifier of a poll that requests a notification of readiness.
    PollHandle
}

impl NodeId {
    /// The root directory of every FUSE file system.
    pub const ROOT: NodeId = NodeId(1);
}
