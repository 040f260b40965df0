//! Which mounts are ours.

use std::path::Path;

use shunt_fuse::mount::{MountInfo, MountPoint};

use crate::error::{Code, Failure, Result};

/// The file system of a mount of ours: `mirror` of the type `fuse.shunt.mirror`.
pub fn kind(info: &MountInfo) -> Option<&str> {
    info.subtype().strip_prefix("shunt.")
}

/// The user who mounted it.
pub fn owner(info: &MountInfo) -> Option<u32> {
    info.super_options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
}

/// The mount of ours at a path, dead or alive, without a request to it.
///
/// # Errors
/// There is none, or another file system is there.
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
