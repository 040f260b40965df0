//! The mounts of Shunt at paths of the host, from the kernel's mount table. No request is sent to a mount, so that dead and hung ones are
//! found too.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use shunt_fuse::mount::{Dev, MountInfo, fuse_mounts};

use crate::status::{Result, internal};

/// The path as the mount table has it: symbolic links of its directory are resolved, but not its last component, which may be a dead
/// mount.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| fs::canonicalize(parent).ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// The topmost mount of Shunt at a path.
///
/// # Errors
/// INTERNAL if the table cannot be read.
pub(crate) fn at(path: &Path) -> Result<Option<MountInfo>> {
    let path = resolve(path);
    Ok(all()?.into_iter().rfind(|mount| mount.mountpoint == path))
}

/// The paths at which a file system is mounted, except one.
///
/// # Errors
/// INTERNAL if the table cannot be read.
pub(crate) fn others(dev: Dev, except: &Path) -> Result<Vec<PathBuf>> {
    let except = resolve(except);
    let mounts = all()?.into_iter().filter(|mount| mount.dev == dev && mount.mountpoint != except);
    Ok(mounts.map(|mount| mount.mountpoint).collect())
}

fn all() -> Result<Vec<MountInfo>> {
    let mut mounts = fuse_mounts().map_err(internal)?;
    mounts.retain(|mount| mount.subtype().starts_with("shunt."));
    Ok(mounts)
}

/// Reports whether a mount is read-only, by itself.
pub(crate) fn is_read_only(mount: &MountInfo) -> bool {
    mount.options.split(',').any(|option| option == "ro")
}

/// The options of a mount that a remount has to repeat, because it removes those that it does not name.
pub(crate) fn flags(mount: &MountInfo) -> MountFlags {
    let flag = |option| match option {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    mount.options.split(',').map(flag).fold(MountFlags::empty(), MountFlags::union)
}
