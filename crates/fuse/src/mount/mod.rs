//! Mounting, finding and unmounting FUSE file systems.
//!
//! [`prepare`] selects a mount method and [`Detached::attach`] makes the file system reachable. [`mount`] does both. A
//! [`MountPoint`] then identifies the mount by its id, not by its path, because a path may be covered by another mount or reused
//! after an unmount.
//!
//! Three methods are tried, in this order:
//!
//! 1. `fsopen`/`fsmount`/`move_mount` (Linux 5.2): INIT can be answered before any process sees the mount;
//! 2. `mount(2)`, for kernels and sandboxes without the first;
//! 3. the set-user-id helper `fusermount3`, for unprivileged users.

pub mod bdi;
mod classic;
mod connection;
mod dev;
mod error;
mod fsopen;
mod helper;
mod ident;
mod info;
mod offer;
mod options;
mod parse;
mod point;
pub(crate) mod sys;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod unmount;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub use dev::Dev;
pub use error::MountError;
pub use ident::MountId;
pub(crate) use ident::MountIdentity;
pub use info::{MountInfo, fuse_mounts, unescape};
pub use offer::{KernelOffer, kernel_offer};
pub use options::{Atime, MountOptions, RootKind};
pub use point::MountPoint;
pub use unmount::{Unmount, unmount_numbered};

use target::Target;

/// The method by which a file system was (or is to be) mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MountMethod {
    /// `fsopen`, `fsmount`, `move_mount`.
    Fsopen,
    /// `mount(2)`.
    Classic,
    /// The helper `fusermount3`.
    Fusermount,
}

impl fmt::Display for MountMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MountMethod::Fsopen => "fsopen",
            MountMethod::Classic => "mount(2)",
            MountMethod::Fusermount => "fusermount3",
        })
    }
}

/// A mounted file system and its FUSE device.
#[derive(Debug)]
pub struct Mounted {
    /// The open `/dev/fuse` of this mount. Closing the last copy aborts the connection.
    pub device: OwnedFd,
    /// The path and the identity of the mount.
    pub mount: MountPoint,
    /// The method by which it was mounted.
    pub method: MountMethod,
}

/// A file system that is not yet reachable by any path; dropping it removes it without a trace.
#[derive(Debug)]
pub struct Detached {
    opts: MountOptions,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Fsopen(fsopen::UnattachedMount),
    Classic(OwnedFd),
    Fusermount,
}

/// Selects a mount method and executes all steps of it that need no mount point.
///
/// # Errors
///
/// No `/dev/fuse`, options that the kernel refuses, or no method to mount at all.
pub fn prepare(opts: &MountOptions) -> Result<Detached, MountError> {
    opts.check()?;
    let kind = match opts.method {
        Some(MountMethod::Fsopen) => Kind::Fsopen(fsopen::create_unattached(opts, sys::open_device()?)?),
        Some(MountMethod::Classic) => Kind::Classic(sys::open_device()?),
        Some(MountMethod::Fusermount) => Kind::Fusermount,
        None => pick(opts)?,
    };
    Ok(Detached { opts: opts.clone(), kind })
}

fn pick(opts: &MountOptions) -> Result<Kind, MountError> {
    let device = match sys::open_device() {
        Ok(device) => device,
        // The helper itself decides whether the caller may mount.
        Err(MountError::DeviceDenied) => return Ok(Kind::Fusermount),
        Err(other) => return Err(other),
    };
    // A device file can be connected once only, even if the mount fails later: each attempt opens its own.
    match fsopen::create_unattached(opts, device) {
        Ok(ready) => Ok(Kind::Fsopen(ready)),
        Err(e) if e.is_missing_call() || e.is_permission() => Ok(Kind::Classic(sys::open_device()?)),
        Err(e) => Err(e),
    }
}

impl Detached {
    /// Returns the device, if its INIT request can be answered before [`attach`](Self::attach).
    ///
    /// `None` means that `attach` makes the mount point and the connection in one step, and the first request can be read only
    /// after it. A server whose mount must reply from its first moment duplicates this device (`try_clone_to_owned`), answers
    /// INIT, then attaches.
    pub fn device(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Fsopen(ready) => Some(ready.device.as_fd()),
            Kind::Classic(_) | Kind::Fusermount => None,
        }
    }

    /// Returns the identity of the mount, where it is known before attaching.
    pub(crate) fn mark(&self) -> Option<MountIdentity> {
        match &self.kind {
            Kind::Fsopen(ready) => Some(ready.identity),
            Kind::Classic(_) | Kind::Fusermount => None,
        }
    }

    /// Returns the method that `attach` will try first.
    pub fn method(&self) -> MountMethod {
        match &self.kind {
            Kind::Fsopen(_) => MountMethod::Fsopen,
            Kind::Classic(_) => MountMethod::Classic,
            Kind::Fusermount => MountMethod::Fusermount,
        }
    }

    /// Attaches the file system at `mountpoint`.
    ///
    /// # Errors
    ///
    /// The mount point is missing, of the wrong type or holds a dead mount; or no method was permitted.
    pub fn attach(self, mountpoint: &Path) -> Result<Mounted, MountError> {
        let Detached { opts, kind } = self;
        let target = Target::open(mountpoint, opts.root)?;
        let forced = opts.method.is_some();
        match kind {
            Kind::Fsopen(ready) => fsopen::attach(ready, &target),
            Kind::Classic(device) => match classic::attach(&opts, device, &target) {
                Err(e) if e.is_permission() && !forced => helper::attach(&opts, &target),
                done => done,
            },
            Kind::Fusermount => helper::attach(&opts, &target),
        }
    }
}

/// Mounts at `mountpoint`: [`prepare`] and [`Detached::attach`] in one.
///
/// # Errors
///
/// The errors of the two steps.
pub fn mount(mountpoint: &Path, opts: &MountOptions) -> Result<Mounted, MountError> {
    prepare(opts)?.attach(mountpoint)
}
