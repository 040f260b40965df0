//! The slots of the tables in `kernel/fuse_ext/bpf/tables.h`, in Rust. Both files must be changed together.

use bytemuck::{Pod, Zeroable};
use shunt_fuse_abi::Attr;

use crate::Slot;

/// Size of a stored name, including the terminating NUL.
pub(super) const NAME_BYTES: usize = 40;
/// Size of a stored name of an extended attribute, including the terminating NUL.
pub(super) const XATTR_NAME_BYTES: usize = 32;
pub(super) const XATTR_VALUE_BYTES: usize = 64;
pub(super) const LINK_TARGET_BYTES: usize = 224;
pub(super) const XATTR_LIST_BYTES: usize = 88;

pub(super) const VERSION_COUNTERS: usize = 1 << 17;
pub(super) const ATTR_SLOTS: usize = 1 << 17;
pub(super) const NAME_SLOTS: usize = 1 << 17;
pub(super) const XATTR_SLOTS: usize = 1 << 16;
pub(super) const LINK_SLOTS: usize = 1 << 13;
pub(super) const LIST_SLOTS: usize = 1 << 15;
pub(super) const OPEN_SLOTS: usize = 1 << 14;

/// The reply did not say whether the file system knows times of birth.
pub(super) const BIRTH_UNKNOWN: u32 = 0;
/// The file system knows no time of birth.
pub(super) const BIRTH_ABSENT: u32 = 1;
pub(super) const BIRTH_STORED: u32 = 2;

/// `enum domain`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Domain {
    Attributes = 1,
    Life,
    Xattr,
    Name,
    Open,
}

macro_rules! slots {
    ($($(#[$meta:meta])* $name:ident($key_words:expr) { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type),* }

        impl Slot for $name {
            const KEY_WORDS: usize = $key_words;
        }
    )*};
}

slots! {
    /// The attributes of an inode. `until`: expiry time on the monotonic clock in nanoseconds, or `u64::MAX`.
    /// `birth`: [`BIRTH_UNKNOWN`] or another of these numbers.
    AttrSlot(1) {
        node: u64,
        version: u64,
        until: u64,
        attr: Attr,
        btime: i64,
        btime_nsec: u32,
        birth: u32,
    }
    /// A name, positive or negative.
    NameSlot(1 + NAME_BYTES / 8) {
        parent: u64,
        name: [u64; NAME_BYTES / 8],
        version: u64,
        life: u64,
        node: u64,
        generation: u64,
    }
    /// An extended attribute, or that it does not exist.
    XattrSlot(1 + XATTR_NAME_BYTES / 8) {
        node: u64,
        name: [u64; XATTR_NAME_BYTES / 8],
        version: u64,
        length: i64,
        value: [u8; XATTR_VALUE_BYTES],
    }
    /// The target of a symbolic link.
    LinkSlot(1) { node: u64, version: u64, length: u64, target: [u8; LINK_TARGET_BYTES] }
    /// The names of extended attributes, as visible to root (1) or to other users (0).
    ListSlot(2) { node: u64, root: u64, version: u64, length: u64, names: [u8; XATTR_LIST_BYTES] }
    /// The backing file for opening a file for reading.
    OpenSlot(1) { node: u64, version: u64, backing_id: u32, open_flags: u32 }
}

/// Encodes a name as words, padded with zeroes; `None` where there is no room for it and its NUL.
pub(super) fn padded<const WORDS: usize>(name: &[u8]) -> Option<[u64; WORDS]> {
    let mut words = [0u64; WORDS];
    let bytes = bytemuck::bytes_of_mut(&mut words);
    if name.is_empty() || name.len() >= bytes.len() {
        return None;
    }
    bytes[..name.len()].copy_from_slice(name);
    Some(words)
}

/// Hashes a key of several words, like `hash_words` in the program.
pub(super) fn hash_words(first: u64, words: &[u64]) -> u64 {
    words.iter().fold(crate::mix(first), |hash, word| crate::mix(hash ^ word))
}
