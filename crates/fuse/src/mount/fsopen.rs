//! Mounting by `fsopen`, `fsmount` and `move_mount` (Linux 5.2). The mount exists before it is attached, so that INIT can be
//! answered first, and it is attached to exactly the inode that was checked.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::process::{getgid, getuid};

use super::ident::{self, MountIdentity};
use super::options::{Atime, MountOptions};
use super::target::Target;
use super::{MountError, MountMethod, MountPoint, Mounted};

const METHOD: MountMethod = MountMethod::Fsopen;

/// A complete mount that is not attached anywhere. Its INIT request can be read from the device.
#[derive(Debug)]
pub(super) struct UnattachedMount {
    pub device: OwnedFd,
    mount: OwnedFd,
    pub identity: MountIdentity,
}

pub(super) fn create_unattached(opts: &MountOptions, device: OwnedFd) -> Result<UnattachedMount, MountError> {
    let fs = fsopen(opts.fstype(), FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
        Errno::NODEV => MountError::NoDevice(errno.into()),
        _ => MountError::kernel(METHOD, format!("fsopen {}", opts.fstype()), errno),
    })?;
    configure(opts, &device, fs.as_fd())?;
    let mount = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes(opts))
        .map_err(|errno| explain("fsmount", errno, fs.as_fd()))?;
    let mark =
        ident::mount_at(&mount, Path::new("")).map_err(|errno| explain("statx", errno, fs.as_fd()))?.identity;
    Ok(UnattachedMount { device, mount, identity: mark })
}

fn configure(opts: &MountOptions, device: &OwnedFd, fs: BorrowedFd<'_>) -> Result<(), MountError> {
    let set = |key: &str, value: &std::ffi::OsStr| {
        fsconfig_set_string(fs, key, value).map_err(|errno| explain(&format!("option {key}"), errno, fs))
    };
    let flag =
        |key: &str| fsconfig_set_flag(fs, key).map_err(|errno| explain(&format!("option {key}"), errno, fs));

    set("source", opts.source())?;
    // As a string, because kernels before 6.11 do not take a descriptor here.
    set("fd", device.as_raw_fd().to_string().as_ref())?;
    set("rootmode", format!("{:o}", opts.root_mode()).as_ref())?;
    set("user_id", getuid().as_raw().to_string().as_ref())?;
    set("group_id", getgid().as_raw().to_string().as_ref())?;
    if let Some(subtype) = &opts.subtype {
        set("subtype", subtype.as_ref())?;
    }
    let (values, flags) = opts.fuse_keys();
    for (key, value) in values {
        set(key, value.as_ref())?;
    }
    for key in flags {
        flag(key)?;
    }
    for (on, key) in
        [(opts.read_only, "ro"), (opts.sync, "sync"), (opts.dirsync, "dirsync"), (opts.lazytime, "lazytime")]
    {
        if on {
            flag(key)?;
        }
    }
    fsconfig_create(fs).map_err(|errno| explain("create the file system", errno, fs))
}

fn attributes(opts: &MountOptions) -> MountAttrFlags {
    let mut attributes = match opts.atime_or_default() {
        Atime::Relative => MountAttrFlags::MOUNT_ATTR_RELATIME,
        Atime::Never => MountAttrFlags::MOUNT_ATTR_NOATIME,
        Atime::Strict => MountAttrFlags::MOUNT_ATTR_STRICTATIME,
    };
    for (on, attribute) in [
        (opts.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (opts.nosuid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (opts.nodev, MountAttrFlags::MOUNT_ATTR_NODEV),
        (opts.noexec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (opts.nosymfollow, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
        (opts.nodiratime, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ] {
        if on {
            attributes |= attribute;
        }
    }
    attributes
}

pub(super) fn attach(ready: UnattachedMount, target: &Target) -> Result<Mounted, MountError> {
    let UnattachedMount { device, mount, identity: mark } = ready;
    // Onto the checked file itself, not onto the file to which its path refers now.
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", &target.fd, "", flags).map_err(|errno| {
        MountError::kernel(METHOD, format!("move_mount to {}", target.path.display()), errno)
    })?;
    let point = MountPoint::new(target.path.clone(), mark);
    Ok(Mounted { device, mount: point, method: METHOD })
}

/// Makes the error, with the kernel's messages in the log of this mount.
fn explain(step: &str, errno: Errno, fs: BorrowedFd<'_>) -> MountError {
    let mut lines = Vec::new();
    let mut buf = [0; 512];
    // Each read returns one message; the kernel keeps eight at most.
    for _ in 0..8 {
        match rustix::io::read(fs, &mut buf) {
            Ok(n) if n > 0 => {
                let line = String::from_utf8_lossy(&buf[..n]);
                // "e fuse: text": the first letter is the level.
                lines.push(line.trim_end().get(2..).unwrap_or_default().to_owned());
            }
            _ => break,
        }
    }
    let log = (!lines.is_empty()).then(|| lines.join("; "));
    MountError::Kernel { method: METHOD, step: step.to_owned(), errno, log }
}
