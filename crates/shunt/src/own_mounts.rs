//! Recognises the mounts of Shunt in the mount table.

use std::path::Path;

use shunt_fuse::mount::{MountError, MountInfo, MountPoint, fuse_mounts};

use crate::control;
use crate::error::{Code, Failure, Result};

/// The kind of a mount: `mirror` for the type `fuse.shunt.mirror`; none if it is not Shunt's.
pub fn kind(info: &MountInfo) -> Option<&str> {
    info.subtype().strip_prefix("shunt.")
}

/// The user who mounted it.
pub fn owner(info: &MountInfo) -> Option<u32> {
    info.super_options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
}

/// Returns the mounts of Shunt in this namespace, oldest first.
///
/// # Errors
/// Errors of reading the mount table.
pub fn all() -> std::result::Result<Vec<MountInfo>, MountError> {
    let mut mounts = fuse_mounts()?;
    mounts.retain(|info| kind(info).is_some());
    Ok(mounts)
}

/// Returns the mount as a target of queries. Every FUSE mount has an owner; the fallback id belongs to nobody.
pub fn query_target(info: &MountInfo) -> control::Mount {
    control::Mount { dev: info.dev, owner: owner(info).unwrap_or(u32::MAX) }
}

/// Finds Shunt's mount at a path, dead or alive, without a request to it.
///
/// # Errors
/// There is none, or it is a mount of another file system.
pub fn find(path: &Path) -> Result<(MountPoint, MountInfo)> {
    let (mount, info) = MountPoint::find_with_info(path)?;
    if kind(&info).is_none() {
        return Err(Failure::new(
            Code::NotShunt,
            format_args!(
                "{} is a mount of type {}, not of shunt: use umount(8)",
                path.display(),
                info.fstype
            ),
        ));
    }
    Ok((mount, info))
}
