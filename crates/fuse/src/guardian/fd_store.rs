//! The descriptors that a guardian keeps for the next server, each under a name.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Class {
    /// `/dev/fuse` (id 0) and its clones. Closing a clone would end the requests that were read from it.
    Device = 0,
    /// The state of the session.
    State = 1,
    /// The log file.
    Log = 2,
    /// The file system's own; it picks the ids.
    FileSystem = 3,
    /// An inode of the file system, by its id.
    Node = 4,
}

impl Class {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Class::Device, Class::State, Class::Log, Class::FileSystem, Class::Node]
            .into_iter()
            .find(|class| *class as u32 == number)
    }
}

/// The name of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) class: Class,
    pub(crate) id: u64,
}

/// Descriptors by name.
pub(crate) type Held = BTreeMap<Key, OwnedFd>;
