//! The tables of the builtin program: attributes, names, extended attributes and their names, symbolic links, opens. The daemon
//! fills them, and the program replies from them.
//!
//! To fill a table: read the version, query the file system, store the result with that version. To change the file system: apply
//! the change, invalidate the tables, reply.

mod layout;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shunt_fuse::{Attributes, Backing, Errno, FileHandle, NodeId, Timestamp};
use shunt_fuse_abi::Attr;

use crate::{Memory, Table, Version, Versions, mix};
use layout::*;

/// The BPF program, where clang was available when this was built.
#[cfg(builtin)]
pub const PROGRAM: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/builtin.bpf.o")));
/// The BPF program, where clang was available when this was built.
#[cfg(not(builtin))]
pub const PROGRAM: Option<&[u8]> = None;

/// The cache times of the program's replies in the kernel, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Cache time of names.
    pub entries: u64,
    /// Cache time of attributes.
    pub attributes: u64,
    /// Cache time of negative entries.
    pub absent: u64,
}

impl Validity {
    /// The kernel asks the program every time, so that replies may depend on the caller.
    pub const NONE: Self = Self::all(0);

    /// Sets the same cache time for everything.
    pub(crate) const fn all(seconds: u64) -> Self {
        Self { entries: seconds, attributes: seconds, absent: seconds }
    }
}

/// The tables that daemon and program share.
#[derive(Debug)]
pub struct Tables {
    settings: Memory,
    versions: Versions,
    attrs: Table<AttrSlot>,
    names: Table<NameSlot>,
    xattrs: Table<XattrSlot>,
    links: Table<LinkSlot>,
    lists: Table<ListSlot>,
    opens: Table<OpenSlot>,
    opened: Arc<OpenCounts>,
    changes: AtomicU64,
}

/// The expiry time of stored attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttrExpiry(u64);

impl AttrExpiry {
    /// Valid until the attributes change.
    pub const CHANGED: Self = Self(u64::MAX);

    /// Valid for `time` from now on.
    pub(crate) fn after(time: Duration) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
        Self((now + time).as_nanos().try_into().unwrap_or(u64::MAX - 1))
    }
}

/// Attributes as they are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) attr: Attr,
    pub(crate) birth: Birth,
}

/// The time of birth, which the kernel requests by STATX.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Birth {
    /// The reply had no room for it.
    Unknown,
    /// The file system does not know it.
    Absent,
    At(Timestamp),
}

impl Stored {
    /// Attributes of a reply to STATX, which are complete.
    pub(crate) fn complete(attributes: &Attributes) -> Self {
        Self { attr: attributes.wire(), birth: attributes.btime.map_or(Birth::Absent, Birth::At) }
    }
}

impl From<&Attributes> for Stored {
    fn from(attributes: &Attributes) -> Self {
        Self { attr: attributes.wire(), birth: attributes.btime.map_or(Birth::Unknown, Birth::At) }
    }
}

impl From<Attr> for Stored {
    fn from(attr: Attr) -> Self {
        Self { attr, birth: Birth::Unknown }
    }
}

/// A value of the counter of all changes: a result about inodes that were not known beforehand is stored only if the counter has
/// not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeCount(u64);

fn key(node: NodeId) -> u64 {
    mix(node.0)
}

impl Tables {
    /// Makes the tables in the memory that `memory` returns for a map's name and its size in words.
    ///
    /// # Errors
    /// The errors of `memory`.
    pub fn new<E>(mut memory: impl FnMut(&str, usize) -> Result<Memory, E>) -> Result<Self, E> {
        Ok(Self {
            settings: memory("settings", 3)?,
            versions: Versions::new(memory("versions", VERSION_COUNTERS)?),
            attrs: Table::new(memory("attrs", ATTR_SLOTS * Table::<AttrSlot>::WORDS)?),
            names: Table::new(memory("names", NAME_SLOTS * Table::<NameSlot>::WORDS)?),
            xattrs: Table::new(memory("xattrs", XATTR_SLOTS * Table::<XattrSlot>::WORDS)?),
            links: Table::new(memory("links", LINK_SLOTS * Table::<LinkSlot>::WORDS)?),
            lists: Table::new(memory("lists", LIST_SLOTS * Table::<ListSlot>::WORDS)?),
            opens: Table::new(memory("opens", OPEN_SLOTS * Table::<OpenSlot>::WORDS)?),
            opened: Arc::new(OpenCounts(memory("opened", OPEN_SLOTS)?)),
            changes: AtomicU64::new(0),
        })
    }

    /// Makes tables that no program reads.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn private() -> io::Result<Self> {
        Self::new(|_, words| Memory::private(words))
    }

    /// Sets the cache times of the program's replies in the kernel. Initially nothing is cached.
    pub fn set_validity(&self, validity: Validity) {
        let values = [validity.entries, validity.attributes, validity.absent];
        for (destination, value) in self.settings.words().iter().zip(values) {
            destination.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the counter of all changes. Read it before a lookup, for [`store_found`](Self::store_found).
    pub(crate) fn change_count(&self) -> ChangeCount {
        ChangeCount(self.changes.load(Ordering::SeqCst))
    }

    /// Returns the version of the attributes of `node`. Read it before the attributes are queried.
    pub(crate) fn attributes_version(&self, node: NodeId) -> Version {
        self.versions.now(Domain::Attributes as u64, key(node))
    }

    /// Stores attributes, valid until `until`.
    pub(crate) fn store_attributes(&self, node: NodeId, since: Version, stored: Stored, until: AttrExpiry) {
        let Stored { attr, birth } = stored;
        let (birth, btime) = match birth {
            Birth::Unknown => (BIRTH_UNKNOWN, Timestamp::default()),
            Birth::Absent => (BIRTH_ABSENT, Timestamp::default()),
            Birth::At(time) => (BIRTH_STORED, time),
        };
        let (btime, btime_nsec) = (btime.seconds, btime.nanoseconds);
        let mut slot =
            AttrSlot { node: node.0, version: since.0, until: until.0, attr, btime, btime_nsec, birth };
        // The time of birth does not change within a version.
        if birth == BIRTH_UNKNOWN
            && let Some(earlier) = self.attrs.find(key(node), &slot)
            && earlier.version == since.0
        {
            (slot.btime, slot.btime_nsec, slot.birth) = (earlier.btime, earlier.btime_nsec, earlier.birth);
        }
        self.attrs.store(key(node), &slot);
    }

    /// Stores the attributes of a lookup or listing, unless anything changed since.
    pub(crate) fn store_found(&self, node: NodeId, since: ChangeCount, stored: Stored, until: AttrExpiry) {
        let version = self.attributes_version(node);
        // A change increments the counter before the version: if the version is the new one, the counter has changed.
        if self.change_count() == since {
            self.store_attributes(node, version, stored, until);
        }
    }

    /// Stores a name of a listing, unless anything changed since.
    pub(crate) fn store_listed(
        &self,
        parent: NodeId,
        name: &[u8],
        since: ChangeCount,
        node: NodeId,
        generation: u64,
    ) {
        let version = self.name_version(parent, name);
        if self.change_count() == since {
            self.store_name(parent, name, version, node, generation);
        }
    }

    /// Returns the version of `name`. Read it before the name is looked up.
    pub(crate) fn name_version(&self, parent: NodeId, name: &[u8]) -> Version {
        let hash = padded(name).map_or(0, |words: [u64; NAME_BYTES / 8]| hash_words(parent.0, &words));
        self.versions.now(Domain::Name as u64, hash)
    }

    /// Stores that `name` refers to `node`; the reply counts a lookup of it. Names of 40 bytes and more are not stored.
    pub(crate) fn store_name(
        &self,
        parent: NodeId,
        name: &[u8],
        since: Version,
        node: NodeId,
        generation: u64,
    ) {
        // The kernel cannot have forgotten a node that this reply introduces.
        let life = self.versions.now(Domain::Life as u64, key(node));
        self.put_name(parent, name, since, node, life, generation);
    }

    /// Stores a negative entry for `name`.
    pub(crate) fn store_absent(&self, parent: NodeId, name: &[u8], since: Version) {
        self.put_name(parent, name, since, NodeId(0), Version(0), 0);
    }

    fn put_name(
        &self,
        parent: NodeId,
        name: &[u8],
        since: Version,
        node: NodeId,
        life: Version,
        generation: u64,
    ) {
        let Some(name) = padded(name) else { return };
        let slot =
            NameSlot { parent: parent.0, name, version: since.0, life: life.0, node: node.0, generation };
        self.names.store(hash_words(parent.0, &name), &slot);
    }

    /// Returns the version of the extended attributes of `node`. Read it before they are queried.
    pub(crate) fn xattr_version(&self, node: NodeId) -> Version {
        self.versions.now(Domain::Xattr as u64, key(node))
    }

    /// Stores an extended attribute, or the errno of a missing one. Names of 32 bytes and more, and values of more than 64, are
    /// not stored.
    pub(crate) fn store_xattr(&self, node: NodeId, name: &CStr, since: Version, value: Result<&[u8], Errno>) {
        let Some(name) = padded(name.to_bytes()) else { return };
        let mut slot =
            XattrSlot { node: node.0, name, version: since.0, length: 0, value: [0; XATTR_VALUE_BYTES] };
        match value {
            Ok(value) => {
                let Some(destination) = slot.value.get_mut(..value.len()) else { return };
                destination.copy_from_slice(value);
                slot.length = value.len() as i64;
            }
            Err(errno) => slot.length = i64::from(-errno.raw_os_error()),
        }
        self.xattrs.store(hash_words(node.0, &name), &slot);
    }

    /// Stores the names of extended attributes, each terminated by a NUL, as visible to root or to other users. Lists of more
    /// than 88 bytes are not stored. `since` is an [`xattr_version`](Self::xattr_version).
    pub(crate) fn store_xattr_names(&self, node: NodeId, root: bool, since: Version, list: &[u8]) {
        let (root, length) = (root.into(), list.len() as u64);
        let mut slot =
            ListSlot { node: node.0, root, version: since.0, length, names: [0; XATTR_LIST_BYTES] };
        let Some(destination) = slot.names.get_mut(..list.len()) else { return };
        destination.copy_from_slice(list);
        self.lists.store(hash_words(node.0, &[root]), &slot);
    }

    /// Stores the target of a symbolic link, which is immutable. Targets of more than 224 bytes are not stored.
    pub(crate) fn store_link(&self, node: NodeId, target: &[u8]) {
        let version = self.versions.now(Domain::Life as u64, key(node)).0;
        let mut slot =
            LinkSlot { node: node.0, version, length: target.len() as u64, target: [0; LINK_TARGET_BYTES] };
        let Some(destination) = slot.target.get_mut(..target.len()) else { return };
        destination.copy_from_slice(target);
        self.links.store(key(node), &slot);
    }

    /// Returns the version of the open mode of `node`. Read it before the mode is selected.
    pub fn open_version(&self, node: NodeId) -> Version {
        self.versions.now(Domain::Open as u64, key(node))
    }

    /// Makes the program answer opens of `node` for reading with `backing`, which the caller keeps registered until
    /// [`opening_changed`](Self::opening_changed). The daemon sees neither those opens nor their releases; other requests on them
    /// carry [`KERNEL_HANDLE`].
    pub fn store_open(&self, node: NodeId, since: Version, backing: &Backing) {
        let slot =
            OpenSlot { node: node.0, version: since.0, backing_id: backing.id(), open_flags: FOPEN_NOFLUSH };
        self.opens.store(key(node), &slot);
    }

    /// Invalidates the stored open of `node`, whose I/O mode is about to change.
    pub fn opening_changed(&self, node: NodeId) {
        self.versions.changed(Domain::Open as u64, key(node));
    }

    /// Returns the counts of open files.
    pub(crate) fn open_counts(&self) -> Arc<OpenCounts> {
        self.opened.clone()
    }

    /// Invalidates the attributes of `node`.
    pub(crate) fn attributes_changed(&self, node: NodeId) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.versions.changed(Domain::Attributes as u64, key(node));
    }

    /// Invalidates the attributes and extended attributes of `node`.
    pub(crate) fn node_changed(&self, node: NodeId) {
        self.attributes_changed(node);
        self.versions.changed(Domain::Xattr as u64, key(node));
    }

    /// Invalidates `name`, which was made, removed or replaced, and the attributes of `parent`.
    pub(crate) fn name_changed(&self, parent: NodeId, name: &[u8]) {
        self.attributes_changed(parent);
        if let Some(words) = padded::<{ NAME_BYTES / 8 }>(name) {
            self.versions.changed(Domain::Name as u64, hash_words(parent.0, &words));
        }
    }

    /// Invalidates everything.
    pub(crate) fn all_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.versions.all_changed();
    }
}

/// `FOPEN_NOFLUSH`.
const FOPEN_NOFLUSH: u32 = 1 << 5;

/// The numbers of open files that programs opened, minus releases. All programs of a mount share them. Nodes with the same hash share
/// a count.
#[derive(Debug)]
pub(crate) struct OpenCounts(Memory);

impl OpenCounts {
    /// Maps the counts of an earlier program.
    ///
    /// # Errors
    /// The map has another size.
    #[cfg(feature = "bpf")]
    pub(crate) fn of_map(map: std::os::fd::BorrowedFd<'_>) -> io::Result<Self> {
        Memory::of_map(map, OPEN_SLOTS).map(Self)
    }

    fn count(&self, node: NodeId) -> &AtomicU64 {
        &self.0.words()[key(node) as usize & (OPEN_SLOTS - 1)]
    }

    pub(crate) fn get(&self, node: NodeId) -> u64 {
        self.count(node).load(Ordering::SeqCst)
    }

    pub(crate) fn decrement(&self, node: NodeId) {
        self.count(node).fetch_sub(1, Ordering::SeqCst);
    }
}

/// The handle of files that the program opened: a daemon must never return this handle itself.
pub const KERNEL_HANDLE: FileHandle = FileHandle(0xffff_ffff_5348_5558);
