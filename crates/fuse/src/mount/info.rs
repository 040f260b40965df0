//! Parser of the mount table, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::{Dev, MountError};

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The reusable id; see [`MountId`](super::MountId).
    pub id: u64,
    /// The device number of the file system.
    pub dev: Dev,
    /// Path of the mount point, as seen from the root of this process.
    pub mountpoint: PathBuf,
    /// The options of the mount: `rw`, `nosuid`, `relatime`, ...
    pub options: String,
    /// The type: `fuse`, `fuse.SUBTYPE`, `fuseblk`, `fuseblk.SUBTYPE`, or another.
    pub fstype: String,
    /// The source.
    pub source: OsString,
    /// The options of the file system: `user_id=0`, `default_permissions`, ...
    pub super_options: String,
}

impl MountInfo {
    /// Reports whether this is a FUSE file system.
    pub fn is_fuse(&self) -> bool {
        let kind = self.fstype.split('.').next().unwrap_or_default();
        matches!(kind, "fuse" | "fuseblk")
    }

    /// Returns the part of the type after the first dot, empty if there is none.
    pub fn subtype(&self) -> &str {
        self.fstype.split_once('.').map_or("", |(_, subtype)| subtype)
    }
}

/// Returns all FUSE mounts of this mount namespace, in the order of the table.
///
/// # Errors
///
/// [`MountError::State`] if `/proc` is not mounted.
pub fn fuse_mounts() -> Result<Vec<MountInfo>, MountError> {
    let mut mounts = read()?;
    mounts.retain(MountInfo::is_fuse);
    Ok(mounts)
}

/// Reads the whole table. Lines that cannot be parsed are skipped.
pub(super) fn read() -> Result<Vec<MountInfo>, MountError> {
    let table = fs::read("/proc/self/mountinfo")
        .map_err(|error| MountError::State { what: "/proc/self/mountinfo", error })?;
    Ok(table.split(|b| *b == b'\n').filter_map(parse).collect())
}

/// Parses `id parent major:minor root mountpoint options [optional...] - type source super-options`.
fn parse(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|b| *b == b' ');
    let mut next = || fields.next();
    let id = number(next()?)?;
    let _parent = next()?;
    let mut dev = next()?.split(|b| *b == b':');
    let dev = Dev { major: number(dev.next()?)?, minor: number(dev.next()?)? };
    let _root = next()?;
    let mountpoint = unescape(next()?);
    let options = String::from_utf8_lossy(next()?).into_owned();
    while next()? != b"-" {}
    let fstype = String::from_utf8(unescape(next()?)).ok()?;
    let source = OsString::from_vec(unescape(next()?));
    let super_options = String::from_utf8_lossy(next().unwrap_or_default()).into_owned();
    let mountpoint = PathBuf::from(OsString::from_vec(mountpoint));
    Some(MountInfo { id, dev, mountpoint, options, fstype, source, super_options })
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Decodes a path of a mount table. The kernel writes blanks, tabs, newlines, backslashes and `#` as a backslash and three octal
/// digits.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) = (first, tail) {
            out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = br"36 35 0:98 / /mnt/a\040b rw,noatime shared:1 master:2 - fuse.shunt.mirror /src\134x rw,user_id=0";
        let info = parse(line).unwrap();
        assert_eq!(info.id, 36);
        assert_eq!(info.dev, Dev { major: 0, minor: 98 });
        assert_eq!(info.mountpoint, PathBuf::from("/mnt/a b"));
        assert_eq!((info.options.as_str(), info.super_options.as_str()), ("rw,noatime", "rw,user_id=0"));
        assert!(info.is_fuse());
        assert_eq!(info.subtype(), "shunt.mirror");
        assert_eq!(info.source, r"/src\x");
    }

    #[test]
    fn nonsense_is_left_out() {
        for line in
            [&b""[..], b"1 2 3", b"x 1 0:1 / /a rw - fuse s rw", b"1 2 0:3 / /a rw shared:1 fuse s rw"]
        {
            assert_eq!(parse(line), None);
        }
        assert!(!parse(b"1 2 0:3 / /a rw - fusectl s rw").unwrap().is_fuse());
    }
}
