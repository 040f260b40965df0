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

/// Name of the empty file in memory behind the loop device of an image file.
pub const LOOP_FILE_NAME: &str = "shunt-image";

/// Returns the source of a mount: that of the kernel's table, which is authoritative. Only of an image file the table has the loop
/// device instead, so that it is what the daemon says.
pub fn source(info: &MountInfo, of_daemon: &str) -> String {
    if is_image_file(info) { of_daemon.to_owned() } else { info.source.to_string_lossy().into_owned() }
}

/// Reports whether this is the mount of an image file by a loop device that stands for it.
fn is_image_file(info: &MountInfo) -> bool {
    let device = info.source.to_str().and_then(|source| source.strip_prefix("/dev/"));
    let Some(device) = device.filter(|_| info.fstype.starts_with("fuseblk.")) else { return false };
    std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file"))
        .is_ok_and(|file| file.starts_with(&format!("/memfd:{LOOP_FILE_NAME}")))
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
