//! Mounting by `mount(2)`, for kernels and sandboxes without `fsopen`.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getgid, getuid};

use super::options::{Atime, MountOptions};
use super::target::Target;
use super::{MountError, MountMethod, MountPoint, Mounted};

const METHOD: MountMethod = MountMethod::Classic;

pub(super) fn attach(opts: &MountOptions, device: OwnedFd, target: &Target) -> Result<Mounted, MountError> {
    let fstype = match &opts.subtype {
        Some(subtype) => format!("{}.{subtype}", opts.fstype()),
        None => opts.fstype().to_owned(),
    };
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        opts.root_mode(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    let (values, words) = opts.fuse_keys();
    for (key, value) in values {
        data.push_str(&format!(",{key}={value}"));
    }
    for word in words {
        data.push(',');
        data.push_str(word);
    }
    let data = CString::new(data).map_err(|_| MountError::option("-o", "must not contain a NUL"))?;
    rustix::mount::mount(opts.source(), &target.path, &fstype, flags(opts), data.as_c_str()).map_err(
        |errno| match errno {
            Errno::NODEV => MountError::NoDevice(errno.into()),
            _ => MountError::kernel(METHOD, format!("mount on {}", target.path.display()), errno),
        },
    )?;
    let mount = MountPoint::find(&target.path).inspect_err(|_| {
        let _ = rustix::mount::unmount(&target.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    })?;
    Ok(Mounted { device, mount, method: METHOD })
}

fn flags(opts: &MountOptions) -> MountFlags {
    let mut flags = match opts.atime_or_default() {
        Atime::Relative => MountFlags::RELATIME,
        Atime::Never => MountFlags::NOATIME,
        Atime::Strict => MountFlags::STRICTATIME,
    };
    for (on, flag) in [
        (opts.read_only, MountFlags::RDONLY),
        (opts.nosuid, MountFlags::NOSUID),
        (opts.nodev, MountFlags::NODEV),
        (opts.noexec, MountFlags::NOEXEC),
        (opts.nosymfollow, MountFlags::NOSYMFOLLOW),
        (opts.nodiratime, MountFlags::NODIRATIME),
        (opts.lazytime, MountFlags::LAZYTIME),
        (opts.sync, MountFlags::SYNCHRONOUS),
        (opts.dirsync, MountFlags::DIRSYNC),
    ] {
        if on {
            flags |= flag;
        }
    }
    flags
}
