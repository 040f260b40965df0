//! Validation of changes independent of the store's state: limits on lengths and counts, and the form of names and contents.
//! Values that a node sends are not trusted. The limits of stores allow for encryption; those of users are checked separately.

use std::collections::BTreeMap;

use shunt_volume_types::object::{Content, Kind, Layout, LinkName, Object, Segment};

use crate::{Mutation, Transaction};

/// Maximum length of a name in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum length of an encrypted name.
pub(crate) const MAX_STORED_NAME_BYTES: usize = 394;
/// Maximum length of a symlink's target in bytes.
pub const MAX_TARGET_BYTES: usize = 4095;
/// Maximum length of an encrypted target.
pub(crate) const MAX_STORED_TARGET_BYTES: usize = 5514;
/// Maximum length of an extended attribute's name in bytes.
pub const MAX_XATTR_NAME_BYTES: usize = 255;
/// Maximum length of an extended attribute's value in bytes.
pub(crate) const MAX_XATTR_BYTES: usize = 65_536;
/// Maximum length of an encrypted value.
pub(crate) const MAX_STORED_XATTR_BYTES: usize = MAX_XATTR_BYTES + 40;
/// Maximum size of all extended attributes of an object: bytes of names and values, and [`XATTR_OVERHEAD_BYTES`] for each. Users of
/// one machine can set 1 MiB; several offline machines together can exceed that.
pub const MAX_XATTRS_BYTES: usize = 4 << 20;
/// Overhead counted for each attribute: see [`MAX_XATTRS_BYTES`].
pub const XATTR_OVERHEAD_BYTES: usize = 16;
/// Maximum encoded size of a transaction's mutations in bytes: a log entry passes a gateway in one message of 32 MiB.
pub(crate) const MAX_MUTATIONS_BYTES: usize = 28 << 20;
/// Maximum number of extended attributes of an object, including removed ones.
pub(crate) const MAX_XATTRS: usize = 1024;
/// Maximum number of content bytes stored inline in the metadata.
pub(crate) const MAX_INLINE_BYTES: usize = 4096;
/// Maximum number of segments stored in the metadata.
pub const MAX_SEGMENTS: usize = 1024;

/// Reason for a rejection by [`MAX_XATTRS_BYTES`].
pub(super) const XATTRS_TOO_LONG: &str = "the extended attributes of an object exceed 4 MiB";

/// Validates the mutations of a transaction as a whole; returns the reason for a rejection.
pub(super) fn validate_all(changes: &[Mutation]) -> Option<&'static str> {
    let size = postcard::serialize_with_flavor(changes, postcard::ser_flavors::Size::default());
    (size.unwrap_or(usize::MAX) > MAX_MUTATIONS_BYTES).then_some("too many changes for one message")
}

/// Reason why the store of a sealed volume denies unsealed commits: nodes would reject the whole log from there on.
pub(super) const UNSEALED: &str = "the log of this volume is sealed with its key, and these changes are not: on a node that \
     joined or mounted the volume before its upgrade, mount it again or join again; for a command, give --key-file FILE";

/// Reports whether all transactions of a batch end with a seal.
pub(super) fn are_sealed(items: &[Transaction]) -> bool {
    items.iter().all(|item| matches!(item.mutations.last(), Some(Mutation::Seal(_))))
}

/// Reports whether an object's extended attributes exceed [`MAX_XATTRS_BYTES`].
pub(super) fn are_too_long(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> bool {
    let bytes = xattrs.iter().map(|(name, value)| name.len() + value.len() + XATTR_OVERHEAD_BYTES);
    bytes.sum::<usize>() > MAX_XATTRS_BYTES
}

/// Validates one mutation; returns the reason for a rejection.
pub(super) fn validate(change: &Mutation) -> Option<&'static str> {
    match change {
        Mutation::Make(object) => validate_object(object),
        Mutation::SetContent(_, content, _) => validate_content(content),
        Mutation::SetMode(_, mode) => validate_mode(*mode),
        Mutation::SetXattr(_, name, value) => validate_xattr(name, value.as_deref()),
        Mutation::Link(at, _) | Mutation::Unlink(at) => validate_name(at),
        Mutation::SetOwner(..) | Mutation::SetGroup(..) | Mutation::SetModified(..) | Mutation::Seal(_) => {
            None
        }
    }
}

fn validate_object(object: &Object) -> Option<&'static str> {
    match object.kind {
        Kind::Symlink
            if !(1..=MAX_STORED_TARGET_BYTES).contains(&object.target.len())
                || object.target.contains(&0) =>
        {
            return Some(
                "the target of a symbolic link must have 1 to 4095 bytes (slightly more if encrypted), without NUL",
            );
        }
        Kind::Symlink => {}
        _ if !object.target.is_empty() => return Some("only symbolic links have a target"),
        _ => {}
    }
    if object.kind != Kind::Regular && object.content != Content::empty() {
        return Some("only regular files have content");
    }
    validate_mode(object.mode)
        .or_else(|| validate_content(&object.content))
        .or_else(|| object.xattrs.iter().find_map(|(name, value)| validate_xattr(name, Some(value))))
        .or_else(|| are_too_long(&object.xattrs).then_some(XATTRS_TOO_LONG))
}

fn validate_mode(mode: u16) -> Option<&'static str> {
    (mode > 0o7777).then_some("a mode has at most 12 bits")
}

fn validate_xattr(name: &[u8], value: Option<&[u8]>) -> Option<&'static str> {
    if !(1..=MAX_STORED_NAME_BYTES).contains(&name.len()) || name.contains(&0) {
        return Some(
            "the name of an extended attribute must have 1 to 255 bytes (slightly more if encrypted), without NUL",
        );
    }
    value
        .is_some_and(|value| value.len() > MAX_STORED_XATTR_BYTES)
        .then_some("the value of an extended attribute exceeds 65536 bytes (slightly more if encrypted)")
}

fn validate_name(at: &LinkName) -> Option<&'static str> {
    let name = &at.name[..];
    let fits = (1..=MAX_STORED_NAME_BYTES).contains(&name.len())
        && !name.contains(&0)
        && !name.contains(&b'/')
        && name != b"."
        && name != b"..";
    (!fits).then_some("a name must have 1 to 255 bytes (slightly more if encrypted), without `/` and NUL, and not be `.` or `..`")
}

/// Validates a content; returns the reason for a rejection.
pub fn validate_content(content: &Content) -> Option<&'static str> {
    let pieces = match &content.layout {
        Layout::Inline(bytes) if bytes.len() > MAX_INLINE_BYTES => {
            return Some("more than 4096 bytes inline");
        }
        Layout::Inline(bytes) => {
            return (bytes.len() as u64 != content.size)
                .then_some("data that does not have the recorded size");
        }
        Layout::Direct(pieces) | Layout::Indirect(pieces) => pieces,
    };
    if pieces.len() > MAX_SEGMENTS {
        return Some("more than 1024 segments in the metadata");
    }
    if pieces.iter().any(|piece| piece.length() == 0) {
        return Some("a segment of length 0");
    }
    let sum = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length()));
    match (&content.layout, sum) {
        (_, None) => Some("a size above the maximum"),
        (Layout::Direct(_), Some(sum)) if sum != content.size => {
            Some("data that does not have the recorded size")
        }
        (Layout::Indirect(_), _) if pieces.iter().any(|piece| matches!(piece, Segment::Hole { .. })) => {
            Some("a hole among the indirect lists")
        }
        _ if content.size > i64::MAX as u64 => Some("a size above the maximum"),
        _ => None,
    }
}

/// Reports whether a mutation, of a volume with plain names, exceeds the limits of users: the limits of stores allow for
/// encryption.
pub fn is_too_long(change: &Mutation) -> bool {
    let xattr = |name: &[u8], value: Option<&[u8]>| {
        name.len() > MAX_XATTR_NAME_BYTES || value.is_some_and(|value| value.len() > MAX_XATTR_BYTES)
    };
    match change {
        Mutation::Make(object) => {
            object.target.len() > MAX_TARGET_BYTES
                || object.xattrs.iter().any(|(name, value)| xattr(name, Some(value)))
        }
        Mutation::SetXattr(_, name, value) => xattr(name, value.as_deref()),
        Mutation::Link(at, _) | Mutation::Unlink(at) => at.name.len() > MAX_NAME_BYTES,
        _ => false,
    }
}
