//! Recognises the mounts of Shunt in the mount table.

use std::path::Path;

use shunt_fuse::mount::{MountInfo, MountPoint};

use crate::error::{Code, Failure, Result};

/// The kind of a mount: `mirror` for the type `fuse.shunt.mirror`; none if it is not Shunt's.
pub fn kind(info: &MountInfo) -> Option<&str> {
    info.subtype().strip_prefix("shunt.")
}

/// The user who mounted it.
pub fn owner(info: &MountInfo) -> Option<u32> {
    info.super_options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
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
