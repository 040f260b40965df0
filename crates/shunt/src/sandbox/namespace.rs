//! An empty mount namespace: the daemon already has open what it needs of the file tree.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount,
    open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};
use rustix::thread::{CapabilitySet, UnshareFlags};

/// Reports whether this process may create one.
pub fn possible() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT))
}

/// The capabilities for acting on behalf of a mirror's users, and for opening inodes by handle. All others are dropped.
pub(super) const MIRROR_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP);

/// Leaves the namespaces of network, message queues and mounts. The new root is an empty, read-only directory with two mounts:
/// `/dev/null`, and the part of `/proc` of this process, by which descriptors are reopened. Must be called before any other
/// thread starts.
///
/// # Errors
/// The errors of its system calls. The process is in an undefined namespace then, and must not continue.
pub fn enter() -> io::Result<()> {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: there is no other thread that relies on a shared working directory.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let (process, null) = (detached("/proc/self")?, detached("/dev/null")?);
    // Any existing directory: it is covered in this namespace only.
    let root = Path::new("/proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("shunt", root, "tmpfs", flags, c"size=64k,nr_inodes=16,mode=555")?;
    std::fs::create_dir_all(root.join("proc/self"))?;
    std::fs::create_dir(root.join("dev"))?;
    std::fs::File::create(root.join("dev/null"))?;
    attach(&process, &root.join("proc/self"))?;
    attach(&null, &root.join("dev/null"))?;
    chdir(root)?;
    // pivot_root stacks the old root on top of the new one, where it is then unmounted.
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    chdir(c"/")?;
    rustix::mount::mount_remount(c"/", flags | MountFlags::RDONLY, c"")?;
    Ok(())
}

/// Drops all capabilities but those that a mirror needs.
///
/// # Errors
/// The errors of `capset(2)`.
pub fn drop_rights() -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.permitted &= MIRROR_CAPABILITIES;
    sets.effective &= MIRROR_CAPABILITIES;
    sets.inheritable = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

fn detached(path: &str) -> io::Result<OwnedFd> {
    Ok(open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

fn attach(tree: &OwnedFd, target: &Path) -> io::Result<()> {
    Ok(move_mount(tree.as_fd(), c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}
