//! The identity of the mount at a path, found without a request to its server. It is taken from `statx`, `statmount` and
//! `listmount`, or from the mount table for a mount that the kernel has marked bad.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

use super::Dev;
use super::{info, sys};

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8).
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The identity of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MountId {
    /// Not reused until the machine restarts (Linux 6.8).
    Unique(u64),
    /// May be reused after an unmount; compared together with the device.
    Reusable(u64),
}

/// The complete identity of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountIdentity {
    pub id: MountId,
    /// The id that `/proc/self/mountinfo` shows.
    pub old_id: u64,
    pub dev: Dev,
}

/// The result of a lookup by path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMount {
    pub identity: MountIdentity,
    /// The path is the root of the mount.
    pub is_root: bool,
}

/// Returns the topmost mount at `name` under `dir`; an empty name means `dir` itself.
///
/// A symbolic link in the last component is not followed. The last component causes no request to a FUSE server, so this works on
/// dead and on hung mounts.
pub(super) fn mount_at(dir: impl AsFd, name: &Path) -> Result<PathMount, Errno> {
    let dir = dir.as_fd();
    let flags =
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    // FUSE answers a request with an *empty* mask even for a user who has no access to the mount.
    let plain = statx(dir, name, flags, StatxFlags::empty())?;
    let dev = Dev { major: plain.stx_dev_major, minor: plain.stx_dev_minor };
    let old_id = plain.stx_mnt_id;
    let unique = match statx(dir, name, flags, MNT_ID_UNIQUE) {
        Ok(st) if st.stx_mask & MNT_ID_UNIQUE.bits() != 0 => Some(st.stx_mnt_id),
        Ok(_) => None,
        Err(_) => unique_of(old_id),
    };
    let id = unique.map_or(MountId::Reusable(old_id), MountId::Unique);
    let is_root = plain.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(PathMount { identity: MountIdentity { id, old_id, dev }, is_root })
}

/// Returns the topmost mount at an absolute path without symbolic links, according to the mount table. For a mount whose server
/// changed the type of its root, the kernel fails every call that looks at the mount with EIO.
pub(super) fn mount_in_table(path: &Path) -> Option<PathMount> {
    let line = info::read().ok()?.into_iter().rev().find(|line| line.mountpoint == path)?;
    let id = unique_of(line.id).map_or(MountId::Reusable(line.id), MountId::Unique);
    Some(PathMount { identity: MountIdentity { id, old_id: line.id, dev: line.dev }, is_root: true })
}

/// Returns the unique id that belongs to a reusable one, by walking the list of mounts.
fn unique_of(old: u64) -> Option<u64> {
    let mut ids = [0; 64];
    let mut after = 0;
    loop {
        let count = sys::list_mounts(after, &mut ids).ok()?;
        let page = ids.get(..count)?;
        if let Some(id) = page.iter().find(|id| sys::old_mount_id(**id).is_ok_and(|o| u64::from(o) == old)) {
            return Some(*id);
        }
        after = *page.last()?;
    }
}
