//! The descriptors that a guardian stores for the next server, each under a key.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum DescriptorClass {
    /// `/dev/fuse` (id 0) and its clones. Closing a clone would abort the requests that were read from it.
    Device = 0,
    /// The memory files of the session: its state (id 0), and the records of kept backing files (id 1).
    State = 1,
    /// The log file.
    Log = 2,
    /// A descriptor of the file system, which assigns the id.
    FileSystem = 3,
    /// An inode of the file system, by its node id.
    Node = 4,
    /// The sockets of a guest's device: the one on which emulators connect (id 0), and the one from which a server receives the
    /// connections (id 1).
    Guest = 5,
}

impl DescriptorClass {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [
            DescriptorClass::Device,
            DescriptorClass::State,
            DescriptorClass::Log,
            DescriptorClass::FileSystem,
            DescriptorClass::Node,
            DescriptorClass::Guest,
        ]
        .into_iter()
        .find(|class| *class as u32 == number)
    }
}

/// The key of a stored descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) class: DescriptorClass,
    pub(crate) id: u64,
}

/// Key of the state of a session.
pub(crate) const SESSION_STATE: Key = Key { class: DescriptorClass::State, id: 0 };
/// Key of the socket on which emulators connect.
#[cfg(feature = "virtiofs")]
pub(crate) const GUEST_LISTENER: Key = Key { class: DescriptorClass::Guest, id: 0 };
/// Key of the socket from which a server receives the connections of emulators.
pub(crate) const GUEST_CONNECTIONS: Key = Key { class: DescriptorClass::Guest, id: 1 };

/// Stored descriptors by key.
pub(crate) type StoredDescriptors = BTreeMap<Key, OwnedFd>;
