//! Unmounts the grafts of a mount, which would make it busy.

use std::path::PathBuf;

use shunt_fuse::mount::{MountPoint, unmount_numbered};

use crate::mount_users::mounts_below;

/// Unmounts the grafts of a mount, and mounts on top of them. A graft in use stays, and then so does the mount; a daemon that
/// continues to serve mounts the others again.
pub fn unmount(mount: &MountPoint, grafts: &[PathBuf]) {
    let is_graft = |path: &PathBuf| {
        let below = path.strip_prefix(mount.path()).ok();
        below.is_some_and(|below| {
            grafts.iter().any(|graft| graft.strip_prefix("/").is_ok_and(|graft| graft == below))
        })
    };
    for (id, path) in mounts_below(mount.old_id()).into_iter().filter(|(_, path)| is_graft(path)) {
        detach(id, path);
    }
}

/// Unmounts a mount and everything below it, deepest first.
fn detach(id: u64, path: PathBuf) {
    for (id, path) in mounts_below(id) {
        detach(id, path);
    }
    let _ = unmount_numbered(id, &path);
}
