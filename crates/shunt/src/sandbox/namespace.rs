//! A view of the file tree in which there is nothing: what a daemon needs of it is open already.

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

/// Whether this process may have a view of its own.
pub fn possible() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT))
}

/// What a mirror does in its callers' names, and to reach inodes by handle. All else is given up.
pub(super) const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP);

/// Leaves network, message queues and file tree. What there is of the last is an empty directory that cannot be written,
/// with two things in it: `/dev/null`, and of `/proc` the part of this process, by which descriptors are opened once more.
/// Before any other thread is started.
///
/// # Errors
/// Those of the calls that it takes. The process may be anywhere then, and must not go on.
pub fn enter() -> io::Result<()> {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: there is no other thread, so nobody counts on sharing the working directory.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let (process, null) = (detached("/proc/self")?, detached("/dev/null")?);
    // Any directory that there is: it is covered for us alone.
    let place = Path::new("/proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("shunt", place, "tmpfs", flags, c"size=64k,nr_inodes=16,mode=555")?;
    std::fs::create_dir_all(place.join("proc/self"))?;
    std::fs::create_dir(place.join("dev"))?;
    std::fs::File::create(place.join("dev/null"))?;
    attach(&process, &place.join("proc/self"))?;
    attach(&null, &place.join("dev/null"))?;
    chdir(place)?;
    // The old root comes to lie upon the new one, and goes.
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    chdir(c"/")?;
    rustix::mount::mount_remount(c"/", flags | MountFlags::RDONLY, c"")?;
    Ok(())
}

/// Gives up all rights but those that a mirror needs.
///
/// # Errors
/// Those of `capset(2)`.
pub fn drop_rights() -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.permitted &= KEPT;
    sets.effective &= KEPT;
    sets.inheritable = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

fn detached(path: &str) -> io::Result<OwnedFd> {
    Ok(open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    Ok(move_mount(tree.as_fd(), c"", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}
